"""A fitted pipeline of a vectorizer and a `Bonsai` as one model, where its options are ours, too."""

from collections.abc import Mapping, Sequence
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
from bonsai_xmc._text.fitted import FittedText, text_options

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

_MANY = 2**32 - 2  # documents, if their true number is not known: frequencies are rounded to so fine shares
_CLOSE = 1e-5
_PROBES = 64


def model_of(pipeline: Any) -> tuple[FittedModel, dict[str, Any]]:
    """The model of a fitted pipeline with the parameters of its texts; ValueError if it cannot be one."""
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
    """The parameters of `TextVectorizer` that stand for those of a TfidfVectorizer."""
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
        f"TfidfVectorizer({name}={value!r}){why} has no counterpart in a model of texts; pickle the "
        "pipeline, or save its Bonsai alone"
    )


def _text(vectorizer: TfidfVectorizer, params: Mapping[str, Any], n_rows: int) -> FittedText:
    terms = vectorizer.get_feature_names_out().tolist()
    if terms != sorted(terms):
        raise ValueError("the vocabulary of the TfidfVectorizer is not in the order of its terms")
    n_documents, df = _frequencies(vectorizer, n_rows)
    plan = make_plan(None, params["word_ngrams"], params["char_ngrams"], params["char_boundaries"])
    if params["word_ngrams"] is not None:
        arrays = _word_arrays([tuple(term.split(" ")) for term in terms], df, *vectorizer.ngram_range)
    else:
        text, ptr = _packed(terms)
        arrays = {"blocks.0.grams": text, "blocks.0.grams_ptr": ptr, "blocks.0.df.0": df}
        arrays |= dict(zip(("fields.0.words", "fields.0.words_ptr"), _packed([]), strict=True))
    description = {
        "unicode_version": _core.unicode_version(),
        "n_documents": n_documents,
        "plan": plan.to_json(),
        "options": vars(text_options(params)),
        "given": {},
    }
    return FittedText.from_arrays(description, arrays)


def _frequencies(vectorizer: TfidfVectorizer, n_rows: int) -> tuple[int, np.ndarray]:
    """The number of documents, and of those with each term, out of the weights that they have become."""
    if not vectorizer.use_idf:  # all weights are 1: as if every document had every term
        return n_rows, np.full(len(vectorizer.vocabulary_), n_rows, np.uint32)
    more = 1 if vectorizer.smooth_idf else 0
    for n in (n_rows, _MANY):
        df = np.round((n + more) / np.exp(vectorizer.idf_.astype(np.float64) - 1) - more)
        df = np.clip(df, 1, n)
        if np.allclose(np.log((n + more) / (df + more)) + 1, vectorizer.idf_, rtol=1e-6, atol=1e-6):
            break
    return n, df.astype(np.uint32)


def _word_arrays(
    terms: Sequence[tuple[str, ...]], df: np.ndarray, min_n: int, max_n: int
) -> dict[str, np.ndarray]:
    """Words, and n-grams as a tree: each (n − 1)-gram with the words that follow it (docs/format.md)."""
    words = sorted({word for term in terms for word in term})
    number = {word: i for i, word in enumerate(words)}
    frequency = dict(zip((tuple(number[word] for word in term) for term in terms), df.tolist(), strict=True))
    text, ptr = _packed(words)
    arrays = {"fields.0.words": text, "fields.0.words_ptr": ptr}
    grams: list[tuple[int, ...]] = [(i,) for i in range(len(words))]
    for n in range(1, max_n + 1):
        if n > 1:
            place = {gram: i for i, gram in enumerate(grams)}
            grams = sorted({gram[:n] for gram in frequency if len(gram) >= n})
            counts = np.bincount([place[gram[:-1]] for gram in grams], minlength=len(place))
            arrays[f"fields.0.ngrams.{n}.ptr"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            arrays[f"fields.0.ngrams.{n}.last"] = np.array([gram[-1] for gram in grams], np.uint32)
        if n >= min_n:
            arrays[f"blocks.0.df.{n - min_n}"] = np.array([frequency.get(g, 0) for g in grams], np.uint32)
    return arrays


def _packed(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _compare(text: FittedText, vectorizer: TfidfVectorizer) -> None:
    """Both must give the same rows for texts made of the terms; this Python may know other Unicode."""
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
            "the TfidfVectorizer reads texts in another way than a model of texts would, in spite of equal "
            "options; pickle the pipeline, or save its Bonsai alone"
        )
