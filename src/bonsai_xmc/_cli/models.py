"""Trained models for the verbs that predict, and labels as arguments."""

import argparse
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from bonsai_xmc._base.files import opened
from bonsai_xmc._base.params import check
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model import predict
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.labels import marked_words
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.thresholds import PER_LABEL, resolve, select

from .io import Inputs
from .source import Part, Source


class Ranked(NamedTuple):
    """Some rows with their best labels."""

    part: Part
    ids: Any
    scores: Any


class TextModel:
    """A text model without an estimator, as importing scikit-learn takes a second."""

    def __init__(self, fitted: FittedModel, prediction: Mapping[str, Any]) -> None:
        self.fitted_, self.classes_ = fitted, fitted.classes
        self.threshold_, self.thresholds_ = fitted.threshold, fitted.thresholds
        self.classifier_ = SimpleNamespace(n_jobs=None, **prediction)

    def top_k(self, X: Any, k: int, **options: Any) -> tuple[Any, Any]:
        """Do the same as `TextBonsai.top_k`."""
        options |= {name: getattr(self.classifier_, name) for name in ("beam_size", "n_probe", "n_jobs")}
        ids, scores = predict.rank(self.fitted_, self._rows, X, k, **options)
        return ids, self.fitted_.scores(ids, scores)

    def _rows(self, X: Any, fitted: FittedModel) -> Rows:
        return predict.text_rows(X, fitted, self.classifier_.n_jobs)


def load(args: argparse.Namespace, inputs: Inputs, path: str | None = None, light: bool = False) -> Any:
    """Return the model, with the prediction parameters that were given as options.

    `light`: the model needs only `top_k`.
    """
    path = path or args.model
    fitted, prediction = inputs.fitted(path)
    if light and fitted.text is not None and isinstance(fitted.ranker, LinearRanker):
        model: Any = TextModel(fitted, prediction)
    else:
        from bonsai_xmc._estimators.text import restored

        model = restored(fitted, prediction, path)
    for name in sorted(vars(args).keys() & {"beam_size", "n_probe", "n_jobs"}):
        check(name, getattr(args, name))
        if not hasattr(model.classifier_, name):
            kind = model.fitted_.ranker.kind
            raise ValueError(f"--{name.replace('_', '-')} has no effect on a model of the kind {kind!r}")
        setattr(model.classifier_, name, getattr(args, name))
    return model


def rank(
    args: argparse.Namespace, model: Any, source: Source, k: int, exact: bool = False, least: Any = None
) -> Iterator[Ranked]:
    """Yield the best labels of all rows, or those that reach a threshold if `least` is given."""
    filters = {
        name: marked(model, getattr(args, name, None), f"--{name}") for name in ("restrict", "exclude")
    }
    k = min(k, len(model.classes_))
    threshold = None if least is None else threshold_of(least, model, args.model)
    for part in source.parts():
        ids, scores = model.top_k(part.X, k, exact=exact, progress=args.progress, **filters)
        yield Ranked(part, *((ids, scores) if threshold is None else select(ids, scores, threshold)))


def threshold_of(given: Any, model: Any, name: str) -> Any:
    """Return the threshold of an option: a number, or an array over labels."""
    if given == PER_LABEL and model.thresholds_ is None:
        raise ValueError(
            f"--threshold per_label: the labels of {name} have no thresholds of their own; train it with "
            "--threshold per_label, which keeps them if they are better on held-out rows, or give auto or a "
            "number"
        )
    return model.thresholds_ if given == PER_LABEL else resolve(given, model)


# Labels as arguments: a label, or @FILE with a label on each line


def lines_of(path: str) -> Iterator[list[str]]:
    """Yield the columns of a file, separated by tabs; empty lines are skipped."""
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


def marked(model: Any, values: Sequence[str] | None, option: str) -> Any:
    """Return labels for `restrict` or `exclude` as booleans, which serve for all parts of the input."""
    if not values:
        return None
    words = words_of(values)
    file = next((value for value in values if os.path.isfile(value)), None)
    result, unknown = marked_words(model.fitted_, words, option, f"; @{file} reads a file" if file else "")
    if unknown:
        warnings.warn(
            f"{option}: {len(unknown):,} of {len(words):,} labels are not in the model, such as "
            f"{unknown[0]!r}",
            stacklevel=2,
        )
    return result
