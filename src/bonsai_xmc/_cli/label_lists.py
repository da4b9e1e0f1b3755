"""Labels as arguments: each is a label, or @FILE with one on each line."""

import argparse
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bonsai_xmc._base.files import opened
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._model.labels import marked_words


def lines_of(path: str) -> Iterator[list[str]]:
    """The columns of a file, separated by tabs; empty lines are skipped."""
    with opened(path) as file:
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    for line in text.split("\n"):
        if line.removesuffix("\r"):
            yield line.removesuffix("\r").split("\t")


def words_of(values: Iterable[str]) -> list[str]:
    """The labels of all values; of a file's lines the first column, as of lines id<TAB>name."""
    found: list[str] = []
    for value in values:
        found += [columns[0] for columns in lines_of(value[1:])] if value.startswith("@") else [value]
    return found


def marked(model: LabelRanker, values: Sequence[str] | None, option: str) -> Any:
    """Labels for `restrict` or `exclude`, as booleans: they are used for every part of the input."""
    if not values:
        return None
    words = words_of(values)
    file = next((value for value in values if os.path.isfile(value)), None)
    result, unknown = marked_words(model.fitted_, words, option, f"; @{file} reads a file" if file else "")
    if unknown:
        warnings.warn(
            f"{option}: {len(unknown):,} of {len(words):,} labels are not those of the model, such as "
            f"{unknown[0]!r}",
            stacklevel=2,
        )
    return result


def filters(args: argparse.Namespace, model: LabelRanker) -> dict[str, Any]:
    """``--restrict`` and ``--exclude``, as arguments of a prediction; read once."""
    if not hasattr(args, "label_filters"):
        args.label_filters = {
            name: marked(model, getattr(args, name, None), f"--{name}") for name in ("restrict", "exclude")
        }
    found: dict[str, Any] = args.label_filters
    return found
