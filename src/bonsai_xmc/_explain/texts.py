"""Places of the features of a row in its texts."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from bonsai_xmc._explain.objects import Effect, Segment, TextOf
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._text.records import Columns


class TextPlaces(NamedTuple):
    """A text with the places of features in it: (feature, begin, end)."""

    field: str
    text: str
    places: list[tuple[int, int, int]]


def places_of(text: FittedText, columns: Columns) -> tuple[TextPlaces, ...]:
    """Find features in one document, a column for each field; places in joined fields go to each field."""
    texts = [column[0] or "" for column in columns]
    found: list[list[tuple[int, int, int]]] = [[] for _ in texts]
    begins = [_begins(texts, source) for source in text.plan.sources()]
    for feature, number, begin, end in zip(
        *(part.tolist() for part in text.core.places(columns)), strict=True
    ):
        for column, first in begins[number]:
            # a piece that spans two fields is in both
            low, high = max(begin - first, 0), min(end - first, len(texts[column]))
            if low < high:
                found[column].append((feature, low, high))
    fields = text.fields or ("",)
    return tuple(map(TextPlaces, fields, texts, found))


def _begins(texts: Sequence[str], source: Sequence[int]) -> list[tuple[int, int]]:
    """Return (column, begin in the joined text) of columns that are not empty, a space between them."""
    begins, at = [], 0
    for column in source:
        if texts[column]:
            begins.append((column, at))
            at += len(texts[column]) + 1
    return begins


class Occurrence(NamedTuple):
    where: str  # the fields
    word: str  # around its first place


def occurrences(texts: Sequence[TextPlaces]) -> dict[int, Occurrence]:
    """Return the fields in which each feature occurs, and the word at its first place."""
    found: dict[int, Occurrence] = {}
    for text in texts:
        for feature, begin, _ in text.places:
            before = found.get(feature)
            if before is None:
                found[feature] = Occurrence(text.field, _word_at(text.text, begin))
            elif text.field not in before.where.split(", "):
                found[feature] = Occurrence(f"{before.where}, {text.field}", before.word)
    return found


def _word_at(text: str, at: int) -> str:
    """Return the word at a place, without punctuation around it, in lower case."""
    begin, end = at, at
    while begin > 0 and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    span = text[begin:end]
    inner = [i for i, c in enumerate(span) if c.isalnum()]
    return (span[inner[0] : inner[-1] + 1] if inner else span).lower()


def highlighted(texts: Sequence[TextPlaces], effects: Sequence[Effect]) -> tuple[TextOf, ...]:
    """Return the parts of each text with the sum of their effects.

    The effect of a feature is divided evenly among its occurrences.
    """
    effect_of = {effect.feature: effect for effect in effects}
    times = Counter(feature for text in texts for feature, _, _ in text.places)
    result = []
    for text in texts:
        pieces = [
            (begin, end, effect_of[f].effect / times[f], effect_of[f].kind)
            for f, begin, end in text.places
            if f in effect_of
        ]
        result.append(TextOf(text.field, text.text, tuple(_segments(pieces))))
    return tuple(result)


def _segments(pieces: Sequence[tuple[int, int, float, str]]) -> list[Segment]:
    """Turn pieces that may overlap into segments that do not."""
    borders = sorted({border for piece in pieces for border in piece[:2]})
    starting: dict[int, list[tuple[int, int, float, str]]] = {}
    for piece in pieces:
        starting.setdefault(piece[0], []).append(piece)
    active: list[tuple[int, int, float, str]] = []
    segments: list[Segment] = []
    for begin, end in pairwise(borders):
        active = [piece for piece in active if piece[1] > begin] + starting.get(begin, [])
        if not active:
            continue
        effect = sum(piece[2] for piece in active)
        kind = max(active, key=lambda piece: (abs(piece[2]), piece[3]))[3]
        last = segments[-1] if segments else None
        if last and last.end == begin and last.kind == kind and abs(last.effect - effect) < 1e-12:
            segments[-1] = Segment(last.begin, end, effect, kind)
        else:
            segments.append(Segment(begin, end, effect, kind))
    return segments
