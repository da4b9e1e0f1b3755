"""The measurements of ``bonsai evaluate``: rankings of models and files against true labels."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._base.params import check
from bonsai_xmc._data.labels import is_true, over_classes
from bonsai_xmc._model.thresholds import select
from bonsai_xmc.datasets import Document
from bonsai_xmc.datasets._reading import Expected
from bonsai_xmc.metrics import _propensity
from bonsai_xmc.metrics._definitions import COVERAGE, METRICS
from bonsai_xmc.metrics._ranking import Truth, best_first
from bonsai_xmc.metrics._report import measure
from bonsai_xmc.metrics._table import format_cells

from . import models, predictions, source
from .io import Inputs, distinct_names, writing
from .parser import OF_DOCUMENTS, OF_MODELS, refuse
from .report import describe

_CUTOFFS = (1, 3, 5)
_DEPTH = 10  # labels of each row in a report
_MOST = 100  # labels of each row that are compared with a threshold
_UNKNOWN = (
    "the model was imported and has no frequencies of labels in training: PSP, PSnDCG and C need --train, "
    "the training labels"
)
_AT_THRESHOLD = ("precision", "recall", "f1", "macro_f1", "labels_per_row")


class Ranked(NamedTuple):
    """Rows with their best labels, from a model or a file."""

    rows: Sequence[int]  # numbers of rows, by which systems are aligned
    labels: list[str]  # the labels of the ids
    ids: Any
    scores: Any
    model: Any = None  # None for predictions in a file


class Known(NamedTuple):
    """Rows and their true labels."""

    rows: Sequence[int]
    truth: Any  # lists of labels, or a matrix
    texts: list[str] | None = None
    by: dict[str, list[str]] = {}  # noqa: RUF012 (never changed)

    @property
    def is_documents(self) -> bool:
        return isinstance(self.truth, list)

    def take(self, places: list[int]) -> "Known":
        """Return some of the rows."""
        if len(places) == len(self.rows):
            return self
        part = lambda values: [values[i] for i in places]
        return Known(
            part(self.rows),
            part(self.truth) if self.is_documents else self.truth[places],
            None if self.texts is None else part(self.texts),
            {name: part(values) for name, values in self.by.items()},
        )


class Compared(NamedTuple):
    """Rankings of the same rows, over the same labels."""

    known: Known
    Y: sp.csr_array  # true labels, without those that no system has
    labels: list[str]
    ranked: dict[str, tuple[Any, Any]]  # ids and scores, by name of the system
    counts: Any  # training rows of each label; None if unknown
    depth: int  # labels that a row can have


@contextlib.contextmanager
def noting() -> Iterator[list[str]]:
    """Collect the messages that are printed meanwhile, for a report."""
    out, notes = sys.stderr, []

    class Noting:
        def write(self, text: str) -> int:
            if text.startswith("bonsai: "):
                notes.append(text.strip().removeprefix("bonsai: ").removeprefix("warning: "))
            return out.write(text)

        def __getattr__(self, name: str) -> Any:
            return getattr(out, name)

    with contextlib.redirect_stderr(Noting()):
        yield notes


class Evaluation:
    """One call of ``bonsai evaluate``, with one or several systems."""

    def __init__(self, args: argparse.Namespace, inputs: Inputs) -> None:
        self.args, self.inputs = args, inputs
        self.paths = [args.model, *args.against]
        self.kinds = [predictions.kind_of(inputs, path) for path in self.paths]
        self.names = distinct_names(self.paths)
        self.propensity: dict[str, Any] = {"dataset": args.dataset}
        if args.propensity is not None:
            self.propensity |= dict(zip("AB", args.propensity, strict=True))

    def run(self, notes: list[str]) -> None:
        """Measure and print; `notes` are the messages for a report."""
        args, alone = self.args, self.kinds == ["columns"]
        no_model = f"needs a model, but {args.model} holds predictions"
        if "model" not in self.kinds:
            refuse(args, OF_MODELS, no_model)
        if set(self.kinds) == {"model"}:
            refuse(args, ["classes"], "is for files of predictions, but there are none")
        if alone and args.threshold is None and not source.holds_documents(args, self.inputs):
            return self._show({args.model: self._of_columns()})
        most = 1 if args.threshold is None else _MOST
        depth = max(most, *(args.k or _CUTOFFS), 1 if args.report is None else _DEPTH)
        known, found = self._ranked(depth)
        model = next((system.model for system in found if system.model is not None), None)
        if model is None:
            needing = ["dataset", "propensity", "by_frequency"] if known.is_documents else []
            refuse(args, ["report", *needing], no_model)
        unknown = model is not None and model.fitted_.imported and args.train is None
        if unknown and args.by_frequency:
            raise ValueError(f"--by-frequency: {_UNKNOWN}")
        compared = self._together(known, found)
        Y, Y_train = compared.Y, self._frequencies(compared, model)
        cutoffs = args.k or _usual(min(compared.depth, len(compared.labels)))
        results: dict[str, Any] = {
            name: self._evaluate(Y, ids, Y_train, cutoffs) for name, (ids, _) in compared.ranked.items()
        }
        if args.exact:
            own = self._of_model(args.model, depth)[1]
            for k in sorted(set(cutoffs)):
                results[self.names[0]][f"found@{k}"] = _overlap(own.ids[:, :k], found[0].ids[:, :k])
        if unknown:
            results = {name: _with_unknown(result, cutoffs) for name, result in results.items()}
        differences = self._differences(compared, Y_train, cutoffs) if len(found) > 1 else {}
        at = {
            name: self._at_threshold(name, system.model, *ranking, Y)
            for (name, ranking), system in zip(compared.ranked.items(), found, strict=True)
            if args.threshold is not None
        }
        if model is not None:
            self._tell(compared, model, max(cutoffs))
        if unknown:
            print(f"bonsai: {_UNKNOWN}", file=sys.stderr)
        more = {} if args.report is None else self._report(compared, model, Y_train, notes)
        self._show(results, differences, at, more)

    def _evaluate(self, Y: Any, ranked: Any, Y_train: Any, cutoffs: Sequence[int]) -> dict[str, Any]:
        by_frequency = self.args.by_frequency
        return metrics.evaluate(Y, ranked, Y_train, cutoffs, by_frequency=by_frequency, **self.propensity)

    # Rankings

    def _ranked(self, depth: int) -> tuple[Known, list[Ranked]]:
        """Return the true labels, read as by the first model, and the rankings of all systems."""
        known: Known | None = None
        found: dict[int, Ranked] = {}
        for i, (path, kind) in enumerate(zip(self.paths, self.kinds, strict=True)):
            if kind == "model" or (i == 0 and kind not in ("labels", "columns")):
                of_path, found[i] = self._of_model(path, depth, self.args.exact)
                known = known or of_path
            elif kind not in ("labels", "columns"):
                raise ValueError(
                    f"--against needs a model, or predictions as JSON lines, CSV or TSV, but "
                    f"{self.inputs.name(path)} is neither"
                )
        known = known or self._of_data()
        for i, path in enumerate(self.paths):
            if i not in found:
                found[i] = self._of_file(path, self.kinds[i], known, found, depth)
        return known, [found[i] for i in range(len(self.paths))]

    def _of_model(self, path: str, k: int, exact: bool = False) -> tuple[Known, Ranked]:
        """Return the true labels of all rows and the best ones of a model."""
        args = self.args
        model = models.load(args, self.inputs, path)
        by: dict[str, list[str]] = {name: [] for name in args.by or ()}
        rows = source.for_model(args, model, self.inputs, more=list(by))
        numbers: list[int] = []
        texts: list[str] = []
        truth: Any = []
        ids, scores = [], []
        for part, of_part, values in models.rank(args, model, rows, k, exact):
            numbers += part.rows
            ids.append(of_part)
            scores.append(values)
            if part.documents is None:
                truth = part.Y
            else:
                truth += part.Y
            texts += [_shown(document, by, rows.name) for document in part.documents or ()]
        if not numbers and isinstance(rows, source.Texts):
            raise ValueError(f"{args.data} holds no document with text and labels")
        labels = [str(label) for label in model.classes_.tolist()]
        ranked = Ranked(numbers, labels, np.concatenate(ids), np.concatenate(scores), model)
        return Known(numbers, truth, texts or None, by), ranked

    def _of_data(self) -> Known:
        """Return the true labels if no system is a model."""
        args = self.args
        if source.holds_documents(args, self.inputs):
            documents = source.documents_of(args, self.inputs)
            truth = {document.line: document.labels for document in documents}
            if not truth:
                raise ValueError(f"{self.inputs.name(args.data)} holds no document with text and labels")
            return Known(list(truth), list(truth.values()))
        Y = self._matrix(Expected())
        return Known(range(1, Y.shape[0] + 1), Y)

    def _matrix(self, expected: Expected) -> Any:
        """Return the labels of the argument DATA, a matrix."""
        args = self.args
        refuse(args, OF_DOCUMENTS, f"is for documents, but {args.data} holds features")
        return self.inputs.labels(args, args.labels or args.data, args.split or args.usual_split, expected)

    def _of_columns(self) -> dict[str, Any]:
        """Return the metrics of a single file of predictions, given a file of labels, both matrices."""
        args, ranked = self.args, predictions.read_columns(self.inputs, self.args.model)
        expected = Expected(n_labels=ranked.shape[1], owner=self.inputs.name(args.model))
        Y = self._matrix(expected)
        Y_train = None if args.train is None else self.inputs.labels(args, args.train, "trn", expected)
        return self._evaluate(Y, ranked, Y_train, args.k or _usual(ranked.shape[1]))

    def _of_file(self, path: str, kind: str, known: Known, found: dict[int, Ranked], depth: int) -> Ranked:
        """Return the predictions of a file."""
        if kind == "labels":
            rows = predictions.read_labels(self.inputs, path)
            labels = sorted({label for row in rows.values() for label, _ in row})
            place = {label: i for i, label in enumerate(labels)}
            k = max(1, min(depth, max(map(len, rows.values()), default=1)))
            ids, scores = np.full((len(rows), k), -1, np.int32), np.zeros((len(rows), k), np.float32)
            for i, entries in enumerate(rows.values()):
                for rank, (name, value) in enumerate(entries[:k]):
                    ids[i, rank], scores[i, rank] = place[name], value
            return Ranked(list(rows), labels, ids, scores)
        file, name = predictions.read_columns(self.inputs, path), self.inputs.name(path)
        labels = self._classes_of(path, known, found, file.shape[1])
        if len(labels) != file.shape[1]:
            raise ValueError(f"{name} has {file.shape[1]:,} labels, but there are {len(labels):,}")
        numbers: Sequence[int] = known.rows
        if known.is_documents:
            numbers = source.row_numbers(self.args, self.inputs, file.shape[0], name)
        if len(numbers) != file.shape[0]:
            raise ValueError(f"{name} has {file.shape[0]:,} rows, but {self.args.data} {len(numbers):,}")
        row, label, score = file.row, file.label, file.score
        return Ranked(numbers, labels, *best_first(row, label, score, len(numbers), depth))

    def _classes_of(self, path: str, known: Known, found: dict[int, Ranked], n_labels: int) -> list[str]:
        """Return the labels that numbers in a file of predictions stand for."""
        classes = self.args.classes
        if classes is None:
            model = next((system for system in found.values() if len(system.labels) == n_labels), None)
            if model is not None:
                return model.labels
            if not known.is_documents:
                return [str(i) for i in range(known.truth.shape[1])]
            raise ValueError(
                f"{self.inputs.name(path)} holds numbers of labels, but documents have labels: give "
                "--classes MODEL, whose labels have these numbers"
            )
        kind = self.inputs.kind(classes)
        if kind == "model":
            return [str(label) for label in self.inputs.fitted(classes)[0].classes.tolist()]
        lines = models.lines_of(classes)
        return [str(json.loads(line)["label"]) if kind == "jsonl" else line for line, *_ in lines]

    def _together(self, known: Known, found: list[Ranked]) -> Compared:
        """Return the rows that all systems have, with label ids in common."""
        labels, counts = self._all_labels(known, found)
        place = {label: i for i, label in enumerate(labels)}
        common = set(known.rows).intersection(*(system.rows for system in found))
        missing = next((row for row in known.rows if row not in common), None)
        if missing is not None and (len(found) == 1 or not common):
            raise ValueError(
                f"{self.inputs.name(self.paths[1:2][0] if self.paths[1:] else self.paths[0])} has no "
                f"predictions for row {missing} of {self.inputs.name(self.args.data)}; give the "
                "predictions for this file"
            )
        if missing is not None:
            print(
                f"bonsai: warning: {len(common):,} of {len(known.rows):,} rows have predictions of all "
                "systems; the figures cover only these rows",
                file=sys.stderr,
            )
        known = known.take([i for i, row in enumerate(known.rows) if row in common])
        ranked = {}
        for name, system in zip(self.names, found, strict=True):
            strange = next((label for label in system.labels if label not in place), None)
            if strange is not None:
                raise ValueError(
                    f"{name}: the label {strange!r} is not the number of a column; give --classes "
                    "MODEL, whose labels have these numbers"
                )
            column = np.array([*(place[label] for label in system.labels), -1])  # −1 stays −1
            at = {row: i for i, row in enumerate(system.rows)}
            chosen = [at[row] for row in known.rows]
            ranked[name] = column[system.ids[chosen]], system.scores[chosen]
        depths = [system.ids.shape[1] for system in found if len(found) > 1 or system.model is not None]
        Y = known.truth
        if known.is_documents:
            Y = sp.csr_array(over_classes(known.truth, np.array(labels, object)))
        return Compared(known, Y, labels, ranked, counts, min(depths, default=_MOST))

    def _all_labels(self, known: Known, found: list[Ranked]) -> tuple[list[str], Any]:
        """Return the labels of all systems, beginning with the first model, and their training rows."""
        first = next((system for system in found if system.model is not None), None)
        labels = [] if first is None else first.labels
        if known.is_documents:
            more = [label for system in found for label in system.labels]
            if first is None or self.args.all_labels:
                more += sorted({label for row in known.truth for label in row})
            labels = list(dict.fromkeys([*labels, *more]))
        elif first is None:
            labels = self._classes_of(self.args.model, known, {}, 0)
        if first is None or first.model.label_counts_ is None:
            return labels, None
        counts: dict[str, int] = {}
        for system in found:
            if system.model is not None and system.model.label_counts_ is not None:
                counts = dict(zip(system.labels, system.model.label_counts_.tolist(), strict=True)) | counts
        return labels, np.array([counts.get(label, 0) for label in labels], np.int64)

    # Figures

    def _frequencies(self, compared: Compared, model: Any) -> tuple[Any, int] | None:
        """Return the training rows of each label and of all, as `metrics.evaluate` takes them."""
        if self.args.train is not None:
            expected = Expected(n_labels=len(compared.labels), owner=self.args.model)
            Y = self.inputs.labels(self.args, self.args.train, "trn", expected)
            return np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0]
        if compared.counts is None or model is None or model.n_rows_fit_ is None:
            return None
        return compared.counts, max(model.n_rows_fit_, int(compared.counts.max()))

    def _differences(
        self, compared: Compared, trained: tuple[Any, int] | None, cutoffs: Sequence[int]
    ) -> dict[str, dict[str, measure.Difference]]:
        """Return the differences of each system to the first one, by a paired bootstrap over rows."""
        A, B = _propensity.parameters(**{"A": 0.55, "B": 1.5} | self.propensity)
        q = None if trained is None else _propensity.from_counts(*trained, A, B)
        truth = Truth(compared.Y.indptr, compared.Y.indices, q=q)
        found = {
            name: measure.at(truth.rank(ids[:, : max(cutoffs)]), sorted(set(cutoffs)))
            for name, (ids, _) in compared.ranked.items()
        }
        rows = np.arange(truth.n_rows)
        (_, first), *others = found.items()
        return {name: measure.differences(first, other, rows, 0) for name, other in others}

    def _at_threshold(self, name: str, model: Any, ids: Any, scores: Any, Y: sp.csr_array) -> dict[str, Any]:
        """Return precision, recall and F1 of the labels that reach the threshold, and labels per row."""
        least: Any = self.args.threshold
        check("threshold", least)
        if model is None and isinstance(least, str):
            raise ValueError(f"--threshold {least} needs models; give a number for predictions in a file")
        if model is not None:
            least = models.threshold_of(least, model, name)
        if isinstance(least, np.ndarray):  # for the labels of the model, which come first
            least = np.append(least, np.full(max(0, int(ids.max(initial=0)) + 1 - len(least)), np.inf))
        ids, _ = select(ids, scores, least)
        right, found = is_true(Y, ids), ids[ids >= 0]
        hits, predicted, true = (
            np.bincount(part, minlength=Y.shape[1]) for part in (ids[right], found, Y.indices)
        )
        both = predicted + true
        macro = 2 * hits[both > 0] / both[both > 0]
        figures = (
            100 * hits.sum() / max(1, len(found)),
            100 * hits.sum() / max(1, Y.nnz),
            200 * hits.sum() / max(1, len(found) + Y.nnz),
            100 * macro.mean() if len(macro) else 0.0,
            len(found) / max(1, len(ids)),
        )
        shown = "per label" if isinstance(least, np.ndarray) else least
        return {"threshold": shown, **dict(zip(_AT_THRESHOLD, map(float, figures), strict=True))}

    def _show(
        self,
        results: dict[str, dict[str, Any]],
        differences: dict[str, dict[str, measure.Difference]] | None = None,
        at: dict[str, dict[str, Any]] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        args, differences, at = self.args, differences or {}, at or {}
        if not args.coverage:
            results = _without_coverage(results)
        alone = next(iter(results.values())) if len(results) == 1 else None
        if args.json:
            content: dict[str, Any] = {"results": results}
            content["differences"] = {
                name: {metric: asdict(one) for metric, one in found.items()}
                for name, found in differences.items()
            }
            content = content | (more or {}) if alone is None or more else alone
            if at:
                content["threshold"] = at if alone is None else next(iter(at.values()))
            text = json.dumps(content, indent=2)
        elif args.table is not None:
            text = format_cells(_cells(results, differences, at), args.table)
        else:
            text = "\n".join([metrics.format_table(alone or results), *_sentences(results, differences, at)])
            if args.report not in (None, "-"):
                text += f"\nreport: {args.report}"
        print(text, file=sys.stderr if args.report == "-" else sys.stdout)

    # In addition to the metrics

    def _report(self, compared: Compared, model: Any, Y_train: Any, notes: list[str]) -> dict[str, Any]:
        """Write a page about one or two systems, and return the figures that it adds to the metrics."""
        args, known = self.args, compared.known
        label_names, classes = None, model.classes_
        if known.is_documents:
            names = model.fitted_.labels.names or [""] * len(classes)
            of_label = dict(zip(map(str, classes.tolist()), names, strict=True))
            label_names = [of_label.get(label) or label for label in compared.labels]
            classes = np.array(compared.labels, object)
        made = metrics.Report(
            known.truth,
            compared.ranked,
            Y_train,
            k=[*(args.k or _CUTOFFS), _DEPTH],
            classes=classes,
            label_names=label_names,
            texts=known.texts,
            by=known.by,
            title=f"{' and '.join(compared.ranked)} on {os.path.basename(args.data)}",
            coverage=args.coverage,
            about=self._about(model),
            notes=notes,
            **self.propensity,
        )
        with writing(args.report) as file:
            file.write(made.to_html().encode())
        by = {
            name: {value: part["results"] | {"rows": part["rows"]} for value, part in found.items()}
            for name, found in made.by.items()
        }
        errors = {name: bins.error for name, bins in made.reliability.items()}
        counted = {"true_labels": made.n_true, "left_out_labels": made.left_out}
        return counted | {"by": by, "calibration_error": errors}

    def _about(self, model: Any) -> dict[str, str]:
        """Return the origin of the figures of a report."""
        args = self.args
        facts = describe(args.model, 0, model.fitted_, model.classifier_._prediction())
        usual = TextBonsai().get_params(deep=False) | type(model.classifier_)().get_params(deep=False)
        given = {name: value for name, value in facts["params"].items() if value != usual.get(name)}
        search = {name: getattr(args, name, None) for name in ("exact", "beam_size", "n_probe")}
        rows = "an unknown number of" if facts["rows"] is None else f"{facts['rows']:,}"
        about = {
            "Data": args.data,
            "Model": f"{args.model}: {facts['system']}, {facts['labels']:,} labels, trained on {rows} rows "
            f"by bonsai-xmc {model.fitted_.provenance.version}",
            "Parameters": ", ".join(f"{name}={value!r}" for name, value in given.items()) or "as by default",
            "Threshold": f"{facts['threshold']:.4g}",
            "Against": ", ".join(args.against),
            "Prediction": ", ".join(f"{name}={value!r}" for name, value in search.items() if value),
        }
        return {name: value for name, value in about.items() if value}

    def _tell(self, compared: Compared, model: Any, k: int) -> None:
        """Print the share of true labels that the model lacks, and the recall of labels with texts only."""
        if not compared.known.is_documents:
            return
        Y, total = compared.Y, sum(map(len, compared.known.truth))
        if total > Y.nnz:
            only_rows = bool(model.fitted_.label_counts.all())
            why = "do not occur in training" if only_rows else "have neither training rows nor texts"
            print(
                f"bonsai: warning: {self.inputs.name(self.args.data)}: {total - Y.nnz:,} of {total:,} true "
                f"labels ({100 * (total - Y.nnz) / total:.1f} %) {why}; the figures leave them out, see "
                "--all-labels",
                file=sys.stderr,
            )
        if compared.counts is None or self.args.all_labels or len(compared.ranked) > 1:
            return
        ids = next(iter(compared.ranked.values()))[0][:, :k]
        found = Truth(Y.indptr, Y.indices).rank(ids).among(compared.counts == 0)
        n_true = len(found.truth.indices)
        if n_true:
            print(
                f"bonsai: {n_true:,} of {Y.nnz:,} true labels have no training row, only texts: "
                f"R@{ids.shape[1]} is {100 * found.is_true.sum() / n_true:.1f} for these",
                file=sys.stderr,
            )


def _usual(most: int) -> list[int]:
    """Return the cutoffs of 1, 3 and 5 up to a maximum."""
    return [k for k in _CUTOFFS if k <= max(1, most)]


def _shown(document: Document, by: dict[str, list[str]], name: str) -> str:
    """Return the text of a document for examples, and append its values of the fields `by`."""
    if isinstance(document.text, str):
        if by:
            raise ValueError(f"{name} has no fields, so --by must not be given")
        return " ".join(document.text[:1000].split())
    for field, values in by.items():
        values.append(document.text[field])
    texts = [text for field, text in document.text.items() if text and field not in by]
    return " ".join(" — ".join(texts)[:1000].split())


def _sentences(results: dict[str, Any], differences: dict[str, Any], at: dict[str, Any]) -> Iterator[str]:
    """Yield the lines below the table of metrics."""
    for name, found in differences.items():
        yield f"\n{name} minus {next(iter(results))}, with 95 % intervals of a paired bootstrap over rows"
        for metric, one in found.items():
            yield f"{metric:<9} {one.value:+6.2f}  ({one.low:+.2f} to {one.high:+.2f})"
    for name, found in at.items():
        least = found["threshold"]
        shown = least if isinstance(least, str) else f"{least:.4g}"
        precision, recall, f1, macro, n_labels = (f"{found[figure]:.2f}" for figure in _AT_THRESHOLD)
        yield (
            f"\n{name + ', ' if len(at) > 1 else ''}threshold {shown}: {n_labels} labels a row, precision "
            f"{precision}, recall {recall}, F1 {f1} (macro {macro})"
        )


def _cells(results: dict[str, Any], differences: dict[str, Any], at: dict[str, Any]) -> list[list[str]]:
    """Return a table with a line for each metric and a column for each system and difference."""
    first, *_ = results
    number = lambda value: "–" if value is None else f"{value:.2f}"
    change = lambda one: "" if one is None else f"{one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})"
    lines = [["", *results, *(f"{name} − {first}" for name in differences)]]
    for metric in results[first]:
        figures = [number(found.get(metric)) for found in results.values()]
        lines.append([metric, *figures, *(change(found.get(metric)) for found in differences.values())])
    for name in _AT_THRESHOLD if at else ():
        figures = [number(found[name]) for found in at.values()]
        lines.append([f"{name} at the threshold", *figures, *[""] * len(differences)])
    return lines


def _without_coverage(results: dict[str, Any]) -> dict[str, Any]:
    of_coverage = tuple(f"{metric}@" for metric in COVERAGE)
    return {
        name: {metric: value for metric, value in found.items() if not metric.startswith(of_coverage)}
        for name, found in results.items()
    }


def _with_unknown(result: dict[str, Any], cutoffs: Sequence[int]) -> dict[str, Any]:
    """Return a result without training labels, where the metrics that need them are None."""
    every = [f"{name}@{k}" for name in METRICS for k in sorted(set(cutoffs))]
    known = {name: result.get(name) for name in every}
    return known | {name: value for name, value in result.items() if name not in known}


def _overlap(found: Any, wanted: Any) -> float:
    """Return the percentage of the labels in `wanted` that are in the same row of `found`."""
    hits = ((wanted[:, :, None] == found[:, None, :]) & (wanted >= 0)[:, :, None]).any(axis=2)
    return 100.0 * float(hits.sum()) / max(1, int((wanted >= 0).sum()))
