"""A fitted pipeline of a vectorizer and a `Bonsai` as one model, if its options have counterparts here.

Imports the core for vocabularies, which are made from the terms of other vectorizers.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from bonsai_xmc import _core
from bonsai_xmc._estimators.bonsai import Bonsai
from bonsai_xmc._estimators.vectorizer import TextVectorizer
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._text.blocks import make_plan
from bonsai_xmc._text.fitted import FittedText, core_spec, text_options

# Words of at least two characters, and of at least one; each pattern in two spellings.
_WORDS = {r"(?u)\b\w\w+\b": 2, r"\b\w\w+\b": 2, r"\w\w+": 2, r"(?u)\b\w+\b": 1, r"\b\w+\b": 1, r"\w+": 1}
# Options of TfidfVectorizer that must have their defaults.
_DEFAULTS = {
    "input": "content",
    "strip_accents": None,
    "preprocessor": None,
    "tokenizer": None,
    "binary": False,
}

_MANY = 2**32 - 2  # documents, if their number is unknown: frequencies are rounded to multiples of 1/_MANY
_CLOSE = 1e-5
_PROBES = 64


def model_of(pipeline: Any) -> tuple[FittedModel, dict[str, Any]]:
    """Return the model of a fitted pipeline, and the parameters of its texts; ValueError if it has none."""
    steps = [step for _, step in getattr(pipeline, "steps", [])]
    if len(steps) != 2 or type(steps[1]) is not Bonsai:
        raise ValueError(
            "a pipeline of two steps is needed, a TfidfVectorizer or TextVectorizer and a Bonsai; these are "
            + (", ".join(type(step).__name__ for step in steps) or type(pipeline).__name__)
        )
    vectorizer, bonsai = steps
    check_is_fitted(vectorizer)
    fitted = bonsai.fitted_
    if isinstance(vectorizer, TextVectorizer):
        params = vectorizer.get_params()
        params.pop("n_jobs")
        params["max_ngrams"] = None
        text = vectorizer.fitted_
    elif type(vectorizer) is TfidfVectorizer:
        params = _params(vectorizer, fitted.linear.strategy.normalize)
        text = _text(vectorizer, params, fitted.n_rows or _MANY)
        _compare(text, vectorizer)
    else:
        raise ValueError(
            f"the first step is a {type(vectorizer).__name__}, not a TfidfVectorizer or TextVectorizer"
        )
    if text.core.n_features != fitted.n_features:
        raise ValueError(
            f"the vectorizer has {text.core.n_features:,} terms, the Bonsai {fitted.n_features:,} features"
        )
    return replace(fitted, text=replace(text, given=params), feature_names=None), params


def _params(vectorizer: TfidfVectorizer, normalized: bool) -> dict[str, Any]:
    """Return the parameters of `TextVectorizer` that stand for those of a TfidfVectorizer."""
    given = vectorizer.get_params()
    for name, default in _DEFAULTS.items():
        if given[name] != default:
            raise _no_place(name, given[name])
    analyzer = given["analyzer"]
    if analyzer not in ("word", "char", "char_wb"):
        raise _no_place("analyzer", analyzer)
    if analyzer == "word" and given["token_pattern"] not in _WORDS:
        raise _no_place("token_pattern", given["token_pattern"])
    first, last = given["ngram_range"]
    if given["stop_words"] is not None and not (analyzer == "word" and last == 1):
        raise _no_place("stop_words", given["stop_words"], " with n-grams")
    if given["norm"] != "l2" and not normalized:
        raise _no_place("norm", given["norm"])
    orders = {(first, last): 1.0}
    return {
        "fields": None,
        "word_ngrams": orders if analyzer == "word" else None,
        "char_ngrams": None if analyzer == "word" else orders,
        "char_boundaries": analyzer == "char_wb",
        "min_df": given["min_df"],
        "max_df": given["max_df"],
        "max_features": given["max_features"],
        "lowercase": given["lowercase"],
        "min_word_length": _WORDS[given["token_pattern"]] if analyzer == "word" else 2,
        "sublinear_tf": given["sublinear_tf"],
        "smooth_idf": given["smooth_idf"],
        "power": 1.0,
        "max_ngrams": None,
    }


def _no_place(name: str, value: Any, why: str = "") -> ValueError:
    return ValueError(
        f"TfidfVectorizer({name}={value!r}){why} has no counterpart in a text model; pickle the "
        "pipeline, or save only its Bonsai"
    )


def _text(vectorizer: TfidfVectorizer, params: Mapping[str, Any], n_rows: int) -> FittedText:
    terms = vectorizer.get_feature_names_out().tolist()
    if terms != sorted(terms):
        raise ValueError("the vocabulary of the TfidfVectorizer is not in the order of its terms")
    n_documents, df = _frequencies(vectorizer, n_rows)
    plan = make_plan(None, params["word_ngrams"], params["char_ngrams"], params["char_boundaries"])
    options = text_options(params)
    core = _core.TextTransform.from_terms(
        core_spec(plan, options), n_documents, list(map(str.encode, terms)), df
    )
    return FittedText(core, plan, options, _core.unicode_version())


def _frequencies(vectorizer: TfidfVectorizer, n_rows: int) -> tuple[int, np.ndarray]:
    """Return the number of documents, and of those with each term, from the weights."""
    if not vectorizer.use_idf:  # all weights are 1: as if every document had every term
        return n_rows, np.full(len(vectorizer.vocabulary_), n_rows, np.uint32)
    more = 1 if vectorizer.smooth_idf else 0
    for n in (n_rows, _MANY):
        df = np.round((n + more) / np.exp(vectorizer.idf_.astype(np.float64) - 1) - more)
        df = np.clip(df, 1, n)
        if np.allclose(np.log((n + more) / (df + more)) + 1, vectorizer.idf_, rtol=1e-6, atol=1e-6):
            break
    return n, df.astype(np.uint32)


def _compare(text: FittedText, vectorizer: TfidfVectorizer) -> None:
    """Check that both give the same rows for texts made of the terms: versions of Unicode may differ."""
    terms = vectorizer.get_feature_names_out().tolist()
    step = max(1, len(terms) // (8 * _PROBES))
    some = terms[::step]
    ends = np.linspace(0, len(some), min(_PROBES, len(some)) + 1).astype(int)
    texts: list[Any] = [" ".join(some[a:b] + some[a : (a + b) // 2]) for a, b in pairwise(ends.tolist())]
    texts += [text.upper() for text in texts]
    ours = text.transform([[list(texts)]], 1).to_scipy()
    theirs = sp.csr_array(vectorizer.transform(texts)).astype(np.float64)
    norms = np.sqrt(np.asarray(theirs.multiply(theirs).sum(axis=1)).ravel())
    theirs.data /= np.repeat(np.maximum(norms, 1e-300), np.diff(theirs.indptr))
    difference = abs(ours - theirs)
    if difference.nnz and difference.max() > _CLOSE:
        raise ValueError(
            "the TfidfVectorizer reads texts in another way than a text model would, in spite of equal "
            "options; pickle the pipeline, or save only its Bonsai"
        )
