"""Generated matrices with the sizes and statistics of public data sets."""

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array

from ._labels import LabelSets, lognormal_weights, uneven_parts
from ._types import Dataset, to_csr


class Shape(NamedTuple):
    """Size of a data set: rows for training and test, columns, and mean entries of a row."""

    n_rows: int
    n_test: int
    n_features: int
    n_labels: int
    features_per_row: float
    labels_per_row: float


#: Data sets of the Bonsai paper, and AmazonCat-13K. Sizes and labels per row of the paper's sets
#: agree with its Table 1, which has 490,499 rows for Amazon-670K; features per row are round figures.
SHAPES = {
    "small": Shape(2_000, 500, 2_000, 300, 40, 3),
    "eurlex-4k": Shape(15_539, 3_809, 5_000, 3_993, 236, 5.31),
    "wiki10-31k": Shape(14_146, 6_616, 101_938, 30_938, 673, 18.64),
    "amazoncat-13k": Shape(1_186_239, 306_782, 203_882, 13_330, 71, 5.04),
    "wikilshtc-325k": Shape(1_778_351, 587_084, 1_617_899, 325_056, 42, 3.19),
    "wikipedia-500k": Shape(1_813_391, 783_743, 2_381_304, 501_070, 385, 4.7),
    "amazon-670k": Shape(490_449, 153_025, 135_909, 670_091, 75, 5.45),
    "amazon-3m": Shape(1_717_899, 742_507, 337_067, 2_812_281, 50, 36.1),
}

_GROUP = 12  # minimum mean number of labels in a group
_THEME = 25  # groups in a theme
_AREAS = 40  # number of areas if there are many themes
_UNEVEN = 0.8  # spread of the sizes of groups, themes and areas, on the log scale
_BACKGROUND = 0.45  # share of the words of a row that are unrelated to its labels
_TYPICAL = 0.5  # the most probable rank of such a word is the number of features to this power
_ANY = 1.5  # mean number of random uses of each feature, like names and misprints
_LABEL_NOISE = 0.12  # share of rows with the labels of another row, like errors of human indexers
_MAIN = 0.35  # share of the other words that belong to the main label; the rest to any label of the row
_BLOCK_WORDS = 2_000_000  # words drawn at a time, which bounds memory beyond the result

# Sources of the words about a label: name, size of the vocabulary, probability.
_SOURCES = (("label", 8, 0.35), ("group", 30, 0.25), ("theme", 200, 0.2), ("area", 600, 0.2))
_COMMON = 3  # power that makes the words of a source frequent ones


def make_xmc(
    shape: str | None = None,
    *,
    scale: float = 1.0,
    n_rows: int | None = None,
    n_test: int | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    features_per_row: float | None = None,
    labels_per_row: float | None = None,
    random_state: int | Generator | None = 0,
) -> Dataset:
    """Generate a data set: a long tail of labels in a hierarchy, rows that mix their labels' words.

    Labels form groups, groups themes, themes areas, all of uneven sizes; labels of a group occur together.
    Each label, group, theme and area has words of its own; rows also contain uninformative words.
    Label frequencies are lognormal: about half of the labels have one row where the mean is five. X holds
    TF-IDF weights in unit rows. A good linear classifier puts a right label first in about 70 to 90 of 100
    rows. ``benchmarks/scale/generator.py`` compares the result with real data.

    Parameters
    ----------
    shape : str, optional
        Name of a data set in ``datasets.SHAPES`` whose size to take; default "small".
    scale : float
        Factor for the numbers of rows, features and labels.
    n_rows, n_test, n_features, n_labels : int, optional
        These numbers, instead of the scaled ones of `shape`.
    features_per_row, labels_per_row : float, optional
        Mean numbers of entries, instead of those of `shape`.
    random_state : int, Generator or None
        The same seed gives the same data.

    Returns
    -------
    Dataset
        `label_names` and `feature_names` are None. Each label has a training row if there are enough rows.

    Examples
    --------
    >>> from bonsai_xmc import datasets
    >>> data = datasets.make_xmc("eurlex-4k", scale=0.1, random_state=0)
    >>> data.X_train.shape, data.Y_train.shape
    ((1554, 500), (1554, 399))
    """
    size = _size(shape, scale, (n_rows, n_test, n_features, n_labels, features_per_row, labels_per_row))
    rng = np.random.default_rng(random_state)
    weights = lognormal_weights(rng, size.n_labels, size.labels_per_row)
    sets = LabelSets(weights, _hierarchy(rng, size), near=(0.6, 0.2, 0.1))
    n_missing = sets.n_missing(size.n_rows, size.labels_per_row)
    sets.calibrate(rng, max(1.0, size.labels_per_row - n_missing / size.n_rows))
    words = _Words(rng, size, sets)

    label_ids = rng.permutation(size.n_labels).astype(np.int32)  # so that ids are unrelated to the hierarchy
    parts = []
    rare = None  # labels that no training row has drawn
    for rows in (size.n_rows, size.n_test):
        indptr, labels = sets.draw(rng, rows)
        if rare is None:
            rare = more = sets.missing(rng, labels)
        else:  # at the same rate as in training, among labels that no test row has drawn
            more = np.setdiff1d(rng.permutation(rare)[: len(rare) * rows // size.n_rows], labels)
        if rows:
            indptr, labels = sets.join(rng, indptr, labels, more)
        X = words.counts(rng, indptr, labels)
        Y = to_csr(indptr, label_ids[labels], None, size.n_labels)[_label_sources(rng, rows)]
        Y.has_sorted_indices = False
        Y.sort_indices()
        parts.append((X, Y))
    (X_train, Y_train), (X_test, Y_test) = parts
    idf = np.log((1 + size.n_rows) / (1 + np.bincount(X_train.indices, minlength=size.n_features))) + 1
    for X in (X_train, X_test):
        _weigh(X, idf.astype(np.float32))
    return Dataset(X_train, Y_train, X_test, Y_test, None, None)


def _size(name: str | None, scale: float, given: tuple[float | None, ...]) -> Shape:
    """Return the named shape, scaled, with the given values in place of its own; checked."""
    known = SHAPES.get(name or "small")
    if known is None:
        raise ValueError(f"shape {name!r} is unknown; there are {', '.join(SHAPES)}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, not {scale}")
    scaled = [max(2, round(n * scale)) for n in known[:4]] + list(known[4:])
    values = [default if value is None else value for value, default in zip(given, scaled, strict=True)]
    for field, value in zip(Shape._fields, values, strict=True):
        smallest = {"n_test": 0, "n_features": 2}.get(field, 1)
        if value < smallest or (field.startswith("n_") and value != int(value)):
            raise ValueError(f"{field} must be a number of at least {smallest}, not {value}")
    size = Shape(*(int(v) for v in values[:4]), *map(float, values[4:]))
    # rows with nearly all labels or words would take too long to draw
    return size._replace(
        features_per_row=min(size.features_per_row, max(1.0, size.n_features / 4)),
        labels_per_row=min(size.labels_per_row, max(1.0, size.n_labels / 8)),
    )


def _label_sources(rng: Generator, n_rows: int) -> np.ndarray:
    """Return the row that each row takes its labels from: itself, or another one by label noise."""
    source = np.arange(n_rows)
    noisy = np.flatnonzero(rng.random(n_rows) < _LABEL_NOISE)
    source[noisy] = np.roll(noisy, 1)
    return source


def _hierarchy(rng: Generator, size: Shape) -> list[np.ndarray]:
    """Return the first label of each group, theme and area."""
    groups = uneven_parts(rng, size.n_labels, max(_GROUP, 3 * size.labels_per_row), _UNEVEN)
    themes = groups[uneven_parts(rng, len(groups), _THEME, _UNEVEN)]
    areas = themes[uneven_parts(rng, len(themes), max(3, len(themes) / _AREAS), _UNEVEN)]
    return [groups, themes, areas]


class _Words:
    """A generator of the words of rows by their labels; vocabularies are hashes instead of lists."""

    def __init__(self, rng: Generator, size: Shape, sets: LabelSets) -> None:
        self._key = rng.integers(1 << 63, dtype=np.uint64)
        self._feature_ids = rng.permutation(size.n_features).astype(np.int32)
        self._sets = sets
        # words of the only unit of a kind are unrelated to labels
        shares = [share if n > 1 else 0 for (_, _, share), n in zip(_SOURCES, sets.n_units(), strict=True)]
        self._ends = np.cumsum(shares) / max(sum(shares), 1e-9)
        self._draws = 1.0
        self._any_share = min(0.1, _ANY * size.n_features / (size.n_rows * size.features_per_row))
        self._calibrate(rng, size.features_per_row)

    def counts(self, rng: Generator, indptr: np.ndarray, labels: np.ndarray) -> csr_array:
        """Count how often each row uses each word."""
        n_rows = len(indptr) - 1
        columns = len(self._feature_ids)
        step = max(1, int(_BLOCK_WORDS / self._draws))
        indices, values, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [np.zeros(1, np.int64)]
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            row, word = self._draw(rng, indptr[start : stop + 1], labels)
            keys, count = np.unique(row * columns + self._feature_ids[word], return_counts=True)
            indices.append((keys % columns).astype(np.int32))
            values.append(count.astype(np.float32))
            sizes.append(np.bincount(keys // columns, minlength=stop - start))
        data = np.concatenate(values)
        values.clear()  # frees half of the blocks before the other half is joined
        return to_csr(np.cumsum(np.concatenate(sizes)), np.concatenate(indices), data, columns)

    def _calibrate(self, rng: Generator, features_per_row: float) -> None:
        """Find the number of draws for a mean number of distinct words, as some are drawn twice."""
        self._draws = features_per_row
        indptr, labels = self._sets.draw(rng, max(50, min(2000, int(300_000 / features_per_row))))
        for _ in range(6):
            self._draws *= features_per_row / (self.counts(rng, indptr, labels).nnz / (len(indptr) - 1))

    def _draw(self, rng: Generator, indptr: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw row and word (by descending frequency); `indptr` is a slice, rows count from 0."""
        spread = 0.5  # of the lengths, on the log scale
        length = self._draws * rng.lognormal(-(spread**2) / 2, spread, len(indptr) - 1)
        row = np.repeat(np.arange(len(length)), np.maximum(1, np.rint(length)).astype(np.int64))
        size = np.diff(indptr)[row]
        which = (rng.random(len(row)) * size).astype(np.int64)
        which[rng.random(len(row)) < _MAIN] = 0
        label = labels[indptr[row] + which]

        n_words = len(self._feature_ids)
        # The logarithm of the rank has a triangular density: frequencies fall slowly at first, then ever
        # faster, and most of the vocabulary is rare.
        log_rank = rng.triangular(0.0, _TYPICAL, 1.0, len(row)) * np.log(n_words + 1)
        word = (np.exp(log_rank) - 1).astype(np.int64)
        any_word = np.flatnonzero(rng.random(len(row)) < self._any_share)
        word[any_word] = rng.integers(n_words, size=len(any_word))
        source = np.searchsorted(self._ends, rng.random(len(row)), side="right")
        source[rng.random(len(row)) < _BACKGROUND] = len(_SOURCES)
        units = (label, *self._sets.ancestors(label))
        for kind, ((_, vocabulary, _), unit) in enumerate(zip(_SOURCES, units, strict=True)):
            chosen = np.flatnonzero(source == kind)
            # the first words of a source are the most frequent
            nth = (rng.random(len(chosen)) ** 2 * vocabulary).astype(np.uint64)
            place = self._hash(unit[chosen].astype(np.uint64) * np.uint64(1024) + nth, kind)
            word[chosen] = (place**_COMMON * n_words).astype(np.int64)
        return row, np.minimum(word, n_words - 1)

    def _hash(self, values: np.ndarray, kind: int) -> np.ndarray:
        """Return pseudo-random numbers in [0, 1) that depend only on the arguments and the seed."""
        z = values * np.uint64(4) + np.uint64(kind) + self._key
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        return (z >> np.uint64(11)) * 2.0**-53


def _weigh(X: csr_array, idf: np.ndarray) -> None:
    """Turn counts into sublinear TF-IDF weights with unit rows, in place."""
    step = max(1, _BLOCK_WORDS * X.shape[0] // max(1, X.nnz))
    for start in range(0, X.shape[0], step):
        indptr = X.indptr[start : start + step + 1]
        block = slice(indptr[0], indptr[-1])
        weights = (1 + np.log(X.data[block])) * idf[X.indices[block]]
        squares = np.add.reduceat(weights**2, indptr[:-1] - indptr[0], dtype=np.float64)  # no row is empty
        X.data[block] = weights / np.repeat(np.sqrt(squares), np.diff(indptr))
