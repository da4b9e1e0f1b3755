"""What ``bonsai evaluate`` measures: rankings of models and of files, beside the true labels of rows."""

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
from . import report as model_report
from .io import Inputs, writing
from .parser import OF_DOCUMENTS, OF_MODELS, refuse

_CUTOFFS = (1, 3, 5)
_DEPTH = 10  # labels of each row in a report
_MOST = 100  # labels of each row that a threshold chooses from
_UNKNOWN = (
    "the model does not know how frequent labels are in training, as it was imported: PSP, PSnDCG and C need "
    "--train, the training labels"
)


class Ranked(NamedTuple):
    """Rows with their best labels, as a model has predicted them, or as a file says."""

    rows: Sequence[int]  # by their numbers, rows of several systems belong together
    labels: list[str]  # what ids refer to
    ids: Any
    scores: Any
    model: Any = None  # None: predictions in a file


class Known(NamedTuple):
    """Rows and their true labels."""

    rows: Sequence[int]
    truth: Any  # lists of labels, or a matrix
    texts: list[str] | None = None
    by: dict[str, list[str]] = {}  # noqa: RUF012 (never changed)


class Compared(NamedTuple):
    """Several rankings of the same rows, over the same labels."""

    rows: list[int]  # places in `Known`
    labels: list[str]
    ranked: dict[str, tuple[Any, Any]]  # ids and scores by the name of the system
    counts: Any  # training rows of the labels; None: unknown
    depth: int  # labels that a row can have


@contextlib.contextmanager
def noting() -> Iterator[list[str]]:
    """Keep the messages that are printed meanwhile, for a report."""
    out, notes = sys.stderr, []

    class Noting:
        def write(self, text: str) -> int:
            if text.startswith("bonsai: "):
                notes.append(text.strip().removeprefix("bonsai: ").removeprefix("warning: "))
            return out.write(text)

        def __getattr__(self, name: str) -> Any:
            return getattr(out, name)

    sys.stderr = Noting()
    try:
        yield notes
    finally:
        sys.stderr = out


def run(args: argparse.Namespace, inputs: Inputs, notes: list[str]) -> None:
    """Evaluate one system, or several side by side."""
    paths = [args.model, *args.against]
    kinds = [predictions.kind_of(inputs, path) for path in paths]
    options: dict[str, Any] = {"dataset": args.dataset}
    if args.propensity is not None:
        options |= dict(zip("AB", args.propensity, strict=True))
    no_model = f"needs a model, but {args.model} holds predictions"
    if "model" not in kinds:
        refuse(args, OF_MODELS, no_model)
    if set(kinds) == {"model"}:
        refuse(args, ["classes"], "is for files of predictions, but there are none")
    if kinds == ["columns"] and args.threshold is None and not source.holds_documents(args, inputs):
        return _show(args, {args.model: _of_columns(args, inputs, options)})
    most = 1 if args.threshold is None else _MOST
    depth = max(most, *(args.k or _CUTOFFS), 1 if args.report is None else _DEPTH)
    known, found = _ranked(args, inputs, paths, kinds, depth)
    model = next((system.model for system in found if system.model is not None), None)
    if model is None:
        refuse(args, ["report"], no_model)
    if model is None and isinstance(known.truth, list):
        refuse(args, ["dataset", "propensity", "by_frequency"], no_model)
    unknown = model is not None and model.fitted_.imported and args.train is None
    if unknown and args.by_frequency:
        raise ValueError(f"--by-frequency: {_UNKNOWN}")
    compared = _together(args, inputs, known, _short(paths), found)
    Y, cutoffs = _truth_of(known, compared), _cutoffs(args, compared)
    Y_train = _training_labels(args, inputs, compared, model)
    results: dict[str, Any] = {
        name: metrics.evaluate(Y, ids, Y_train, cutoffs, by_frequency=args.by_frequency, **options)
        for name, (ids, _) in compared.ranked.items()
    }
    if args.exact:
        own = _of_model(args, inputs, args.model, depth)[1]
        for k in sorted(set(cutoffs)):
            results[_short(paths)[0]][f"found@{k}"] = _overlap(own.ids[:, :k], found[0].ids[:, :k])
    if unknown:
        results = {name: _with_unknown(result, cutoffs) for name, result in results.items()}
    differences = _differences(Y, compared, Y_train, cutoffs, options)
    at = {
        name: _at_threshold(args, name, system, ids, scores, Y)
        for (name, (ids, scores)), system in zip(compared.ranked.items(), found, strict=True)
        if args.threshold is not None
    }
    if model is not None:
        _tell(args, inputs.name(args.data), known, compared, Y, model, max(cutoffs))
    if unknown:
        print(f"bonsai: {_UNKNOWN}", file=sys.stderr)
    options |= {"notes": notes}
    more = {} if args.report is None else _report(args, known, compared, model, Y_train, options)
    _show(args, results, differences, at, more)


def _cutoffs(args: argparse.Namespace, compared: Compared) -> list[int]:
    """Those that were asked for; by default those of 1, 3 and 5 that make sense."""
    if args.k:
        return list(args.k)
    return [k for k in _CUTOFFS if k <= max(1, min(compared.depth, len(compared.labels)))]


# Rankings


def _ranked(
    args: argparse.Namespace, inputs: Inputs, paths: list[str], kinds: list[str], depth: int
) -> tuple[Known, list[Ranked]]:
    """The true labels, as the first model reads the file, and the rankings of all systems."""
    known: Known | None = None
    found: dict[int, Ranked] = {}
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        if kind == "model" or (i == 0 and kind not in ("labels", "columns")):
            of_path, found[i] = _of_model(args, inputs, path, depth, args.exact)
            known = known or of_path
        elif kind not in ("labels", "columns"):
            raise ValueError(
                f"--against needs a model, or predictions as JSON lines, CSV or TSV, but "
                f"{inputs.name(path)} is neither"
            )
    if known is None:
        known = _of_data(args, inputs)
    for i, path in enumerate(paths):
        if i not in found:
            found[i] = _of_file(args, inputs, path, known, found, depth)
    return known, [found[i] for i in range(len(paths))]


def _of_model(
    args: argparse.Namespace, inputs: Inputs, path: str, k: int, exact: bool = False
) -> tuple[Known, Ranked]:
    """The best labels of all rows, with the true ones."""
    model = models.load(args, inputs, path)
    k = min(k, len(model.classes_))
    by: dict[str, list[str]] = {name: [] for name in args.by or ()}
    rows = source.for_model(args, model, inputs, more=list(by))
    numbers: list[int] = []
    texts: list[str] = []
    truth: Any = []
    ids, scores = [np.empty((0, k), np.int32)], [np.empty((0, k), np.float32)]
    for part, of_part, values in models.rank(args, model, rows, k, exact):
        numbers += part.rows
        ids.append(of_part)
        scores.append(values)
        if part.documents is None:
            truth = part.Y
            continue
        truth += part.Y
        texts += [_shown(document, by, rows.name) for document in part.documents]
    if not numbers and isinstance(rows, source.Texts):
        raise ValueError(f"{args.data} holds no document with text and labels")
    labels = [str(label) for label in model.classes_.tolist()]
    ranked = Ranked(numbers, labels, np.concatenate(ids), np.concatenate(scores), model)
    return Known(numbers, truth, texts or None, by), ranked


def _shown(document: Document, by: dict[str, list[str]], name: str) -> str:
    """What examples show of a document; the values of `by` are noted."""
    if isinstance(document.text, str):
        if by:
            raise ValueError(f"{name} has no fields, so --by must not be given")
        return " ".join(document.text[:1000].split())
    for field, values in by.items():
        values.append(document.text[field])
    texts = [text for field, text in document.text.items() if text and field not in by]
    return " ".join(" — ".join(texts)[:1000].split())


def _of_data(args: argparse.Namespace, inputs: Inputs) -> Known:
    """The true labels without a model that says how to read them."""
    if source.holds_documents(args, inputs):
        truth = {document.line: document.labels for document in source.documents_of(args, inputs)}
        if not truth:
            raise ValueError(f"{inputs.name(args.data)} holds no document with text and labels")
        return Known(list(truth), list(truth.values()))
    refuse(args, OF_DOCUMENTS, f"is for documents, but {args.data} holds features")
    Y = inputs.labels(args, args.labels or args.data, args.split or args.usual_split, Expected())
    return Known(range(1, Y.shape[0] + 1), Y)


def _of_columns(args: argparse.Namespace, inputs: Inputs, options: dict[str, Any]) -> dict[str, Any]:
    """The metrics of one file that is a matrix, as the labels are: however large it is."""
    refuse(args, OF_DOCUMENTS, f"is for documents, but {args.data} holds features")
    ranked = predictions.read_columns(inputs, args.model)
    n_labels = ranked.shape[1]
    expected = Expected(n_labels=n_labels, owner=inputs.name(args.model))
    Y = inputs.labels(args, args.labels or args.data, args.split or args.usual_split, expected)
    Y_train = None if args.train is None else inputs.labels(args, args.train, "trn", expected)
    cutoffs = args.k or [k for k in _CUTOFFS if k <= max(1, n_labels)]
    return metrics.evaluate(Y, ranked, Y_train, cutoffs, by_frequency=args.by_frequency, **options)


def _of_file(
    args: argparse.Namespace, inputs: Inputs, path: str, known: Known, found: dict[int, Ranked], depth: int
) -> Ranked:
    """The predictions of any system in a file."""
    if predictions.kind_of(inputs, path) == "labels":
        rows = predictions.read_labels(inputs, path)
        labels = sorted({label for row in rows.values() for label, _ in row})
        place = {label: i for i, label in enumerate(labels)}
        k = max(1, min(depth, max(map(len, rows.values()), default=1)))
        ids, scores = np.full((len(rows), k), -1, np.int32), np.zeros((len(rows), k), np.float32)
        for i, entries in enumerate(rows.values()):
            for rank, (name, value) in enumerate(entries[:k]):
                ids[i, rank], scores[i, rank] = place[name], value
        return Ranked(list(rows), labels, ids, scores)
    file = predictions.read_columns(inputs, path)
    labels = _classes_of(args, inputs, path, known, found, file.shape[1])
    if len(labels) != file.shape[1]:
        raise ValueError(f"{inputs.name(path)} has {file.shape[1]:,} labels, but there are {len(labels):,}")
    numbers: Sequence[int] = known.rows
    if isinstance(known.truth, list):  # a row for each document, even for those without labels
        args = argparse.Namespace(**vars(args) | {"label_field": None})
        numbers = [document.line for document in source.documents_of(args, inputs, complete=False)]
    if len(numbers) != file.shape[0]:
        raise ValueError(f"{inputs.name(path)} has {file.shape[0]:,} rows, but {args.data} {len(numbers):,}")
    if isinstance(file, sp.csr_array):
        matrix = file.tocoo()
        row, label, score = matrix.row.astype(np.int64), matrix.col, matrix.data
    else:
        row, label, score = file.row, file.label, file.score
    return Ranked(numbers, labels, *best_first(row, label, score, len(numbers), depth))


def _classes_of(
    args: argparse.Namespace, inputs: Inputs, path: str, known: Known, found: dict[int, Ranked], n_labels: int
) -> list[str]:
    """What numbers of labels in a file mean."""
    if args.classes is None:
        model = next((system for system in found.values() if len(system.labels) == n_labels), None)
        if model is not None:
            return model.labels
        if not isinstance(known.truth, list):
            return [str(i) for i in range(known.truth.shape[1])]
        raise ValueError(
            f"{inputs.name(path)} holds numbers of labels, but documents have labels: --classes MODEL says "
            "what they mean"
        )
    kind = inputs.kind(args.classes)
    if kind == "model":
        return [str(label) for label in inputs.model(args.classes).classes_.tolist()]
    lines = models.lines_of(args.classes)
    return [str(json.loads(line)["label"]) if kind == "jsonl" else line for line, *_ in lines]


def _together(
    args: argparse.Namespace, inputs: Inputs, known: Known, names: list[str], found: list[Ranked]
) -> Compared:
    """The rows that all systems have, with numbers of labels that mean the same."""
    first = next((system for system in found if system.model is not None), None)
    labels = [] if first is None else list(first.labels)
    if isinstance(known.truth, list):
        more = [label for system in found for label in system.labels]
        if first is None or args.all_labels:
            more += sorted({label for row in known.truth for label in row})
        labels = list(dict.fromkeys([*labels, *more]))
    elif first is None and args.classes is not None:
        labels = _classes_of(args, inputs, args.model, known, {}, 0)
    elif first is None:
        labels = [str(i) for i in range(known.truth.shape[1])]
    counts: dict[str, int] | None = None if first is None or first.model.label_counts_ is None else {}
    for system in found:
        if counts is not None and system.model is not None and system.model.label_counts_ is not None:
            counts = dict(zip(system.labels, system.model.label_counts_.tolist(), strict=True)) | counts
    place = {label: i for i, label in enumerate(labels)}
    common = set(known.rows).intersection(*(system.rows for system in found))
    missing = next((row for row in known.rows if row not in common), None)
    if missing is not None and (len(found) == 1 or not common):
        raise ValueError(
            f"{inputs.name(args.against[0] if args.against else args.model)} has no predictions for row "
            f"{missing} of {inputs.name(args.data)}; are they those of another file?"
        )
    if missing is not None:
        print(
            f"bonsai: warning: {len(common):,} of {len(known.rows):,} rows have predictions of all systems; "
            "the figures are theirs",
            file=sys.stderr,
        )
    rows = [i for i, row in enumerate(known.rows) if row in common]
    ranked = {}
    for name, system in zip(names, found, strict=True):
        strange = next((label for label in system.labels if label not in place), None)
        if strange is not None:
            raise ValueError(
                f"{name}: the label {strange!r} is not the number of a column; --classes MODEL says what "
                "labels mean"
            )
        column = np.array([*(place[label] for label in system.labels), -1])  # −1 stays what it is
        at = {row: i for i, row in enumerate(system.rows)}
        chosen = [at[known.rows[i]] for i in rows]
        ranked[name] = column[system.ids[chosen]], system.scores[chosen]
    depths = [system.ids.shape[1] for system in found if len(found) > 1 or system.model is not None]
    of_labels = None if counts is None else np.array([counts.get(label, 0) for label in labels], np.int64)
    return Compared(rows, labels, ranked, of_labels, min(depths, default=_MOST))


def _short(paths: list[str]) -> list[str]:
    """Names for the systems, which differ."""
    for names in ([os.path.splitext(os.path.basename(path))[0] for path in paths], paths):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({i})" for i, path in enumerate(paths, 1)]


# Figures


def _truth_of(known: Known, compared: Compared) -> sp.csr_array:
    """The true labels of the rows that all systems have, but for those that no system knows."""
    if not isinstance(known.truth, list):
        return known.truth if len(compared.rows) == known.truth.shape[0] else known.truth[compared.rows]
    lists = [known.truth[i] for i in compared.rows]
    return sp.csr_array(over_classes(lists, np.array(compared.labels, object)))


def _training_labels(args: argparse.Namespace, inputs: Inputs, compared: Compared, model: Any) -> Any:
    if args.train is not None:
        expected = Expected(n_labels=len(compared.labels), owner=args.model)
        return inputs.labels(args, args.train, "trn", expected)
    if compared.counts is None or model is None or model.n_rows_fit_ is None:
        return None
    return models.same_frequencies(compared.counts, max(model.n_rows_fit_, int(compared.counts.max())))


def _differences(
    Y: sp.csr_array, compared: Compared, Y_train: Any, cutoffs: list[int], options: dict[str, Any]
) -> dict[str, dict[str, measure.Difference]]:
    """Of each system to the first one, by a paired bootstrap over rows."""
    if len(compared.ranked) < 2:
        return {}
    q = None
    if Y_train is not None:
        A, B = _propensity.parameters(options["dataset"], options.get("A", 0.55), options.get("B", 1.5))
        counts = np.asarray(Y_train.sum(axis=0)).ravel().astype(np.int64)
        q = _propensity.from_counts(counts, Y_train.shape[0], A, B)
    truth = Truth(Y.indptr, Y.indices, q=q)
    found = {
        name: measure.at(truth.rank(ids[:, : max(cutoffs)]), sorted(set(cutoffs)))
        for name, (ids, _) in compared.ranked.items()
    }
    (_, first), *others = found.items()
    return {name: measure.differences(first, other, np.arange(Y.shape[0]), 0) for name, other in others}


def _at_threshold(
    args: argparse.Namespace, name: str, system: Ranked, ids: Any, scores: Any, Y: sp.csr_array
) -> dict[str, Any]:
    """Precision, recall and F1 of all labels that reach the threshold, in percent, and how many these are."""
    check("threshold", args.threshold)
    if system.model is None and isinstance(args.threshold, str):
        raise ValueError(
            f"--threshold {args.threshold} needs models; give a number for predictions in a file"
        )
    least: Any = args.threshold
    if system.model is not None:
        least = models.threshold_of(args.threshold, system.model, name)
    if isinstance(least, np.ndarray):  # of the model's own labels, which come first
        least = np.append(least, np.full(max(0, int(ids.max(initial=0)) + 1 - len(least)), np.inf))
    ids, _ = select(ids, scores, least)
    right = is_true(Y, ids)
    n_right, n_found, n_true = int(right.sum()), int((ids >= 0).sum()), Y.nnz
    of_label = [np.bincount(part, minlength=Y.shape[1]) for part in (ids[right], ids[ids >= 0], Y.indices)]
    either = (of_label[1] + of_label[2]) > 0
    macro = 2 * of_label[0][either] / (of_label[1] + of_label[2])[either]
    return {
        "threshold": "per label" if isinstance(least, np.ndarray) else least,
        "precision": 100 * n_right / max(1, n_found),
        "recall": 100 * n_right / max(1, n_true),
        "f1": 200 * n_right / max(1, n_found + n_true),
        "macro_f1": 100 * float(macro.mean()) if len(macro) else 0.0,
        "labels_per_row": n_found / max(1, len(ids)),
    }


def _show(
    args: argparse.Namespace,
    results: dict[str, dict[str, Any]],
    differences: dict[str, dict[str, measure.Difference]] | None = None,
    at: dict[str, dict[str, Any]] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    differences, at = differences or {}, at or {}
    if not args.coverage:
        results = _without_coverage(results)
    out = sys.stderr if args.report == "-" else sys.stdout
    alone = next(iter(results.values())) if len(results) == 1 else None
    if args.json:
        content: dict[str, Any] = {
            "results": results,
            "differences": {
                name: {metric: asdict(one) for metric, one in found.items()}
                for name, found in differences.items()
            },
        }
        content = content | (more or {}) if alone is None or more else alone
        if at:
            content["threshold"] = at if alone is None else next(iter(at.values()))
        print(json.dumps(content, indent=2), file=out)
        return
    if args.table is not None:
        print(format_cells(_cells(results, differences, at), args.table))
        return
    print(metrics.format_table(alone or results), file=out)
    first = next(iter(results))
    for name, found in differences.items():
        print(f"\n{name} minus {first}, with 95 % intervals of a paired bootstrap over rows", file=out)
        for metric, one in found.items():
            print(f"{metric:<9} {one.value:+6.2f}  ({one.low:+.2f} to {one.high:+.2f})", file=out)
    for name, found_at in at.items():
        least, *figures = found_at.values()
        shown = least if isinstance(least, str) else f"{least:.4g}"
        precision, recall, f1, macro, n_labels = (f"{value:.2f}" for value in figures)
        print(
            f"\n{name + ', ' if len(at) > 1 else ''}threshold {shown}: {n_labels} labels a row, precision "
            f"{precision}, recall {recall}, F1 {f1} (macro {macro})"
        )
    if args.report is not None and args.report != "-":
        print(f"report: {args.report}")


def _cells(results: dict[str, Any], differences: dict[str, Any], at: dict[str, Any]) -> list[list[str]]:
    """A line for each metric, a column for each system, and one for each difference."""
    first, *_ = results
    lines = [["", *results, *(f"{name} − {first}" for name in differences)]]
    for metric in results[first]:
        line = [
            metric,
            *("–" if (value := found.get(metric)) is None else f"{value:.2f}" for found in results.values()),
        ]
        for found in differences.values():
            one = found.get(metric)
            line.append("" if one is None else f"{one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})")
        lines.append(line)
    for name in ("precision", "recall", "f1", "macro_f1", "labels_per_row") if at else ():
        figures = [f"{found[name]:.2f}" for found in at.values()]
        lines.append([f"{name} at the threshold", *figures, *[""] * len(differences)])
    return lines


def _report(
    args: argparse.Namespace,
    known: Known,
    compared: Compared,
    model: Any,
    Y_train: Any,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Write a page about one model, or about two side by side, with the warnings of this command.

    Return what it says beside the metrics.
    """
    texts = known.truth if isinstance(known.truth, list) else None
    label_names = None
    if texts is not None:
        names = model.fitted_.labels.names or [""] * len(model.classes_)
        of_label = {str(label): name for label, name in zip(model.classes_.tolist(), names, strict=True)}
        label_names = [of_label.get(label) or label for label in compared.labels]
    made = metrics.Report(
        _truth_of(known, compared) if texts is None else [texts[i] for i in compared.rows],
        compared.ranked,
        Y_train,
        k=[*(args.k or _CUTOFFS), _DEPTH],
        classes=np.array(compared.labels, object) if texts is not None else model.classes_,
        label_names=label_names,
        texts=None if known.texts is None else [known.texts[i] for i in compared.rows],
        by={name: [values[i] for i in compared.rows] for name, values in known.by.items()},
        title=f"{' and '.join(compared.ranked)} on {os.path.basename(args.data)}",
        coverage=args.coverage,
        about=_about(args, model),
        **options,
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


def _about(args: argparse.Namespace, model: Any) -> dict[str, str]:
    """Where the figures of a report come from."""
    facts = model_report.describe(args.model, 0, model.fitted_, model.classifier_._prediction())
    usual = TextBonsai().get_params(deep=False) | type(model.classifier_)().get_params(deep=False)
    given = {name: value for name, value in facts["params"].items() if value != usual.get(name)}
    search = {name: getattr(args, name, None) for name in ("exact", "beam_size", "n_probe")}
    rows = "an unknown number of" if facts["rows"] is None else f"{facts['rows']:,}"
    about = {
        "Data": args.data,
        "Model": f"{args.model}: {facts['system']}, {facts['labels']:,} labels, trained on {rows} rows by "
        f"bonsai-xmc {model.fitted_.provenance.version}",
        "Parameters": ", ".join(f"{name}={value!r}" for name, value in given.items()) or "as by default",
        "Threshold": f"{facts['threshold']:.4g}",
        "Against": ", ".join(args.against),
        "Prediction": ", ".join(f"{name}={value!r}" for name, value in search.items() if value),
    }
    return {name: value for name, value in about.items() if value}


# What is said beside the metrics


def _without_coverage(results: dict[str, Any]) -> dict[str, Any]:
    of_coverage = tuple(f"{metric}@" for metric in COVERAGE)
    return {
        name: {metric: value for metric, value in found.items() if not metric.startswith(of_coverage)}
        for name, found in results.items()
    }


def _with_unknown(result: dict[str, Any], cutoffs: list[int]) -> dict[str, Any]:
    """A result without training labels, where the metrics that need them are None."""
    every = [f"{name}@{k}" for name in METRICS for k in sorted(set(cutoffs))]
    known = {name: result.get(name) for name in every}
    return known | {name: value for name, value in result.items() if name not in known}


def _tell(
    args: argparse.Namespace,
    name: str,
    known: Known,
    compared: Compared,
    Y: sp.csr_array,
    model: Any,
    k: int,
) -> None:
    """Warn of true labels that the model does not have; say how it finds those that have texts alone."""
    if not isinstance(known.truth, list):
        return
    total = sum(len(known.truth[i]) for i in compared.rows)
    if total > Y.nnz:
        only_rows = bool(model.fitted_.label_counts.all())
        why = "do not occur in training" if only_rows else "have neither training rows nor texts"
        print(
            f"bonsai: warning: {name}: {total - Y.nnz:,} of {total:,} true labels "
            f"({100 * (total - Y.nnz) / total:.1f} %) {why}; the figures leave them out, see --all-labels",
            file=sys.stderr,
        )
    if compared.counts is None or args.all_labels or len(compared.ranked) > 1:
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


def _overlap(found: Any, wanted: Any) -> float:
    """Percentage of the labels in `wanted` that are in the same row of `found`."""
    hits = ((wanted[:, :, None] == found[:, None, :]) & (wanted >= 0)[:, :, None]).any(axis=2)
    return 100.0 * float(hits.sum()) / max(1, int((wanted >= 0).sum()))
