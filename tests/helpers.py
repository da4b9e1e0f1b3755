"""Helpers that several test modules share."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, TextBonsai
from bonsai_xmc._base.params import TEXT_PARAMETERS

# Six labels whose names are hard to write and to read.
NAMES = ["Ahorn", "Bäume 🌳", "", "línea\nnueva", "木", "a" * 300]


def random_csr(shape, *, density, rng, dtype=np.float64, data_sampler=None):
    """Replace `scipy.sparse.random_array`, which the oldest supported versions lack."""
    drawn = sp.random(*shape, density=density, random_state=rng, dtype=dtype, data_rvs=data_sampler)
    return sp.csr_array(drawn)


def forests_of(model):
    """Return the arrays of the trees and of the one-vs-rest classifiers; None for a missing part."""
    core = model.fitted_.linear.core
    return tuple(None if forest is None else forest.arrays() for forest in (core.trees, core.one_vs_rest))


def trees_of(model):
    return forests_of(model)[0]


def one_vs_rest_of(model):
    return forests_of(model)[1]


def same_model(a, b):
    """Return whether two models have equal trees and weights, bit by bit."""
    return all(_same_arrays(x, y) for x, y in zip(forests_of(a), forests_of(b), strict=True))


def _same_arrays(a, b):
    if a is None or b is None:
        return a is b
    assert a.keys() == b.keys()
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a.values(), b.values(), strict=True)
    )


def error_of(bonsai, *args):
    """Return the error line of a failing command, alone on standard error; standard output is empty."""
    assert bonsai(*args, code=1) == ""
    assert bonsai.error.startswith("bonsai: error: ")
    assert bonsai.error.count("\n") == 1
    assert bonsai.error.endswith("\n")
    return bonsai.error.removeprefix("bonsai: error: ").rstrip("\n")


def says(message, error=ValueError):
    """Expect a ValueError that contains the message."""
    return pytest.raises(error, match=re.escape(message))


def text_bonsai(**params):
    """Return a `TextBonsai` from its own parameters and those of its classifier, given side by side."""
    texts = {name: params.pop(name) for name in ("fields", *TEXT_PARAMETERS, "label_texts") if name in params}
    return TextBonsai(**texts, classifier=Bonsai(**params))


def params_of(model):
    """Return the parameters of an estimator and of its classifier in a comparable form."""
    return {name: value for name, value in model.get_params().items() if name != "classifier"}
