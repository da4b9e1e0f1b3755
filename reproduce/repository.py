"""The paper's data sets: their files in the Extreme Classification Repository, and the figures of Table 1."""

import warnings
from pathlib import Path
from typing import NamedTuple

from scipy.sparse import csr_array

from bonsai_xmc.datasets._folders import LAYOUTS, LONG_NAMES, Layout, find_part, versions
from bonsai_xmc.datasets._matrices import SHAPES
from bonsai_xmc.datasets._reading import load_xc
from bonsai_xmc.datasets._types import Dataset, to_csr
from bonsai_xmc.metrics import PROPENSITY

PAGE = "http://manikvarma.org/downloads/XC/XMLRepository.html"

_PRINTED = 0.1  # figures with one decimal: the paper rounds some and cuts others off


class Statistics(NamedTuple):
    """Figures of a data set, as `statistics` counts them.

    Attributes
    ----------
    n_rows, n_test, n_labels, n_features : int
    rows_per_label, labels_per_row : float
        Means over all labels and over all training rows.
    rows_per_label_all, labels_per_row_all : float
        The same for training and test rows together.
    """

    n_rows: int
    n_test: int
    n_labels: int
    n_features: int
    rows_per_label: float
    labels_per_row: float
    rows_per_label_all: float
    labels_per_row_all: float


class PaperSet(NamedTuple):
    """A data set of the paper: the figures of its Table 1, as printed, and where its files come from.

    Attributes
    ----------
    name, title : str
        Name for `load`, and name on the repository's page.
    n_rows, n_test, n_labels, n_features : int
    rows_per_label, labels_per_row : float
    counts_test : bool
        Whether these two figures count training and test rows, or training rows only.
    archives : tuple of str
        Folders that the published archives unpack to.
    stem : str
        Beginning of the file names in the older archives: ``stem_train.txt``, ``stem_test.txt``.
    """

    name: str
    title: str
    n_rows: int
    n_test: int
    n_labels: int
    n_features: int
    rows_per_label: float
    labels_per_row: float
    counts_test: bool
    archives: tuple[str, ...]
    stem: str

    @property
    def propensity(self) -> tuple[float, float]:
        """Constants A and B of the propensity model, as in `metrics.PROPENSITY`."""
        return PROPENSITY[self.name]

    def differences(self, found: Statistics) -> list[str]:
        """Return the differences between a data set and Table 1, in words; empty if there are none.

            Examples
            --------
            >>> from bonsai_xmc import datasets
        >>> from reproduce import repository
            >>> data = datasets.make_xmc(n_rows=200, random_state=0)
            >>> repository.PAPER["eurlex-4k"].differences(repository.statistics(data))[0]
            '200 training rows instead of 15,539'
        """
        texts = []
        shape = SHAPES[self.name]  # from the repository's page, which corrects a misprint in the table
        for field, what in _COUNTED.items():
            actual, printed = getattr(found, field), getattr(self, field)
            if actual not in (printed, getattr(shape, field)):
                texts.append(f"{actual:,} {what} instead of {printed:,}")
        for field, what in _AVERAGED.items():
            actual, printed = getattr(found, field + "_all" * self.counts_test), getattr(self, field)
            if abs(actual - printed) > _PRINTED + 1e-6:
                texts.append(f"{actual:,.2f} {what} instead of {printed:,.1f}")
        return texts


_COUNTED = {
    "n_rows": "training rows",
    "n_test": "test rows",
    "n_labels": "labels",
    "n_features": "features",
}
_AVERAGED = {"rows_per_label": "rows per label", "labels_per_row": "labels per row"}


def _sets(*rows: PaperSet) -> dict[str, PaperSet]:
    return {row.name: row for row in rows}


#: The six data sets of the Bonsai paper with the figures of its Table 1. One is a misprint: Amazon-670K has
#: 490,449 training rows, as on the repository's page and in ``SHAPES``.
# fmt: off
PAPER = _sets(
    PaperSet("eurlex-4k", "EURLex-4K", 15_539, 3_809, 3_993, 5_000, 25.7, 5.3, True, ("Eurlex",), "eurlex"),
    PaperSet("wiki10-31k", "Wiki10-31K", 14_146, 6_616, 30_938, 101_938, 8.5, 18.6, False,
             ("Wiki10", "Wiki10.bow"), "wiki10"),
    PaperSet("wikilshtc-325k", "WikiLSHTC-325K", 1_778_351, 587_084, 325_056, 1_617_899, 17.4, 3.2, False,
             ("WikiLSHTC",), "wikiLSHTC"),
    PaperSet("wikipedia-500k", "Wikipedia-500K", 1_813_391, 783_743, 501_070, 2_381_304, 24.7, 4.7, True,
             ("WikipediaLarge-500K",), "WikipediaLarge-500K"),
    PaperSet("amazon-670k", "Amazon-670K", 490_499, 153_025, 670_091, 135_909, 3.9, 5.4, False,
             ("Amazon", "Amazon670K.bow", "Amazon-670K.bow"), "amazon"),
    PaperSet("amazon-3m", "Amazon-3M", 1_717_899, 742_507, 2_812_281, 337_067, 31.6, 36.1, True,
             ("Amazon-3M", "Amazon-3M.bow"), "amazon-3M"),
)
# fmt: on


def statistics(data: Dataset) -> Statistics:
    """Return the statistics of the paper's Table 1, for any data set.

    Parameters
    ----------
    data : Dataset
        As from `load` or `make_xmc`.

    Returns
    -------
    Statistics

    Examples
    --------
    >>> from bonsai_xmc import datasets
    >>> from reproduce import repository
    >>> data = datasets.make_xmc(n_rows=200, n_test=50, n_labels=20, random_state=0)
    >>> found = repository.statistics(data)
    >>> found.n_rows, found.n_test, found.n_labels
    (200, 50, 20)
    >>> found.rows_per_label == data.Y_train.nnz / 20
    True
    """
    (n_rows, n_features), (n_test, n_labels) = data.X_train.shape, data.Y_test.shape
    train, both = _ones(data.Y_train), _ones(data.Y_train) + _ones(data.Y_test)
    return Statistics(
        n_rows,
        n_test,
        n_labels,
        n_features,
        train / max(n_labels, 1),
        train / max(n_rows, 1),
        both / max(n_labels, 1),
        both / max(n_rows + n_test, 1),
    )


def _ones(Y: csr_array) -> int:
    return int(Y.count_nonzero())


def locate(about: PaperSet, root: Path) -> Path:
    """Return the folder that holds the files; the error for a missing one names what to fetch.

    It has the set's name, or is what an archive unpacks to, inside that folder or beside it.
    """
    home = root / about.name
    places = [home, *(place / archive for place in (home, root) for archive in about.archives)]
    for folder in places:
        if any(_is_file(folder / name) for layout in _layouts(about) for name in _names(layout)):
            return folder
    raise FileNotFoundError(f"data set {about.name!r} is not in {root}: {_advice(about, home)}")


def read(about: PaperSet, folder: Path) -> Dataset:
    """Return the matrices, with a warning where they are not those of the paper."""
    layouts = _layouts(about)
    try:
        files = [find_part(folder, part, layouts) for part in LONG_NAMES]
    except FileNotFoundError as error:
        # of the layout that is nearest to being complete
        wanted = min(([n for n in _names(x) if not _is_file(folder / n)] for x in layouts), key=len)
        missing = " and ".join(str(folder / name) for name in wanted)
        raise FileNotFoundError(f"{missing} missing: {_advice(about, folder)}") from error
    X_train, Y_train = load_xc(*files[0])
    # the header of a test file may count only the columns that occur in it
    X_test, Y_test = load_xc(*files[1])
    X_test, Y_test = _widened(X_test, X_train.shape[1]), _widened(Y_test, Y_train.shape[1])
    data = Dataset(X_train, Y_train, X_test, Y_test, None, None)
    found = about.differences(statistics(data))
    if found:
        warnings.warn(
            f"{folder} is not the {about.title} of the paper (Table 1) but another version, whose results "
            f"cannot be compared: it has {', '.join(found)}",
            stacklevel=3,
        )
    return data


def _layouts(about: PaperSet) -> tuple[Layout, ...]:
    return (*LAYOUTS, (about.stem + "_{long}.txt", None))


def _names(layout: Layout) -> list[str]:
    """Return the files of both parts in a layout."""
    return [name.format(part=part, long=LONG_NAMES[part]) for part in LONG_NAMES for name in layout if name]


def _is_file(path: Path) -> bool:
    return bool(versions(path))


def _advice(about: PaperSet, folder: Path) -> str:
    return (
        f'fetch the "BoW Features" of {about.title} from {PAGE}, unpack them, and put into {folder} what the '
        f"archive holds: train.txt and test.txt, or {about.stem}_train.txt and {about.stem}_test.txt, or "
        "trn_X_Xf.txt, trn_X_Y.txt, tst_X_Xf.txt and tst_X_Y.txt"
    )


def _widened(matrix: csr_array, columns: int) -> csr_array:
    """Return the matrix of a test part with as many columns as the training part has."""
    if matrix.shape[1] > columns:
        raise ValueError(f"the test part has {matrix.shape[1]} columns, but the training part {columns}")
    return to_csr(matrix.indptr, matrix.indices, matrix.data, columns)
