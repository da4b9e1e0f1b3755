"""A trained model, as the commands that predict use it."""

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.params import check
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._model.thresholds import resolve, select
from bonsai_xmc.datasets._reading import Expected
from bonsai_xmc.metrics._definitions import METRICS

from .io import Inputs
from .label_lists import filters


def load(args: argparse.Namespace, inputs: Inputs) -> LabelRanker:
    """The model, with the prediction parameters that were given as options."""
    model = inputs.model(args.model)
    for name in sorted(vars(args).keys() & {"beam_size", "n_probe", "n_jobs"}):
        check(name, getattr(args, name))
        model.classifier_.set_params(**{name: getattr(args, name)})
    return model


def expected(args: argparse.Namespace, model: LabelRanker) -> Expected:
    """What data for this model must be like."""
    return Expected(model.n_features_in_, len(model.classes_), model.fitted_.id_base, args.model)


def top_k(
    args: argparse.Namespace, model: LabelRanker, X: Any, k: int, exact: bool = False
) -> tuple[Any, Any]:
    """The best labels; with ``--threshold`` those of at least this score."""
    ids, scores = model.top_k(X, k, exact=exact, progress=args.progress, **filters(args, model))
    least = getattr(args, "threshold", None)
    return (ids, scores) if least is None else select(ids, scores, resolve(least, model))


def check_no_document_options(args: argparse.Namespace) -> None:
    """Options for documents are an error where there are none, rather than without effect."""
    for name in ("text", "label_field", "label_separator", "strict", "max_line", "output_format"):
        if getattr(args, name, None):
            option = "labels" if name == "label_field" else name.replace("_", "-")
            raise ValueError(f"--{option} is for documents, but {args.model} is a model of matrices")


UNKNOWN = (
    "the model does not know how frequent labels are in training, as it was imported: PSP, PSnDCG and C need "
    "--train, the training labels"
)


def with_unknown(result: dict[str, Any], cutoffs: list[int]) -> dict[str, Any]:
    """A result without training labels, where the metrics that need them are None."""
    every = [f"{name}@{k}" for name in METRICS for k in sorted(set(cutoffs))]
    known = {name: result.get(name) for name in every}
    return known | {name: value for name, value in result.items() if name not in known}


def same_frequencies(counts: Any, n_rows: int | None) -> sp.csc_array | None:
    """Labels with the same frequencies as those that a model was trained on: all that propensities need.

    None if these are not known.
    """
    if counts is None or n_rows is None:
        return None
    indptr = np.concatenate([[0], np.cumsum(counts)])
    rows = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
    return sp.csc_array((np.ones(len(rows), np.float32), rows, indptr), shape=(n_rows, len(counts)))
