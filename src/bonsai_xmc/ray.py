"""Training on a Ray cluster, where one machine is not enough (``pip install 'bonsai-xmc[ray]'``)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bonsai_xmc._base.hints import needed
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._training.cluster import Workers
from bonsai_xmc._training.recipes import Recipe
from bonsai_xmc._training.sending import Batches, Run, Shared, arrays_in
from bonsai_xmc._training.work import Save, Watch

if TYPE_CHECKING:
    from bonsai_xmc import _core

__all__ = ["RayRunner"]

Array = npt.NDArray[Any]

_SECONDS_BETWEEN_RECORDS = 10.0
# Shared objects in the object store: stages alternate between the data set and given label vectors.
_MOST_SHARED = 2
# Bytes of data for each second of `local_seconds`; stages of larger data are sent at once.
_BYTES_OF_A_SECOND = 16_000_000


class RayRunner:
    """A runner that trains on the nodes of a Ray cluster; the model has the same bytes.

    Rows and labels reach each node once. Units travel in batches of some seconds; workers and nodes may die,
    and nodes may join, during training. This process does all that depends on all results (the next level of
    the trees, the model, its index, predictions of held-out rows), and stages that are too short to be sent.

    Parameters
    ----------
    address : str, default="auto"
        "auto": the cluster that this process is connected to, or that runs on this machine, or that
        ``RAY_ADDRESS`` names. "host:port": that cluster, of which this machine is a node. "local": a new one
        on only this machine.
    cpus_per_worker : int, optional
        Threads of a worker process. Default: one worker for each node, with all CPUs that Ray counts there.
        Each worker prepares all rows: few workers with many threads need the least memory.
    batch_seconds : float, default=4.0
        Target duration of a batch of units, which is also the loss when a worker dies.
    local_seconds : float, default=1.0
        Stages that take this process less time are not sent, unless the data are large (16 MB a second). 0
        sends all stages.
    status : callable, optional
        Called several times a second with a line of text about nodes, units, rate and remaining time. The
        logger ``bonsai_xmc`` receives such a line every ten seconds.

    Examples
    --------
    >>> from bonsai_xmc import Bonsai
    >>> from bonsai_xmc.datasets import make_xmc
    >>> from bonsai_xmc.ray import RayRunner
    >>> data = make_xmc(n_rows=300, n_features=100, n_labels=30, random_state=0)
    >>> with RayRunner("local") as runner:  # on a cluster: RayRunner()
    ...     model = Bonsai().fit(data.X_train, data.Y_train, runner=runner)
    >>> model.top_k(data.X_test[:1], k=2)[0]
    array([[16,  7]], dtype=int32)
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        cpus_per_worker: int | None = None,
        batch_seconds: float = 4.0,
        local_seconds: float = 1.0,
        status: Callable[[str], None] | None = None,
    ) -> None:
        if address.startswith("ray://"):
            raise ValueError(
                f"the address is {address!r}, but Ray Client cannot share memory; run this on a node of the "
                "cluster, with 'auto' or 'host:port' of its head"
            )
        if cpus_per_worker is not None and cpus_per_worker < 1:
            raise ValueError(f"cpus_per_worker is {cpus_per_worker}, but must be at least 1")
        self._ray = needed("ray", "training on a cluster needs", "'bonsai-xmc[ray]'")
        self._address = address
        self._cpus_per_worker = cpus_per_worker
        self._batch_seconds = batch_seconds
        self._local_seconds = local_seconds
        self._status = status
        self._workers: Workers | None = None
        self._connected = False  # by this runner
        self._shared: list[Shared] = []  # latest last

    def __enter__(self) -> Self:
        """Connect to the cluster and start workers, which otherwise the first stage does."""
        self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers, and the connection to Ray if it was made here. The runner can be used again."""
        if self._workers is not None and self._ray.is_initialized():
            self._workers.stop()
        self._workers = None
        self._shared.clear()
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def usage(self) -> dict[str, dict[str, float]]:
        """Return the work of each node, by its id.

        These are ``cpus``, ``units``, ``batches``, ``seconds`` and ``core_seconds`` of its workers, and bytes
        received (``bytes_in``) and sent (``bytes_out``).
        """
        return {} if self._workers is None else {n: vars(u).copy() for n, u in self._workers.usage.items()}

    def solve(
        self, stage: _core.Stage, recipe: Recipe, units: Array, threads: int, progress: Watch, save: Save
    ) -> None:
        """Solve units of a stage; `fit` calls this."""
        n_bytes = sum(array.nbytes for array in arrays_in(recipe.shared))
        if n_bytes <= self._local_seconds * _BYTES_OF_A_SECOND:
            units = self._solve_small(stage, recipe, units, threads, progress, save)
        if not len(units):
            return
        self._connect()
        assert self._workers is not None
        shared, queue = self._share(recipe.shared), Batches(units, stage.costs(), self._batch_seconds)
        told = (progress, save, self._tell(recipe), threads)
        try:
            Run(self._ray, self._workers, stage, recipe, shared, queue, *told).run()
        except BaseException:
            # such as Ctrl-C: further results are not collected, and finished units are in the checkpoint
            self._workers.stop()
            raise
        self._workers.forget()

    def _solve_small(
        self,
        stage: _core.Stage,
        recipe: Recipe,
        units: Array,
        threads: int,
        progress: Watch,
        save: Save,
    ) -> Array:
        """Begin in this process, stop if the estimate is long, and return the remaining units."""
        begin, limit = time.monotonic(), self._local_seconds
        before = float(stage.costs().sum()) - float(stage.costs()[units].sum())

        def watch(done: float, total: float) -> None:
            if progress is not None:
                progress(done, total)
            elapsed = time.monotonic() - begin
            left = elapsed * (total - done) / max(done - before, 1e-9)
            if done < total and elapsed > limit / 10 and elapsed + left > 2 * limit:
                raise _TakesLong

        recipe.prepare(stage)
        with contextlib.suppress(_TakesLong):
            stage.solve(units, threads, watch, save)
        return np.intersect1d(units, stage.missing()).astype(np.uint32)

    def _connect(self) -> None:
        if not self._ray.is_initialized():
            self._workers = None
            _initialize(self._ray, self._address)
            self._connected = True
        if self._workers is None:
            self._shared.clear()
            self._workers = Workers(self._ray, self._cpus_per_worker)
            list(self._workers.look())

    def _share(self, value: Any) -> Shared:
        """Put a value into the object store, once for consecutive stages with the same value."""
        found = next((shared for shared in self._shared if shared.value is value), None)
        self._shared = [shared for shared in self._shared if shared is not found][-(_MOST_SHARED - 1) :]
        if found is None:
            found = Shared(self._ray, value)
        self._shared.append(found)
        return found

    def _tell(self, recipe: Recipe) -> Callable[[str], None]:
        what, said = recipe.make.__name__.replace("_", " "), time.monotonic()

        def tell(text: str) -> None:
            nonlocal said
            if self._status is not None:
                self._status(text)
            if time.monotonic() - said > _SECONDS_BETWEEN_RECORDS:
                said = time.monotonic()
                LOG.info("%s: %s", what, text)

        return tell


class _TakesLong(Exception):
    """Raised by a stage that is long enough to be sent."""


def _initialize(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one. The handler of SIGTERM is kept, which Ray would replace."""
    options: dict[str, Any] = {"address": address, "logging_level": logging.WARNING, "log_to_driver": False}
    if address == "local":
        options["logging_level"] = logging.ERROR  # without advice on how to secure a cluster
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if is_main else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about future versions of Ray
            ray.init(**options)
    except (ConnectionError, ValueError) as error:
        raise ConnectionError(
            f"there is no Ray cluster at {address!r} ({' '.join(str(error).split())}); start its head with "
            "'ray start --head' and other nodes with 'ray start --address=HOST:PORT', or give 'local'"
        ) from error
    finally:
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)
