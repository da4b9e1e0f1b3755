"""Generated texts that people can read, with labels that they can verify."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from ._labels import LabelSets, zipf_weights
from ._types import TextDataset

_LABELS_PER_ROW = 2.2
_SUBJECT_ALONE = 3  # times as frequent as one with an aspect
_LABEL_NOISE = 0.04  # share of the texts that are about other labels
_MAIN = 0.35  # share of the words that belong to the main label; the rest to any label of the text
# Words unrelated to labels, and themes, each with words of its subjects and of its aspects. A label is a
# subject ("bonsai") or a subject with an aspect ("bonsai pruning"). Words are nouns.
_VOCABULARY: dict[str, Any] = json.loads(Path(__file__).with_name("_themes.json").read_text(encoding="utf-8"))
_COMMON: list[str] = _VOCABULARY["common"].split()
_THEMES = {name: (theme["subjects"], theme["aspects"]) for name, theme in _VOCABULARY["themes"].items()}
# Cumulative probabilities of a common word, a word of the theme, of the subject; otherwise of the aspect.
_SHARES = np.cumsum([0.12, 0.06, 0.41])
# Titles and sentences of texts: every {} takes a noun, singular or plural alike.
_TITLES: list[str] = _VOCABULARY["titles"]
_SENTENCES: list[str] = _VOCABULARY["sentences"]


def make_texts(
    n_rows: int = 6000,
    *,
    n_test: int = 1000,
    n_labels: int | None = None,
    random_state: int | Generator | None = 0,
) -> TextDataset:
    """Generate short texts about everyday themes, with up to 1,260 labels such as "bonsai pruning".

    Label frequencies follow Zipf's law; labels of the same subject occur together, those of the same theme
    often. A text mixes words of its labels with uninformative words, and a few texts are about other labels.
    A good linear classifier puts a right label first in 70 to 90 of 100 texts.

    Parameters
    ----------
    n_rows : int
        Number of texts for training.
    n_test : int
        Number of texts for test.
    n_labels : int, optional
        Number of labels; default all. Whole subjects are left out first.
    random_state : int, Generator or None
        The same seed gives the same data.

    Returns
    -------
    data : TextDataset
        Texts and labels of both parts.

    Examples
    --------
    >>> from bonsai_xmc import datasets
    >>> data = datasets.make_texts(100, n_test=10, random_state=0)
    >>> len(data.texts_train), len(data.labels_test), len(data.label_names)
    (100, 10, 1260)
    >>> "bonsai pruning" in data.label_names
    True
    """
    if n_rows < 1 or n_test < 0:
        raise ValueError(f"n_rows must be at least 1 and n_test at least 0, not {n_rows} and {n_test}")
    rng = np.random.default_rng(random_state)
    labels = _choose_labels(rng, n_labels)
    names = [f"{subject} {aspect}".rstrip() for _, subject, aspect in labels]
    vocabularies = [_vocabulary(*label) for label in labels]
    groups = _starts([label[:2] for label in labels])
    themes = _starts([label[:1] for label in labels])
    weights = zipf_weights(rng, len(labels), n_rows, _LABELS_PER_ROW)
    weights[[not aspect for _, _, aspect in labels]] *= _SUBJECT_ALONE
    sets = LabelSets(weights, (groups, themes), near=(0.7, 0.2))
    sets.calibrate(rng, min(_LABELS_PER_ROW, max(1.0, len(labels) / 8)))

    parts: list[tuple[list[str], list[list[str]]]] = []
    for rows in (n_rows, n_test):
        indptr, drawn = sets.draw(rng, rows)
        chosen = [drawn[indptr[row] : indptr[row + 1]] for row in range(rows)]
        others = sets.draw(rng, rows)[1][:rows] if rows else drawn
        noisy = rng.random(rows) < _LABEL_NOISE
        topics = [others[row : row + 1] if noisy[row] else chosen[row] for row in range(rows)]
        texts = [_write(rng, [vocabularies[label] for label in topic]) for topic in topics]
        parts.append((texts, [[names[label] for label in row] for row in chosen]))
    return TextDataset(*parts[0], *parts[1], names)


def _choose_labels(rng: Generator, n_labels: int | None) -> list[tuple[str, str, str]]:
    """Return (theme, subject, aspect or "") of each label, grouped by theme and subject."""
    subjects = [(theme, subject) for theme, (about, _) in _THEMES.items() for subject in about]
    every = [(*pair, aspect) for pair in subjects for aspect in ("", *_THEMES[pair[0]][1])]
    if n_labels is None:
        return every
    if not 1 <= n_labels <= len(every):
        raise ValueError(f"n_labels must be between 1 and {len(every)}, not {n_labels}")
    rank = {subjects[i]: place for place, i in enumerate(rng.permutation(len(subjects)))}
    kept = sorted(range(len(every)), key=lambda i: (rank[every[i][:2]], i))[:n_labels]
    return [every[i] for i in sorted(kept)]


def _starts(keys: list[tuple[str, ...]]) -> np.ndarray:
    """Return where each run of equal keys begins."""
    return np.array([i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]])


def _vocabulary(theme: str, subject: str, aspect: str) -> tuple[list[str], list[str], list[str]]:
    """Return words of the subject, of the aspect (or the subject again) and of the whole theme."""
    subjects, aspects = _THEMES[theme]
    own = [subject, *subjects[subject].split()]
    about = [aspect, *aspects[aspect].split()] if aspect else own
    return own, about, [word for words in (*subjects.values(), *aspects.values()) for word in words.split()]


def _write(rng: Generator, topics: list[tuple[list[str], list[str], list[str]]]) -> str:
    """Write a title and three to five sentences about the topics, the first of which is the main one."""
    words = _words(rng, topics)
    patterns = [_TITLES[rng.integers(len(_TITLES))] + "."]
    patterns += [_SENTENCES[i] for i in rng.permutation(len(_SENTENCES))[: rng.integers(3, 6)]]
    sentences = []
    for pattern in patterns:
        pattern = pattern.removesuffix(".") if pattern.endswith("?.") else pattern
        sentence = pattern.format(*(next(words) for _ in range(pattern.count("{}"))))
        sentences.append(sentence[0].upper() + sentence[1:])
    return " ".join(sentences)


def _words(rng: Generator, topics: list[tuple[list[str], list[str], list[str]]]) -> Iterator[str]:
    """Yield words without end for the slots of a text, the main topic's first, no word twice in a row."""
    own, about, _ = topics[0]
    last = own[rng.integers(len(own))]
    yield last
    source = about
    while True:
        word = source[rng.integers(len(source))]
        if word != last:
            last = word
            yield word
        own, about, theme = topics[0] if rng.random() < _MAIN else topics[rng.integers(len(topics))]
        source = (_COMMON, theme, own, about)[np.searchsorted(_SHARES, rng.random(), side="right")]
