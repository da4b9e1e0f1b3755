"""``bonsai demo``: from texts to labels in under a minute.

Generates texts, trains, measures, saves, loads, and shows what comes out.
"""

import os
import sys
import tempfile
import textwrap
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer

from bonsai_xmc import Bonsai, LabelTree, __version__, datasets, metrics

WIDTH = 88
K = 5
EXAMPLE = 7  # of the training texts
BOLD, ITALIC, GREEN = "1", "3", "32"

# Written by hand around words of the generator's themes, in whole sentences with many words that the model
# has never seen. Chosen to be read, not to measure: the table on the test texts does that.
NEW_TEXTS = [
    (
        "My grandfather's juniper has lived in the same shallow pot for forty years. Every spring he takes "
        "the shears, strokes the moss, walks once around the trunk and looks at the buds for an hour. Then "
        "he makes three small cuts. He calls it patience; my grandmother calls it hiding.",
        ["bonsai", "bonsai pruning"],
    ),
    (
        "Somewhere behind Vienna I gave up on my novels, shared the last sandwiches with two strangers and "
        "climbed into the upper of the bunks. I woke at dawn, and the windows were full of landscapes.",
        ["night train", "night train journeys"],
    ),
    (
        "Since we hung two boxes in the barns, the mice are worried. At dusk there are hoots, in the morning "
        "there are pellets, and since Tuesday, if you listen closely, there are fledglings.",
        ["owl", "owl nesting"],
    ),
    (
        "The starter came over with emigrants, in a jar between two shirts. For three centuries the "
        "grandmothers of this valley have fed it rye and water, and no two agree about the crust.",
        ["sourdough", "sourdough history"],
    ),
    (
        "The keepers had been gone for years, yet the logbooks say that on nights of fog the lanterns "
        "burned. In the taverns they blame ghosts; the captains just keep away from the rocks.",
        ["lighthouse", "lighthouse stories"],
    ),
    (
        "Rain, cigarettes, a voice-over that knows more than its detectives: the critics gave it four stars "
        "after the premieres. I fell asleep before the betrayal, which the newspapers call disappointment.",
        ["film noir", "film noir reviews"],
    ),
    (
        "Moths have been at the elbows again. While I look for yarn and needles, as darning these holes is "
        "cheaper than new sleeves, somebody outside with a red breast defends his territories: two spades "
        "and a heap of worms.",
        ["sweater mending", "robin"],
    ),
]


def main(verbose: bool = True) -> dict[str, Any]:
    """Run the demonstration; returns its figures."""
    heading(f"bonsai-xmc {__version__} on generated texts")
    data = datasets.make_texts(20_000, n_test=4_000, random_state=0)
    labels_per_text = sum(map(len, data.labels_train)) / len(data.labels_train)
    print(f"{len(data.texts_train):,} texts to train on and {len(data.texts_test):,} to test with")
    print(f"{len(data.label_names):,} labels, {labels_per_text:.1f} of them on a text; for example\n")
    show_text(data.texts_train[EXAMPLE], data.labels_train[EXAMPLE])

    heading("Training")
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", dtype=np.float32)
    X_train, X_test = vectorizer.fit_transform(data.texts_train), vectorizer.transform(data.texts_test)
    begin = time.perf_counter()
    model = Bonsai.preset("bonsai-i", verbose=int(verbose)).fit(
        X_train, data.labels_train
    )  # names in, names out
    trained = time.perf_counter() - begin
    classifiers = sum(len(tree.arrays["children"]) for tree in model.trees_)
    print(f"{len(model.trees_)} trees, {classifiers:,} linear classifiers, {trained:.1f} s")

    heading("The first tree")
    show_tree(model.trees_[0])

    heading(f"Quality on the {len(data.texts_test):,} test texts, in percent")
    begin = time.perf_counter()
    ids, _ = model.top_k(X_test, K)
    seconds = time.perf_counter() - begin
    report: dict[str, Any] = {"seconds": trained, "metrics": show_quality(model, ids, data)}
    print(f"\n{1e6 * seconds / len(ids):.0f} µs for the {K} best labels of a text")

    heading("Saved and loaded")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demo.bonsai")
        model.save(path)
        begin = time.perf_counter()
        model = Bonsai.load(path)
        milliseconds = 1e3 * (time.perf_counter() - begin)
        verdict = "the same" if np.array_equal(model.top_k(X_test, K)[0], ids) else "OTHER"
        size = os.path.getsize(path) / 1e6
        print(f"{size:.1f} MB in one file, loaded in {milliseconds:.1f} ms, {verdict} predictions")

        heading("Predictions for texts written by hand")
        predictions = model.top_k_labels(vectorizer.transform([text for text, _ in NEW_TEXTS]), K)
    for (text, labels), found in zip(NEW_TEXTS, predictions, strict=True):
        show_text(text, labels)
        show_predictions(found, labels)
    right = sum(
        name in labels for (_, labels), found in zip(NEW_TEXTS, predictions, strict=True) for name, _ in found
    )
    return report | {"same predictions": verdict == "the same", "labels found": right}


def heading(text: str) -> None:
    print(f"\n{paint(text, BOLD)}\n{'─' * WIDTH}", flush=True)


def show_text(text: str, labels: list[str]) -> None:
    print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))
    print(paint(f"  → {', '.join(labels)}", ITALIC))


def show_predictions(predictions: list[tuple[str, float]], labels: list[str]) -> None:
    print()
    for name, score in predictions:
        line = f"  {'✓' if name in labels else ' '} {name:<27} {score:4.2f} {bar(score)}"
        print(paint(line, GREEN) if name in labels else line)
    print()


def show_tree(tree: LabelTree) -> None:
    print(tree.summary())
    branches = sorted(tree.nodes[0].children, key=lambda node: -node.size)
    print(f"\nThe largest of its {len(branches)} branches, and some others:")
    for node in branches[:: len(branches) // 6]:
        names = textwrap.shorten(", ".join(subjects(node.names)), WIDTH - 13, placeholder=" …")
        print(f"  {node.size:2d} labels: {names}")


def subjects(names: list[str]) -> list[str]:
    """Names that do not merely add to another one: "owl" instead of "owl", "owl nesting", "owl song"."""
    return [name for name in names if not any(name.startswith(f"{other} ") for other in names)]


def show_quality(model: Bonsai, ids: npt.NDArray[Any], data: datasets.TextDataset) -> dict[str, Any]:
    results = metrics.evaluate(data.labels_test, ids, data.labels_train, classes=model.classes_)
    shown = {name: value for name, value in results.items() if name.startswith(("P@", "nDCG@", "PSP@"))}
    print(metrics.format_table(shown))
    return results


def bar(score: float, width: int = 40) -> str:
    """Eighths of a character make small scores visible."""
    whole, rest = divmod(round(8 * width * score), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text
