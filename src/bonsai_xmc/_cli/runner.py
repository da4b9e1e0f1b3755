"""Who solves the units of work of ``bonsai train``."""

import argparse
import contextlib
from collections.abc import Iterator

from bonsai_xmc._base.progress import ProgressBar
from bonsai_xmc._training.work import Runner


@contextlib.contextmanager
def runner_of(args: argparse.Namespace) -> Iterator[Runner | None]:
    """A cluster, if one was asked for; otherwise the threads of this process."""
    if args.ray is None:
        yield None
        return
    from bonsai_xmc.ray import RayRunner

    status = args.progress.note if isinstance(args.progress, ProgressBar) else None
    with RayRunner(args.ray, status=status) as runner:
        yield runner
