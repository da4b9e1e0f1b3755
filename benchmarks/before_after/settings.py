"""Digests of the tensors and predictions of many settings: to show that a change leaves models as they are.

    .venv/bin/python -m benchmarks.before_after settings > new.json          # in this checkout
    ../old/.venv/bin/python -m benchmarks.before_after settings > old.json   # in the other one
    .venv/bin/python -m benchmarks.before_after settings --compare old.json new.json

Data are generated and small; kernels are the portable ones, unless BONSAI_ISA says otherwise.
"""

import argparse
import hashlib
import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai, TextBonsai, datasets

_RECORDS = 300


def matrix_settings() -> dict[str, dict[str, Any]]:
    """Return parameters of `Bonsai` by the name of the setting."""
    names = ("bonsai-i", "bonsai-o", "bonsai-io", "parabel", "parabel-o", "balanced", "dismec")
    settings = {name: Bonsai.preset(name).get_params(deep=False) for name in names}
    own: dict[str, dict[str, Any]] = {
        "default": {},
        "one-vs-rest": {"classifiers": "one_vs_rest"},
        "index": {"classifiers": "one_vs_rest", "search": "index", "n_probe": 2},
        "blend": {"classifiers": "blend", "blend_weight": 0.4, "C": 1.0, "logit_adjustment": 0.0},
        "blend, index": {
            **{"classifiers": "blend", "blend_weight": 0.4, "C": 1.0, "logit_adjustment": 0.0},
            **{"search": "index", "n_probe": 2},
        },
        "adjusted": {"classifiers": "one_vs_rest", "logit_adjustment": 0.2},
        "newton": {"classifiers": "leaf", "solver": "newton"},
        "bounded": {"classifiers": "leaf", "balance": "bounded", "branching_factor": 8},
        "deep": {"classifiers": "leaf", "branching_factor": 4, "max_depth": None, "max_leaf_size": 6},
        "no tail": {"classifiers": "one_vs_rest", "tail_exponent": 0.0, "prune": 0.0},
        "raw rows": {"classifiers": "one_vs_rest", "normalize": False},
        "another seed": {"classifiers": "leaf", "random_state": 7},
    }
    return settings | own


def text_settings() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return parameters of `TextBonsai` and of its classifier by the name of the setting."""
    words = {"word_ngrams": 1, "char_ngrams": None}
    return {
        "texts, words": (words, {}),
        "texts, n-grams": ({"word_ngrams": {1: 1.0, 2: 0.5}, "char_ngrams": {4: 0.3}}, {"C": 1.0}),
        "texts, fields": ({"fields": ["title", "abstract"]}, {"classifiers": "one_vs_rest"}),
        "texts, trees": (words, {"classifiers": "leaf", "branching_factor": 5}),
        "texts of labels": (words | {"label_texts": "labels"}, {"classifiers": "one_vs_rest"}),
    }


def text_model(texts: dict[str, Any], classifier: dict[str, Any]) -> TextBonsai:
    if "classifier" in inspect.signature(TextBonsai).parameters:
        return TextBonsai(**texts, classifier=Bonsai(**classifier))
    return TextBonsai(**texts, **classifier)


def found() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (setting, {"tensors": digest, "predictions": digest})."""
    data = datasets.make_xmc(n_rows=1500, n_test=200, n_features=600, n_labels=120, random_state=3)
    for name, params in matrix_settings().items():
        yield name, digests(Bonsai(**params).fit(data.X_train, data.Y_train), data.X_test)
    dense = np.asarray(data.X_train[:, :80].toarray()) + 0.01
    model = Bonsai(classifiers="leaf", prune=0.0).fit(dense, data.Y_train)
    yield "dense rows", digests(model, dense[:100])
    with tempfile.TemporaryDirectory() as folder:
        model = Bonsai(classifiers="blend").fit(data.X_train, data.Y_train, checkpoint=f"{folder}/c")
        yield "checkpoint", digests(model, data.X_test)
    kept = Bonsai(classifiers="one_vs_rest").fit(data.X_train[:1200], data.Y_train[:1200], keep_rows=True)
    yield "learnt", digests(kept.learn(data.X_train[1200:], data.Y_train[1200:]), data.X_test)
    texts = datasets.make_texts(_RECORDS, n_test=50, random_state=3)
    records = [{"title": text[:40], "abstract": text} for text in texts.texts_train]
    labels = sorted({label for row in texts.labels_train for label in row})
    for name, (params, classifier) in text_settings().items():
        if params.get("label_texts"):
            params = params | {"label_texts": {label: label for label in labels} | {"new": "heat"}}
        rows: Any = records if "fields" in params else texts.texts_train
        test: Any = records[:50] if "fields" in params else texts.texts_test
        yield name, digests(text_model(params, classifier).fit(rows, texts.labels_train), test)


def digests(model: Any, X: Any) -> dict[str, str]:
    """Return digests of the tensors in the model file and of the predictions."""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bonsai"
        model.save(path)
        tensors = load_file(path)
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        state.update(np.ascontiguousarray(tensors[name]).tobytes())
    ids, scores = model.top_k(X, 5)
    predictions = hashlib.sha256(np.ascontiguousarray(ids).tobytes() + scores.tobytes())
    return {"tensors": state.hexdigest()[:16], "predictions": predictions.hexdigest()[:16]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    args = parser.parse_args()
    if args.compare:
        old, new = (json.loads(Path(path).read_text()) for path in args.compare)
        differ = {name: (old[name], new[name]) for name in old if name in new and old[name] != new[name]}
        print(f"{len(old.keys() & new.keys())} settings, {len(differ)} differ")
        for name, (before, after) in differ.items():
            print(f"{name}: {', '.join(kind for kind in before if before[kind] != after[kind])}")
        sys.exit(bool(differ))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(dict(found()), indent=1))


if __name__ == "__main__":
    main()
