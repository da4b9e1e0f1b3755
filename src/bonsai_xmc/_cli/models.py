"""A trained model, as the commands that predict use it."""

import argparse
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai
from bonsai_xmc._params import RULES
from bonsai_xmc.datasets._reading import Expected

from .io import Inputs


def load(args: argparse.Namespace, inputs: Inputs) -> Bonsai:
    """The model, with the prediction parameters that were given as options."""
    model = inputs.model(args.model)
    for name in sorted(vars(args).keys() & {"beam_size", "n_jobs"}):
        holds, rule = RULES[name]
        if not holds(getattr(args, name)):
            raise ValueError(f"{name} is {getattr(args, name)!r}, but must be {rule}")
        model.set_params(**{name: getattr(args, name)})
    return model


def expected(args: argparse.Namespace, model: Bonsai) -> Expected:
    """What data for this model must be like."""
    return Expected(model.n_features_in_, len(model.classes_), None, args.model)


def top_k(args: argparse.Namespace, model: Bonsai, X: Any, k: int, exact: bool = False) -> tuple[Any, Any]:
    ids, scores = model._search(X, model._checked_k(k), args.progress, exact=exact)
    return ids, np.exp(scores)
