"""Parts of texts, one at a time: `python -m benchmarks.text_ablation tibkat-core default stems`.

One-vs-rest classifiers (C = 1) of 16,000 training rows are evaluated on others: for tibkat-core, 6,000 rows
of the training part; for eurlex57k, dev. Texts are changed before they are vectorised: "stems" puts the stems
of all words beside them, "stems-alone" in their place (both need snowballstemmer); "compounds" puts both
parts of a long word beside it where these are words themselves; "title-twice" counts words of the title two
times more; "beginning" has a block of the first 50 words after the title. "C=2" is another C.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import Bonsai, TextVectorizer, metrics

from .texts import SETS, read

N_TRAINING, N_OTHERS = 16_000, 6_000
WORD = re.compile(r"\w\w+")
Change = Callable[[str, str], str]  # of a text and its language


def sample(name: str) -> tuple[list[Any], list[Any]]:
    """(text, labels, language) of the rows to train on, and of the others."""
    rows = list(zip(*read(name, "train"), strict=True))
    order = np.random.default_rng(5).permutation(len(rows))
    training = [rows[i] for i in np.sort(order[:N_TRAINING])]
    if name == "eurlex57k":
        return training, list(zip(*read(name, "dev"), strict=True))
    return training, [rows[i] for i in np.sort(order[N_TRAINING : N_TRAINING + N_OTHERS])]


def stems(beside: bool) -> Change:
    import snowballstemmer

    stemmers = {code: snowballstemmer.stemmer(name) for code, name in (("de", "german"), ("en", "english"))}

    def change(text: str, language: str) -> str:
        stemmed = " ".join(stemmers.get(language, stemmers["en"]).stemWords(WORD.findall(text.lower())))
        return f"{text} {stemmed}" if beside else stemmed

    return change


def compounds(texts: Sequence[str]) -> Change:
    """A long word is split where both parts occur in five texts or more; the rarer part decides."""
    counts = Counter(word for text in texts for word in set(WORD.findall(text.lower())))
    known = {word: n for word, n in counts.items() if n >= 5 and len(word) >= 4}
    found: dict[str, list[str]] = {}

    def split(word: str) -> list[str]:
        pairs = [
            (word[:i].removesuffix(link), word[i:])
            for i in range(4, len(word) - 3)
            for link in ("", "s", "es", "n", "en")
        ]
        both = [pair for pair in pairs if pair[0] in known and pair[1] in known]
        return list(max(both, key=lambda pair: min(known[pair[0]], known[pair[1]]), default=()))

    def change(text: str, language: str) -> str:
        words = WORD.findall(text.lower())
        for word in words:
            if len(word) >= 9 and language != "en" and word not in found:
                found[word] = split(word)
        return " ".join([text, *(part for word in words for part in found.get(word, ()))])

    return change


def unchanged(text: str, language: str) -> str:
    return text


def matrices(name: str, variant: str, parts: tuple[list[Any], list[Any]]) -> tuple[Any, Any]:
    """X of the rows to train on, and of the others."""
    fields = SETS[name][0]
    weights = {"joined": 1.0, "pairs": 0.3, "characters": 0.7, "beginning": 0.0, "words": 0.0}
    weights |= {
        "words": {"pairs": 0.0, "characters": 0.0},
        "title-words": {"pairs": 0.0, "characters": 0.0, "words": 0.5},
        "no-characters": {"characters": 0.0},
        "no-pairs": {"pairs": 0.0},
        "beginning": {"beginning": 0.4},
    }.get(variant, {})
    joined = [[" ".join(row[0].get(f) or "" for f in fields) for row in rows] for rows in parts]
    titles = [[row[0].get("title") or "" for row in rows] for rows in parts]
    rest = [
        [" ".join(" ".join(row[0].get(f) or "" for f in fields[1:]).split()[:50]) for row in rows]
        for rows in parts
    ]
    if variant == "title-twice":
        joined = [
            [f"{t} {t} {j}" for t, j in zip(*both, strict=True)] for both in zip(titles, joined, strict=True)
        ]
    change = {
        "stems": lambda: stems(True),
        "stems-alone": lambda: stems(False),
        "compounds": lambda: compounds(joined[0]),
    }
    changed = change.get(variant, lambda: unchanged)()
    joined = [
        [changed(t, row[2]) for t, row in zip(*both, strict=True)] for both in zip(joined, parts, strict=True)
    ]
    blocks = {
        "joined": (joined, {}),
        "pairs": (titles, {"word_ngrams": {2: 1.0}}),
        "characters": (titles, {"word_ngrams": None, "char_ngrams": 5}),
        "beginning": (rest, {}),
        "words": (titles, {}),
    }
    X: tuple[list[Any], list[Any]] = ([], [])
    for block, (texts, options) in blocks.items():
        if weights[block]:
            vectorizer = TextVectorizer(**options)  # type: ignore[arg-type]
            X[0].append(weights[block] * vectorizer.fit_transform(texts[0]))
            X[1].append(weights[block] * vectorizer.transform(texts[1]))
    return sp.hstack(X[0], format="csr"), sp.hstack(X[1], format="csr")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["tibkat-core", "eurlex57k"])
    parser.add_argument("variants", nargs="+")
    args = parser.parse_args()
    parts = sample(args.name)
    labels = [row[1] for row in parts[0]]
    for variant in args.variants:
        X, others = matrices(args.name, variant, parts)
        C = float(variant.removeprefix("C=")) if variant.startswith("C=") else 1.0
        begin = time.process_time()
        model = Bonsai(classifiers="one_vs_rest", C=C, threshold=0.5, n_jobs=2).fit(X, labels)
        cpu = time.process_time() - begin
        known = set(model.classes_.tolist())
        truth = [[label for label in row[1] if label in known] for row in parts[1]]
        figures = metrics.evaluate(truth, model.top_k(others, 5)[0], labels, k=(1, 5), classes=model.classes_)
        shown = {key: round(figures[key], 2) for key in ("P@1", "P@5", "PSP@5")}
        print(json.dumps({"data": args.name, "variant": variant, **shown, "cpu": round(cpu, 1)}), flush=True)


if __name__ == "__main__":
    main()
