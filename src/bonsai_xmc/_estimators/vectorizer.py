"""`TextVectorizer`: texts become sparse TF-IDF rows."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._text.fitted import FittedText, check_terms, text_options
from bonsai_xmc._text.records import columns_of
from bonsai_xmc._text.title import planned


@dataclass(eq=False, repr=False)
class TextParameters:
    """The parameters of `TextVectorizer` that `TextBonsai` has, too."""

    fields: Any = None
    _: KW_ONLY
    word_ngrams: Any = "auto"
    char_ngrams: Any = "auto"
    char_boundaries: bool = True
    min_df: float = 2
    max_df: float = 1.0
    max_features: int | None = None
    lowercase: bool = True
    min_word_length: int = 2
    sublinear_tf: bool = True
    smooth_idf: bool = True
    power: float = 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class TextVectorizer(TextParameters, TransformerMixin, BaseEstimator):
    """TF-IDF vectors of texts with one or more fields.

    A *block* is a TF-IDF matrix of its own, with rows of unit length: words, word n-grams of one order, or
    character n-grams, of one field or of all fields joined. Blocks are multiplied by their weights and put
    side by side, and the rows are given unit length again. Terms, their order and their weights equal those
    of scikit-learn's `TfidfVectorizer` with the same options; letters and lower case are those of Unicode
    14.0.

    Parameters
    ----------
    fields : None, list of str, or dict, default=None
        None: each row is a string. Otherwise each row is a record (a dict, or a row of a data frame; a plain
        string stands for the first field), and `fields` names its texts. These are joined into one text; in
        addition, each may have blocks of its own. A dict gives their weight, 0 for none:
        ``{"title": 1.0, "abstract": 0}``. That weight is shared by word bigrams (× 0.3) and
        trigrams (× 0.2) and character 5-grams (× 0.7); a dict instead of the weight sets the n-grams:
        ``{"title": {"word_ngrams": {1: 0.5}}, "abstract": 0}``. In a list, the title has the weight 1, others
        0. The title is the first field whose texts are short (75 % have at most 400 characters,
        measured on the first 4,096 rows), of those with a title's name if there is one.
    word_ngrams : "auto", dict, int or None, default="auto"
        Word n-grams of the joined text: orders and their weights, each order a block of its own, as
        ``{1: 1.0, 2: 0.5}``. A pair as key is a range of orders in one block: ``{(1, 2): 1.0}``. An integer
        n stands for orders 1 to n with weight 1. "auto": 1.
    char_ngrams : "auto", dict, int or None, default="auto"
        The same for character n-grams of the joined text: ``{5: 0.6}``. There are many of them; words
        are enough for most long texts. "auto": None. But where both are "auto", and the only text (rows are
        strings, or `fields` lists one field) is short, it has the blocks of a title.
    char_boundaries : bool, default=True
        Character n-grams lie within words, padded by spaces (scikit-learn's "char_wb"); False: anywhere
        ("char").
    min_df : int or float, default=2
        Terms in fewer documents are left out. An integer is a number of documents, a float a share.
    max_df : int or float, default=1.0
        Terms in more documents are left out, likewise.
    max_features : int or None, default=None
        Maximum number of terms in each block; those that occur most often are kept.
    lowercase : bool, default=True
        Convert texts to lower case.
    min_word_length : int, default=2
        Words are runs of letters, digits and underscores of at least this length.
    sublinear_tf : bool, default=True
        1 + log(tf) instead of tf.
    smooth_idf : bool, default=True
        Document frequencies are counted as if one more document contained every term.
    power : float, default=1.0
        Values are raised to this power before rows are given unit length: above 1, rare terms count more.
    n_jobs : int or None, default=None
        Threads; None: all. The result does not depend on it.

    Attributes
    ----------
    n_features_out_ : int
        Number of features.
    blocks_ : list of (name, number of features, weight)
        The blocks, in the order of their features.

    Examples
    --------
    >>> from bonsai_xmc import TextVectorizer
    >>> records = [{"title": "Brick houses", "abstract": "Old brick houses of Bremen."},
    ...            {"title": "Heat pumps", "abstract": "Heat pumps for old houses."}]
    >>> vectorizer = TextVectorizer(fields=["title", "abstract"], min_df=1)
    >>> vectorizer.fit_transform(records).shape
    (2, 22)
    >>> for name, n_features, weight in vectorizer.blocks_:
    ...     print(name, n_features, weight)
    title+abstract word 1 8 1.0
    title word 2 2 0.3
    title word 3 0 0.2
    title char_wb 5 12 0.7
    """

    n_jobs: int | None = None

    def _fit(self, X: Any, rows: bool) -> sp.csr_array | None:
        params = self.get_params()
        options, threads = text_options(params), threads_of(self.n_jobs)
        plan, lengths, chunks = planned(X, params)
        fitted, matrix = FittedText.fit(chunks, plan, options, threads, rows=rows, lengths=lengths)
        check_terms(fitted)
        self.fitted_ = fitted
        return None if matrix is None else matrix.to_scipy()

    def fit(self, X: Any, y: Any = None) -> "TextVectorizer":
        """Learn terms and document frequencies. X may be a generator: it is read once."""
        self._fit(X, rows=False)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> sp.csr_array:
        """Learn terms and document frequencies, and return the rows, reading X only once."""
        matrix = self._fit(X, rows=True)
        assert matrix is not None
        return matrix

    def transform(self, X: Any) -> sp.csr_array:
        """Return rows of float32 with the terms that `fit` has learned."""
        check_is_fitted(self)
        fields = self.fitted_.plan.fields
        rows = self.fitted_.transform(columns_of(X, fields, complete=False), threads_of(self.n_jobs))
        return rows.to_scipy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    @property
    def n_features_out_(self) -> int:
        return self.fitted_.core.n_features

    @property
    def blocks_(self) -> list[tuple[str, int, float]]:
        sizes = self.fitted_.core.block_sizes
        return [(b.name, size, b.weight) for b, size in zip(self.fitted_.plan.blocks, sizes, strict=True)]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of columns: terms, after ``field__analyzer__`` if there are several blocks."""
        check_is_fitted(self)
        blocks = self.fitted_.plan.blocks
        names: list[str] = []
        for i, block in enumerate(blocks):
            prefix = (
                ""
                if len(blocks) == 1
                else "__".join([*filter(None, ["+".join(block.text)]), block.analyzer, ""])
            )
            names += [prefix + name for name in self.fitted_.block_names(i)]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
