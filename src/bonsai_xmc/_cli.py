"""The command line ``bonsai train | predict | evaluate | info | experiment``: options become calls, no more.

Standard output holds results alone, standard error progress, warnings and at most one ``bonsai: error: …``.
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output went away.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import Bonsai, LabelTree, _files, _modelfile, datasets, metrics
from bonsai_xmc._arguments import PARAMETERS, make_parser
from bonsai_xmc._params import RULES, check_params
from bonsai_xmc._progress import ProgressBar

_REPRESENTATIONS = ("input", "output", "joint")
_ZIP = b"PK\x03\x04"  # what .npz files begin with


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``--help`` and wrong usage exit from within."""
    commands = {
        "train": _train,
        "predict": _predict,
        "evaluate": _evaluate,
        "info": _info,
        "experiment": _experiment,
    }
    args = make_parser().parse_args(argv)
    args.progress = ProgressBar(lines=False) if sys.stderr.isatty() and not args.quiet else None
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"bonsai: warning: {message}", file=sys.stderr)
            commands[args.command](args)
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _fail(args, "bonsai: interrupted", 130)
    except MemoryError as error:
        return _fail(args, f"bonsai: error: not enough memory ({_one_line(error)})", 1)
    except (ValueError, OSError, ImportError) as error:
        return _fail(args, f"bonsai: error: {_one_line(error)}", 1)
    return 0


def _fail(args: argparse.Namespace, line: str, code: int) -> int:
    if args.progress is not None:
        args.progress.finish()
    print(line, file=sys.stderr)
    return code


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _train(args: argparse.Namespace) -> None:
    _files.check_writable(args.output)
    model = _estimator(args)
    begin = time.perf_counter()
    columns = {"n_features": args.n_features, "n_labels": args.n_labels}
    X, Y = datasets.load_xc(args.data, args.labels, **_text_options(args), **columns)
    read = time.perf_counter() - begin
    estimate = model.memory_estimate(X, Y)
    if not args.quiet and not args.json:
        memory, disk = (_bytes(estimate[name]) for name in ("training_bytes", "model_bytes"))
        print(f"about {memory} of memory to train, about {disk} for the model", flush=True)
    if model.verbose and not args.quiet:
        args.progress = ProgressBar()
    model._fit(X, Y, progress=args.progress)
    fitted = time.perf_counter()
    model.save(args.output)
    seconds = {"reading": read, **model.timings_, "saving": time.perf_counter() - fitted}
    seconds["total"] = time.perf_counter() - begin
    report = _describe(args.output, model) | {"seconds": seconds, "estimate": estimate}
    if args.json:
        print(json.dumps(report, indent=2))
    elif not args.quiet:
        times = [(name, f"{value:,.2f} s") for name, value in seconds.items()]
        print(_table([*_rows_of(report), *times]))


def _predict(args: argparse.Namespace) -> None:
    if args.output is not None:
        _files.check_writable(args.output)
    model = _load_model(args)
    names = _label_names(args, model)
    X = _load_features(args, model.n_features_in_)
    ids, scores = _top_k(args, model, X, args.k)
    if args.json:
        rows = _json_rows(ids, scores, names)
        _write_lines(args.output, (json.dumps(row, ensure_ascii=False) for row in rows))
    elif names is not None and (args.names or args.label_names):
        _write_lines(args.output, _tsv_rows(ids, scores, names))
    elif args.output is not None:
        metrics.write_predictions(args.output, ids, scores, len(model.classes_))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "predictions")
            metrics.write_predictions(path, ids, scores, len(model.classes_))
            with open(path, "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


def _evaluate(args: argparse.Namespace) -> None:
    found: dict[str, float] = {}
    if _is_one_matrix(args.model):
        if args.exact:
            raise ValueError(f"--exact needs a model, but {args.model} holds predictions")
        predictions, Y, Y_train = _with_predictions(args)
    else:
        predictions, Y, Y_train, found = _with_model(args)
    if args.train is not None:
        Y_train = _load_labels(args, args.train, Y.shape[1], "trn")
    propensity = {} if args.propensity is None else dict(zip("AB", args.propensity, strict=True))
    options = {"dataset": args.dataset, "by_frequency": args.by_frequency, **propensity}
    result = metrics.evaluate(Y, predictions, Y_train, args.k, **options) | found
    print(json.dumps(result, indent=2) if args.json else metrics.format_table(result))


def _with_predictions(args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """What there is to evaluate: predictions, true labels, training labels."""
    header = _first_line(args.model)
    if header.startswith(_ZIP):
        scores = datasets.load_sparse(args.model)
        return scores, _load_labels(args, args.labels or args.data, scores.shape[1], args.split), None
    n_labels = int(header.split()[1]) if header.split()[1].isdigit() else None
    return args.model, _load_labels(args, args.labels or args.data, n_labels, args.split), None


def _with_model(args: argparse.Namespace) -> tuple[Any, Any, Any, dict[str, float]]:
    """The same for a model; with ``--exact`` also the share of the best labels that its search finds."""
    model = _load_model(args)
    columns = {"n_features": model.n_features_in_, "n_labels": len(model.classes_)}
    X, Y = datasets.load_xc(args.data, args.labels, **_text_options(args), **columns)
    ids, _ = _top_k(args, model, X, max(args.k))
    found = {}
    if args.exact:
        exact, _ = model._search(X, model._checked_k(max(args.k)), args.progress, exact=True)
        found = {f"found@{k}": _overlap(ids[:, :k], exact[:, :k]) for k in sorted(set(args.k))}
        ids = exact
    return ids, Y, _same_frequencies(model.label_counts_, model.n_rows_fit_), found


def _overlap(found: Any, wanted: Any) -> float:
    """Percentage of the labels in `wanted` that are in the same row of `found`."""
    hits = ((wanted[:, :, None] == found[:, None, :]) & (wanted >= 0)[:, :, None]).any(axis=2)
    return 100.0 * float(hits.sum()) / max(1, int((wanted >= 0).sum()))


def _info(args: argparse.Namespace) -> None:
    model = Bonsai.load(args.model, verify=args.verify)
    report = _describe(args.model, model) | {"verified": args.verify}
    if args.json:
        text = json.dumps(report, indent=2)
        if args.tree:  # `to_json` has no limit of depth, unlike the json module
            structures = ",\n".join(tree.to_json() for tree in model.trees_)
            text = text.removesuffix("\n}") + f',\n  "structures": [\n{structures}\n  ]\n}}'
        print(text)
        return
    rows = _rows_of(report)
    rows += [("verified", "checksums and contents")] if args.verify else []
    rows += [("", ""), *((name, json.dumps(value)) for name, value in report["params"].items())]
    print(_table(rows))
    if args.tree:
        for number, tree in enumerate(model.trees_, 1):
            print(f"\ntree {number}\n{tree.summary()}")


def _experiment(args: argparse.Namespace) -> None:
    from bonsai_xmc import experiments  # not needed by the other commands, and not small

    def tell(line: str) -> None:
        if not args.quiet:
            print(line, file=sys.stderr, flush=True)

    report = experiments.run(
        args.names,
        args.data,
        args.output,
        seeds=args.seeds,
        quick=args.quick,
        n_jobs=getattr(args, "n_jobs", None),
        report=tell,
        bar=args.progress,
    )
    print(json.dumps({"report": os.fspath(report)}) if args.json else report)


def _estimator(args: argparse.Namespace) -> Bonsai:
    """The estimator that preset, parameter file and options describe, the later of these winning."""
    given = {} if args.params is None else _read_params(args.params)
    given |= {name: value for name, value in vars(args).items() if name in PARAMETERS}
    if isinstance(given.get("tree"), str):
        given["tree"] = LabelTree.from_json(Path(given["tree"]))
    source = given.get("representation")
    if isinstance(source, str) and os.path.exists(source) and source not in _REPRESENTATIONS:
        given["representation"] = _load_vectors(source)
    model = Bonsai(**given) if args.preset is None else Bonsai.preset(args.preset, **given)
    check_params(model.get_params(deep=False))
    return model


def _load_vectors(path: str) -> Any:
    if not path.endswith(".npy"):
        return datasets.load_sparse(path)
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a matrix of numpy.save: {error}") from error


def _read_params(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"{path} does not hold a JSON object of parameters")
    for name in given:
        if name not in PARAMETERS:
            raise ValueError(f"{path}: unknown parameter {name!r}; there are {', '.join(PARAMETERS)}")
    return given


def _load_model(args: argparse.Namespace) -> Bonsai:
    model = Bonsai.load(args.model)
    for name in vars(args).keys() & {"beam_size", "n_jobs"}:
        holds, rule = RULES[name]
        if not holds(getattr(args, name)):
            raise ValueError(f"{name} is {getattr(args, name)!r}, but must be {rule}")
        model.set_params(**{name: getattr(args, name)})
    return model


def _top_k(args: argparse.Namespace, model: Bonsai, X: Any, k: int) -> tuple[Any, Any]:
    ids, scores = model._search(X, model._checked_k(k), args.progress)
    return ids, np.exp(scores)


def _text_options(args: argparse.Namespace) -> dict[str, Any]:
    return {"format": args.format, "base": args.base, "label_base": args.label_base, "split": args.split}


def _first_line(path: str) -> bytes:
    """The beginning of a file up to the first line end, decompressed; what cannot be read so far is empty."""
    try:
        with _files.opened(path) as file:
            return file.readline(4096)
    except ValueError:  # damaged gzip: whoever reads the whole file tells
        return b""


def _is_one_matrix(path: str) -> bool:
    """Whether a file holds features, labels or scores alone: a header of two numbers, or .npz."""
    if os.path.isdir(path):
        return False
    line = _first_line(path)
    return line.startswith(_ZIP) or (len(line.split()) == 2 and b":" not in line)


def _load_features(args: argparse.Namespace, n_features: int) -> Any:
    if _is_one_matrix(args.data):
        return _load_matrix(args.data, args.base, n_features)
    return datasets.load_xc(args.data, **_text_options(args), n_features=n_features)[0]


def _load_labels(args: argparse.Namespace, path: str, n_labels: int | None, split: str) -> Any:
    if _is_one_matrix(path):
        return _load_matrix(path, args.label_base, n_labels)
    return datasets.load_xc(path, **_text_options(args) | {"split": split}, n_labels=n_labels)[1]


def _load_matrix(path: str, base: Any, n_columns: int | None) -> Any:
    if base == 1:
        raise ValueError(f"{path} holds one matrix, and such files count from 0; its base cannot be 1")
    return datasets.load_sparse(path, n_columns=n_columns)


def _same_frequencies(counts: Any, n_rows: int) -> sp.csc_array:
    """Labels with the same frequencies as those that a model was trained on: all that propensities need."""
    indptr = np.concatenate([[0], np.cumsum(counts)])
    rows = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
    return sp.csc_array((np.ones(len(rows), np.float32), rows, indptr), shape=(n_rows, len(counts)))


def _label_names(args: argparse.Namespace, model: Bonsai) -> Sequence[str] | None:
    if args.label_names is None and model.classes_.dtype == object:
        return [str(name) for name in model.classes_]
    if args.label_names is None and args.names:
        raise ValueError(
            f"{args.model} has no label names; give a file with one on each line as --label-names"
        )
    if args.label_names is None:
        return None
    try:
        with open(args.label_names, encoding="utf-8") as file:
            names = [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{args.label_names} is not UTF-8 text: {error}") from error
    if len(names) < len(model.classes_):
        raise ValueError(
            f"{args.label_names} has {len(names):,} names, but {args.model} {len(model.classes_):,} labels"
        )
    return names


def _json_rows(ids: Any, scores: Any, names: Sequence[str] | None) -> Iterator[list[dict[str, Any]]]:
    for labels, values in zip(ids.tolist(), scores.tolist(), strict=True):
        pairs = [(label, value) for label, value in zip(labels, values, strict=True) if label >= 0]
        if names is None:
            yield [{"label": label, "score": value} for label, value in pairs]
        else:
            yield [{"label": label, "name": names[label], "score": value} for label, value in pairs]


def _tsv_rows(ids: Any, scores: Any, names: Sequence[str]) -> Iterator[str]:
    clean = str.maketrans("\t\r\n", "   ")
    for row in _json_rows(ids, scores, names):
        yield "\t".join(f"{entry['name'].translate(clean)}\t{entry['score']:.6g}" for entry in row)


def _write_lines(path: str | None, lines: Iterator[str]) -> None:
    with contextlib.ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        if path is not None:
            file = stack.enter_context(_files.replacing_text(path))
        for line in lines:
            file.write(line.encode() + b"\n")


def _describe(path: str, model: Bonsai) -> dict[str, Any]:
    file = _modelfile.read(path)
    return {
        "model": path,
        "format_version": file.version,
        "bytes": os.path.getsize(path),
        "rows": int(model.n_rows_fit_),
        "features": int(model.n_features_in_),
        "labels": len(model.classes_),
        "labels_with_rows": int(np.count_nonzero(model.label_counts_)),
        "named": bool(model.classes_.dtype == object),
        "classifiers": model.classifiers_,
        "search": model.search_,
        "trees": [
            {"nodes": tree.n_nodes, "leaves": tree.n_leaves, "depth": tree.depth, "labels": tree.n_labels}
            for tree in model.trees_
        ],
        "params": json.loads(file.metadata["params"]),
    }


_RANKED_BY = {
    ("leaf", "beam"): "leaf classifiers, found by beam search",
    ("one_vs_rest", "exact"): "one-vs-rest classifiers; all labels are scored",
    ("one_vs_rest", "beam"): "one-vs-rest classifiers; a beam search of the trees finds the candidates",
}


def _rows_of(report: dict[str, Any]) -> list[tuple[str, str]]:
    size = f"{report['model']}, {_bytes(report['bytes'])}"
    labels = f"{report['labels']:,}, {report['labels_with_rows']:,} of them with rows"
    return [
        ("model", size + f", format {report['format_version']}"),
        ("rows", f"{report['rows']:,}"),
        ("features", f"{report['features']:,}"),
        ("labels", labels + (", with names" if report["named"] else "")),
        ("ranked by", _RANKED_BY[report["classifiers"], report["search"]]),
        *(
            (f"tree {number}", f"{tree['nodes']:,} nodes, {tree['leaves']:,} leaves, depth {tree['depth']}")
            for number, tree in enumerate(report["trees"], 1)
        ),
    ]


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


if __name__ == "__main__":
    sys.exit(main())
