"""Parts of texts, one at a time: `python -m benchmarks.text_ablation tibkat-core default stems`.

One-vs-rest classifiers of 16,000 training rows are evaluated on others: for tibkat-core, 6,000 rows of the
training part; for eurlex57k, dev. --rows 0 trains on all other rows of the training part. Each variant
differs from the default as its name says; without names, all are measured. Variants whose name begins with
"n-grams" have words, bigrams and character 5-grams of the whole text instead: all of them, those that `fit`
selects, a half or a quarter of these, or as many of any document frequency ("n-grams-frequent").

"stems" puts the stems of all words beside them, "stems-alone" in their place (both need snowballstemmer);
"compounds" puts both parts of a long word beside it where these are words themselves; "title-twice" counts
words of the title two times more; "beginning" has a block of the first 50 words after the title.

--texts FILE writes the texts of the rows instead, for `benchmarks/sentences.py`, which makes vectors of them;
--vectors FILE has these as a further block in the variants "vectors=WEIGHT".
"""

import argparse
import json
import pathlib
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from bonsai_xmc import Bonsai, TextVectorizer, metrics
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._text.selection import best_columns

from .texts import SETS, as_annif, read

N_TRAINING, N_OTHERS = 16_000, 6_000
PER_ROW = 2.0  # n-grams of a block that are selected for each row, as max_ngrams="auto" has it
WORD = re.compile(r"\w\w+")
Change = Callable[[str, str], str]  # of a text and its language

# Blocks: of which text, with which options of the vectorizer.
BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "words": ("joined", {"word_ngrams": 1}),
    "title-words": ("title", {"word_ngrams": 1}),
    "pairs": ("title", {"word_ngrams": {2: 1.0}}),
    "triples": ("title", {"word_ngrams": {3: 1.0}}),
    "characters": ("title", {"word_ngrams": None, "char_ngrams": 5}),
    "characters-4": ("title", {"word_ngrams": None, "char_ngrams": 4}),
    "characters-6": ("title", {"word_ngrams": None, "char_ngrams": 6}),
    "beginning": ("beginning", {"word_ngrams": 1}),
    "rest": ("rest", {"word_ngrams": 1}),
    "bigrams": ("joined", {"word_ngrams": {2: 1.0}}),
    "joined-characters": ("joined", {"word_ngrams": None, "char_ngrams": 5}),
}
OWN = {"pairs": 0.3, "triples": 0.2, "characters": 0.7}
WHOLE = {"bigrams": 0.6, "joined-characters": 0.6}
USUAL_C = 1.5  # of several blocks; of words alone 1

# What a variant has beside words, and the options in which it differs.
VARIANTS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "words": ({}, {"C": 1.0}),
    "words-C=1.5": ({}, {}),
    "title-words": ({"title-words": 0.5}, {}),
    "title-pairs": ({"pairs": 0.3}, {}),
    "title-characters": ({"characters": 0.7}, {}),
    "no-triples": ({**OWN, "triples": 0.0}, {}),
    "default": (OWN, {}),
    "C=1": (OWN, {"C": 1.0}),
    "C=2": (OWN, {"C": 2.0}),
    "more-triples": ({**OWN, "pairs": 0.5, "triples": 0.5}, {}),
    "characters-4": ({**OWN, "characters": 0.0, "characters-4": 0.7}, {}),
    "characters-6": ({**OWN, "characters": 0.0, "characters-6": 0.7}, {}),
    "power=1.25": (OWN, {"power": 1.25}),
    "power=0.8": (OWN, {"power": 0.8}),
    "stems-alone": (OWN, {}),
    "stems": (OWN, {}),
    "compounds": (OWN, {}),
    "title-twice": (OWN, {}),
    "beginning": ({**OWN, "beginning": 0.4}, {}),
    "rest": ({**OWN, "rest": 0.3}, {}),
    "bigrams": ({**OWN, "bigrams": 0.5}, {"selected": PER_ROW}),
    "trees": (OWN, {"classifiers": "leaf", "C": 1.0}),
    "blend": (OWN, {"classifiers": "blend", "blend_weight": 0.2}),
    "n-grams-all": (WHOLE, {"C": 1.0}),
    "n-grams-frequent": (WHOLE, {"C": 1.0, "selected": PER_ROW, "frequent": True}),
    "n-grams": (WHOLE, {"C": 1.0, "selected": PER_ROW}),
    "n-grams-half": (WHOLE, {"C": 1.0, "selected": PER_ROW / 2}),
    "n-grams-quarter": (WHOLE, {"C": 1.0, "selected": PER_ROW / 4}),
}


def sample(name: str, n_training: int) -> tuple[list[Any], list[Any]]:
    """(text, labels, language) of the rows to train on (0: all), and of the others."""
    rows = list(zip(*read(name, "train"), strict=True))
    order = np.random.default_rng(5).permutation(len(rows))
    others = order[:0] if name == "eurlex57k" else order[N_TRAINING : N_TRAINING + N_OTHERS]
    training = np.sort(order[:n_training]) if n_training else np.setdiff1d(order, others)
    held_out = [rows[i] for i in np.sort(others)] or list(zip(*read(name, "dev"), strict=True))
    return [rows[i] for i in training], held_out


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


class Texts:
    """The texts of a set's rows, and their blocks as far as they were needed; training rows come first."""

    def __init__(self, name: str, n_training: int) -> None:
        parts = sample(name, n_training)
        self.n_training = len(parts[0])
        self.labels, self.truth = ([row[1] for row in rows] for rows in parts)
        rows = [*parts[0], *parts[1]]
        fields = SETS[name][0]
        self._languages = [row[2] for row in rows]
        title, *others = ([row[0].get(field) or "" for row in rows] for field in fields)
        rest = [" ".join(texts) for texts in zip(*others, strict=True)]
        self.joined = [f"{t} {r}" for t, r in zip(title, rest, strict=True)]
        beginning = [" ".join(text.split()[:50]) for text in rest]
        self._texts = {"title": title, "joined": self.joined, "rest": rest, "beginning": beginning}
        self._blocks: dict[Any, Any] = {}

    def _changed(self, variant: str) -> list[str]:
        """The joined text, as a variant has it."""
        if variant == "title-twice":
            return [f"{t} {t} {j}" for t, j in zip(self._texts["title"], self.joined, strict=True)]
        if variant == "compounds":
            change = compounds(self.joined[: self.n_training])
        elif variant.startswith("stems"):
            change = stems(variant == "stems")
        else:
            return self.joined
        return [change(text, code) for text, code in zip(self.joined, self._languages, strict=True)]

    def block(self, variant: str, name: str, power: float, selected: float | None, frequent: bool) -> Any:
        """Unit rows; n-grams of the joined text are selected."""
        source, options = BLOCKS[name]
        changed = variant if name == "words" else ""
        key = (changed if changed in CHANGED else "", name, power, selected, frequent)
        if key not in self._blocks:
            texts = self._changed(changed) if source == "joined" else self._texts[source]
            vectorizer = TextVectorizer(**options, power=power)
            X = vectorizer.fit_transform(texts[: self.n_training])
            others = vectorizer.transform(texts[self.n_training :])
            if selected and source == "joined" and name != "words":
                keep = self._best(X, int(selected * self.n_training), frequent)
                X, others = normalize(X[:, keep]), normalize(others[:, keep])
            self._blocks[key] = X, others
        return self._blocks[key]

    def _best(self, X: Any, selected: int, frequent: bool) -> Any:
        if not frequent:
            return best_columns(X, labels_of(self.labels), selected)
        from bonsai_xmc._text.selection import label_scores

        scores = label_scores(X, labels_of(self.labels))
        return np.sort(np.argsort(-scores, kind="stable")[:selected])


CHANGED = ("title-twice", "compounds", "stems", "stems-alone")


def matrices(texts: Texts, variant: str, vectors: Any) -> tuple[Any, Any, dict[str, Any]]:
    """X of the rows to train on, of the others, and the parameters of the classifiers."""
    weight = float(variant.removeprefix("vectors=")) if variant.startswith("vectors=") else 0.0
    own, options = VARIANTS["default" if weight else variant]
    params = {"classifiers": "one_vs_rest", "C": USUAL_C, **options}
    selection = params.pop("power", 1.0), params.pop("selected", None), params.pop("frequent", False)
    parts: tuple[list[Any], list[Any]] = ([], [])
    for name, factor in {"words": 1.0, **own}.items():
        if factor:
            for part, X in zip(parts, texts.block(variant, name, *selection), strict=True):
                part.append(factor * X)
    if weight:
        n = texts.n_training
        for part, X in zip(parts, (vectors[:n], vectors[n:]), strict=True):
            part.append(sp.csr_array(weight * X))
    X, others = (sp.csr_array(sp.hstack(part, format="csr", dtype=np.float32)) for part in parts)
    return X, others, params


def measure(texts: Texts, variant: str, vectors: Any) -> dict[str, Any]:
    X, others, params = matrices(texts, variant, vectors)
    begin = time.process_time()
    model = Bonsai(**params, threshold=0.5, n_jobs=2).fit(X, texts.labels)
    cpu = time.process_time() - begin
    ids = model.top_k(others, 10)[0]
    known = set(model.classes_.tolist())
    truth = [[label for label in row if label in known] for row in texts.truth]
    figures = metrics.evaluate(truth, ids, texts.labels, k=(1, 5), classes=model.classes_)
    ranked = [[model.classes_[i] for i in row if i >= 0] for row in ids.tolist()]
    figures = {key: figures[key] for key in ("P@1", "P@5", "PSP@5")} | as_annif(ranked, texts.truth)
    shown = {key: round(value, 2) for key, value in figures.items()}
    return {**shown, "features": X.shape[1], "entries": X.nnz, "cpu": round(cpu, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["tibkat-core", "eurlex57k"])
    parser.add_argument("variants", nargs="*", help=f"vectors=WEIGHT, {', '.join(VARIANTS)}")
    parser.add_argument("--rows", type=int, default=N_TRAINING, help="to train on; 0: all (16,000)")
    parser.add_argument("--texts", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--vectors", type=pathlib.Path, metavar="FILE")
    args = parser.parse_intermixed_args()  # options may come before the variants
    texts = Texts(args.name, args.rows)
    if args.texts:
        args.texts.write_text(json.dumps(texts.joined))
        return
    vectors = np.load(args.vectors) if args.vectors else None
    for variant in args.variants or VARIANTS:
        print(
            json.dumps({"data": args.name, "variant": variant, **measure(texts, variant, vectors)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
