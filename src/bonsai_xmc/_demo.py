"""The demonstration: generate texts, train, evaluate, save and load a model, suggest and explain labels."""

import os
import sys
import tempfile
import textwrap
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import TextBonsai, __version__, datasets, metrics

WIDTH = 88
K = 5
EXAMPLE = 7  # of the training texts
EXPLANATION = 14  # lines shown
BOLD, ITALIC, GREEN = "1", "3", "32"

# Texts written by hand with words of the generator's themes, and with many words that are not in the model.
# They are illustrations; the table on the test texts has the accuracy.
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
    """Run the demonstration, and return its figures."""
    heading(f"bonsai-xmc {__version__} on generated texts")
    data = datasets.make_texts(10_000, n_test=2_000, random_state=0)
    labels_per_text = sum(map(len, data.labels_train)) / len(data.labels_train)
    print(f"{len(data.texts_train):,} texts to train on and {len(data.texts_test):,} to test with")
    print(f"{len(data.label_names):,} labels, {labels_per_text:.1f} of them on a text; for example\n")
    show_text(data.texts_train[EXAMPLE], data.labels_train[EXAMPLE])

    heading("Training: TextBonsai().fit(texts, labels)")
    begin = time.perf_counter()
    model = TextBonsai().fit(data.texts_train, data.labels_train, progress=verbose)
    trained = time.perf_counter() - begin
    for name, n_features, _ in model.blocks_:
        print(f"{n_features:>7,} features of {name}")
    print(f"{model.classifiers_} classifiers ({model.strategy_.reason.partition(';')[0]}), {trained:.1f} s")

    heading(f"Quality on the {len(data.texts_test):,} test texts, in percent")
    begin = time.perf_counter()
    ids, _ = model.top_k(data.texts_test, K)
    seconds = time.perf_counter() - begin
    report: dict[str, Any] = {"seconds": trained, "metrics": show_quality(model, ids, data)}
    print(f"\n{1e6 * seconds / len(ids):.0f} µs for the {K} best labels of a text")

    heading("Saved and loaded")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "demo.bonsai")
        model.save(path)
        begin = time.perf_counter()
        model = TextBonsai.load(path)
        milliseconds = 1e3 * (time.perf_counter() - begin)
        verdict = "the same" if np.array_equal(model.top_k(data.texts_test, K)[0], ids) else "OTHER"
        size = os.path.getsize(path) / 1e6
        print(f"{size:.1f} MB in one file, loaded in {milliseconds:.1f} ms, {verdict} predictions")

        heading("Predictions for texts written by hand: model.suggest(texts)")
        predictions = model.suggest([text for text, _ in NEW_TEXTS], K)
        for (text, labels), found in zip(NEW_TEXTS, predictions, strict=True):
            show_text(text, labels)
            show_predictions(found, labels)

        text, (label, *_) = NEW_TEXTS[0]
        heading(f'Why "{label}"? model.explain(text, "{label}")')
        print("\n".join(str(model.explain(text, label)).splitlines()[:EXPLANATION]))

    heading("Your own documents")
    print("bonsai train documents.csv -o model.bonsai   # finds columns of texts and labels")
    print("bonsai serve model.bonsai                    # a page to try it, and HTTP")
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


def show_quality(model: TextBonsai, ids: npt.NDArray[Any], data: datasets.TextDataset) -> dict[str, Any]:
    results = metrics.evaluate(data.labels_test, ids, data.labels_train, classes=model.classes_)
    shown = {name: value for name, value in results.items() if name.startswith(("P@", "nDCG@", "PSP@"))}
    print(metrics.format_table(shown))
    return results


def bar(score: float, width: int = 40) -> str:
    """Return a bar in steps of an eighth of a character."""
    whole, rest = divmod(round(8 * width * score), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text
