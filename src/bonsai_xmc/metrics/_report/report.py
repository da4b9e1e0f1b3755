"""`Report`: an evaluation as numbers and as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.files import PathLike, replacing
from bonsai_xmc._base.html import made
from bonsai_xmc._data.labels import indicator, is_matrix, labels_of, over_classes
from bonsai_xmc.metrics import _propensity
from bonsai_xmc.metrics._definitions import METRICS, OF_ROWS, figures
from bonsai_xmc.metrics._ranking import Ranking, Truth, check_ids
from bonsai_xmc.metrics._reliability import Reliability, reliability

from . import measure, page
from .measure import DEPTH, Difference, FrequencyBin, LabelCost

OF_FIELDS = ("P@1", "R@5", "nDCG@5", "F1@5", "PSP@5")


class Report:
    """The evaluation of one model, or of two side by side: numbers, and a page that shows them.

    Parameters
    ----------
    Y_true : indicator matrix (n, L), or lists of labels
        True labels. Labels outside `classes` are left out, and the page states their number.
    predictions : dict of str to (ids, scores)
        The results of `Bonsai.top_k` for all rows, by the name of the model; one model, or two over the same
        labels. Ten labels for each row are a good choice.
    Y_train : as in `evaluate`, optional
        Training labels, for propensities and the frequency of labels.
    k : sequence of int, default=(1, 3, 5, 10)
        Cutoffs of the table; those beyond the predictions are left out.
    classes : sequence of L labels, optional
        `classes_` of the models; needed for lists of labels.
    label_names : sequence of L str, optional
        Names to show next to the labels.
    texts : sequence of n str, optional
        Texts of the rows, for examples.
    by : dict of str to sequence of n str, optional
        Values of fields, such as the language, by which metrics are split.
    A : float, default=0.55
        This, B and `dataset`: propensity parameters, as in `evaluate`.
    B : float, default=1.5
        See A.
    dataset : str, optional
        See A.
    title : str
        Heading of the page.
    coverage : bool, default=False
        Whether to include C@k and CC@k, which measure distinct labels.
    about : dict of str to str, optional
        Facts that the page shows next to its date and the version of this package: data, parameters.
    notes : sequence of str, optional
        Warnings that the page shows above its figures.
    random_state : int, default=0
        Seed of the bootstrap, by which two models are compared.

    Attributes
    ----------
    results : dict of str to dict
        The results of `evaluate` for each model, in percent.
    differences : dict of str to Difference
        With two models: the second minus the first in percentage points for "P@1", …, with the 95 %
        interval of a paired bootstrap: `value`, `low`, `high`.
    by : dict
        For each field and value: the number of rows and, for each model, metrics at 5.
    by_frequency : list
        Recall at 5 of labels by their number of training rows.
    reliability : dict of str to Reliability
        The reliability of the five best labels, for each model.
    missed, wrong : list
        The labels that cost most R@5 and most P@5.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import Bonsai, datasets, metrics
    >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
    >>> model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
    >>> report = metrics.Report(data.Y_test, {"default": model.top_k(data.X_test, 10)}, data.Y_train)
    >>> sorted(report.results["default"])[:3]
    ['F1@1', 'F1@10', 'F1@3']
    >>> report.save(pathlib.Path(tempfile.mkdtemp(), "report.html"))
    """

    def __init__(
        self,
        Y_true: Any,
        predictions: Mapping[str, tuple[Any, Any]],
        Y_train: Any = None,
        *,
        k: Sequence[int] = (1, 3, 5, 10),
        classes: Any = None,
        label_names: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        by: Mapping[str, Sequence[str]] | None = None,
        A: float = 0.55,
        B: float = 1.5,
        dataset: str | None = None,
        title: str = "Evaluation",
        coverage: bool = False,
        about: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
        random_state: int = 0,
    ) -> None:
        if not 1 <= len(predictions) <= 2:
            raise ValueError(f"a report is about one model or two, got predictions of {len(predictions)}")
        self.title, self.notes = title, tuple(notes)
        self.about = {"Made": made(), **(about or {})}
        truth = _matrix(Y_true, classes, "Y_true")
        if truth.shape[0] == 0:
            raise ValueError("Y_true must have at least one row")
        self.left_out = 0 if is_matrix(Y_true) else len(labels_of(Y_true).indices) - truth.nnz
        self.n_rows, self.n_labels = truth.shape
        self.n_true = int(truth.nnz)
        ranked = {name: _checked(name, given, truth.shape) for name, given in predictions.items()}
        self.depth = min(ids.shape[1] for ids, _ in ranked.values())
        self.cutoffs = sorted({cutoff for cutoff in k if cutoff <= self.depth}) or [self.depth]
        A, B = _propensity.parameters(dataset, A, B)
        self.label_counts = q = None
        if Y_train is not None:
            counts, n_train = Y_train if isinstance(Y_train, tuple) else _counted(Y_train, classes)
            if len(counts) != self.n_labels:
                raise ValueError(f"Y_train has {len(counts)} labels, but Y_true has {self.n_labels}")
            self.label_counts = counts
            q = _propensity.from_counts(counts, n_train, A, B)
        true_labels = Truth(truth.indptr, truth.indices, q=q)
        rankings = {
            name: true_labels.rank(check_ids(ids, self.n_labels, self.depth))
            for name, (ids, _) in ranked.items()
        }
        shown, ranks = METRICS if coverage else OF_ROWS, range(1, self.depth + 1)
        self.curves = {name: figures(found, ranks, shown) for name, found in rankings.items()}
        self.results = {
            name: {key: value for key, value in curve.items() if int(key.partition("@")[2]) in self.cutoffs}
            for name, curve in self.curves.items()
        }
        self.reliability: dict[str, Reliability] = {
            name: reliability(truth, ids, scores, min(DEPTH, self.depth))
            for name, (ids, scores) in ranked.items()
            if (ids >= 0).any() and scores.min() >= 0 and scores.max() <= 1
        }
        self.differences = self._differences(rankings, random_state)
        self.by = {
            name: self._by_field(name, values, rankings, random_state) for name, values in (by or {}).items()
        }
        self.by_frequency: list[FrequencyBin] = []
        if self.label_counts is not None:
            self.by_frequency = measure.by_frequency(rankings, self.label_counts)
        self.missed: list[LabelCost] = measure.missed_labels(rankings, self.n_labels)
        self.wrong: list[LabelCost] = measure.wrong_labels(rankings, self.n_labels)
        self._describe(truth, ranked, classes, label_names, texts)

    def _differences(self, rankings: dict[str, Ranking], seed: int) -> dict[str, Difference]:
        if len(rankings) < 2:
            return {}
        at = [c for c in self.cutoffs if c <= DEPTH] or self.cutoffs[:1]
        first, second = (measure.at(of, at) for of in rankings.values())
        return measure.differences(first, second, np.arange(self.n_rows), seed)

    def _by_field(
        self, name: str, values: Sequence[str], rankings: dict[str, Ranking], seed: int
    ) -> dict[str, dict[str, Any]]:
        if len(values) != self.n_rows:
            raise ValueError(f"by[{name!r}] has {len(values):,} values, but there are {self.n_rows:,} rows")
        models = {}
        for model, of in rankings.items():
            found = measure.at(of, sorted({1, min(DEPTH, self.depth)}))
            models[model] = {key: found[key] for key in OF_FIELDS if key in found}
        result: dict[str, dict[str, Any]] = {}
        for value, rows in measure.parts_of([str(value) for value in values]).items():
            of_models = {
                model: {key: 100 * quotient.over(rows=rows) for key, quotient in found.items()}
                for model, found in models.items()
            }
            result[value] = {"rows": len(rows), "results": of_models}
            if len(models) == 2:
                first, second = models.values()
                result[value]["differences"] = measure.differences(first, second, rows, seed)
        return result

    def _describe(
        self, truth: Any, ranked: Any, classes: Any, label_names: Sequence[str] | None, texts: Any
    ) -> None:
        """Store the labels, names and example rows of the page."""
        labels = range(self.n_labels) if classes is None else np.asarray(classes, dtype=object).tolist()
        if label_names is not None and len(label_names) != self.n_labels:
            raise ValueError(f"there are {len(label_names):,} label_names, but {self.n_labels:,} labels")
        if texts is not None and len(texts) != self.n_rows:
            raise ValueError(f"there are {len(texts):,} texts, but {self.n_rows:,} rows")
        self._labels, self._names = labels, label_names
        rows = {row for cost in (*self.missed, *self.wrong) for row in cost.examples}
        ids, scores = (part[:, :DEPTH].tolist() for part in next(iter(ranked.values())))
        self.examples = {
            row: page.Example(
                f"row {row + 1}" if texts is None else str(texts[row]),
                truth[[row]].indices.tolist(),
                [pair for pair in zip(ids[row], scores[row], strict=True) if pair[0] >= 0],
            )
            for row in sorted(rows)
        }

    def _name_of(self, label: int) -> tuple[str, str]:
        """Return a label and its name, "" if it has none, for a column."""
        key = str(self._labels[label])
        name = "" if self._names is None else str(self._names[label])
        return key, "" if name == key else name

    def to_html(self) -> str:
        """Return the page, a single file without external resources."""
        return page.render(self)

    def save(self, path: PathLike) -> None:
        """Write the page to a file, which is replaced atomically."""
        html = self.to_html().encode()
        with replacing(path) as file:
            file.write(html)


def _matrix(Y: Any, classes: Any, name: str) -> sp.csr_array:
    if is_matrix(Y):
        return sp.csr_array(indicator(Y, name))
    if classes is None:
        raise ValueError(f"{name} holds lists of labels; pass classes=model.classes_, which ids refer to")
    labels = np.asarray(classes)
    return sp.csr_array(over_classes(Y, labels.astype(object) if labels.dtype.kind in "UT" else labels))


def _counted(Y_train: Any, classes: Any) -> tuple[Any, int]:
    """Return the number of training rows with each label, and of all of them."""
    train = _matrix(Y_train, classes, "Y_train")
    return np.bincount(train.indices, minlength=train.shape[1]), train.shape[0]


def _checked(name: str, given: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise ValueError(f"predictions[{name!r}] must be (ids, scores), as top_k returns them")
    ids, scores = (np.asarray(part) for part in given)
    if ids.ndim != 2 or ids.shape != scores.shape or ids.shape[0] != shape[0]:
        raise ValueError(
            f"predictions[{name!r}]: ids have shape {ids.shape} and scores {scores.shape}, but there are "
            f"{shape[0]:,} rows"
        )
    width = min(ids.shape[1], shape[1])  # top_k pads with −1 beyond the number of labels
    return ids[:, :width], scores[:, :width]
