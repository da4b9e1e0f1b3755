"""A trained model, as the verbs that predict use it."""

import argparse
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.files import opened
from bonsai_xmc._base.params import check
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._model.labels import marked_words
from bonsai_xmc._model.thresholds import resolve, select

from .io import Inputs
from .source import Part, Source


class Ranked(NamedTuple):
    """Some rows with their best labels."""

    part: Part
    ids: Any
    scores: Any


def load(args: argparse.Namespace, inputs: Inputs, path: str | None = None) -> LabelRanker:
    """The model, with the prediction parameters that were given as options."""
    model = inputs.model(path or args.model)
    for name in sorted(vars(args).keys() & {"beam_size", "n_probe", "n_jobs"}):
        check(name, getattr(args, name))
        model.classifier_.set_params(**{name: getattr(args, name)})
    return model


def rank(
    args: argparse.Namespace, model: LabelRanker, source: Source, k: int, exact: bool = False
) -> Iterator[Ranked]:
    """The best labels of all rows; with ``--threshold`` those of at least this score."""
    filters = {
        name: marked(model, getattr(args, name, None), f"--{name}") for name in ("restrict", "exclude")
    }
    least = getattr(args, "threshold", None)
    k = min(k, len(model.classes_))
    for part in source.parts():
        ids, scores = model.top_k(part.X, k, exact=exact, progress=args.progress, **filters)
        yield Ranked(part, *((ids, scores) if least is None else select(ids, scores, resolve(least, model))))


# Labels as arguments: each is a label, or @FILE with one on each line


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
    """Expand label arguments; @FILE stands for the first column of the file."""
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


def same_frequencies(counts: Any, n_rows: int | None) -> sp.csc_array | None:
    """Labels with the same frequencies as those that a model was trained on: all that propensities need.

    None if these are not known.
    """
    if counts is None or n_rows is None:
        return None
    indptr = np.concatenate([[0], np.cumsum(counts)])
    rows = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
    return sp.csc_array((np.ones(len(rows), np.float32), rows, indptr), shape=(n_rows, len(counts)))
