"""Labels as arguments: each is a label, or @FILE with one on each line."""

import argparse
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai
from bonsai_xmc._labels import did_you_mean, unknown_labels
from bonsai_xmc._store.files import opened


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


def keys_of(model: Bonsai, words: Sequence[str], option: str) -> list[Any]:
    """Labels as the model has them: names, or integers."""
    if model.fitted_.named:
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{option}: {error}; the labels of this model are integers") from error


def marked(model: Bonsai, values: Sequence[str] | None, option: str) -> Any:
    """Labels for `restrict` or `exclude`, as booleans: they are used for every part of the input."""
    if not values:
        return None
    keys = keys_of(model, words_of(values), option)
    if not keys:
        raise ValueError(f"{option}: there is no label in {values[0][1:]}")
    unknown = unknown_labels(model.fitted_, keys)
    if len(unknown) == len(keys):
        file = next((value for value in values if os.path.isfile(value)), None)
        hint = f"; @{file} reads a file" if file else did_you_mean(model.fitted_, unknown[0])
        none = f"none of the {len(keys):,} labels, such as" if len(keys) > 1 else "no label"
        raise ValueError(f"{option}: the model has {none} {unknown[0]!r}{hint}")
    if unknown:
        warnings.warn(
            f"{option}: {len(unknown):,} of {len(keys):,} labels are not those of the model, such as "
            f"{unknown[0]!r}",
            stacklevel=2,
        )
    result = np.zeros(len(model.classes_), bool)
    result[[model.fitted_.place[key] for key in keys if key in model.fitted_.place]] = True
    return result


def filters(args: argparse.Namespace, model: Bonsai) -> dict[str, Any]:
    """``--restrict`` and ``--exclude``, as arguments of a prediction; read once."""
    if not hasattr(args, "label_filters"):
        args.label_filters = {
            name: marked(model, getattr(args, name, None), f"--{name}") for name in ("restrict", "exclude")
        }
    found: dict[str, Any] = args.label_filters
    return found
