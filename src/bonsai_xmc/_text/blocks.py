"""The blocks of a text vectorizer: its parameters made explicit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

ANALYZERS = ("word", "char", "char_wb")


@dataclass(frozen=True)
class Block:
    """n-grams of a text, min_n ≤ n ≤ max_n, as a TF-IDF matrix of its own: unit rows times a weight."""

    text: tuple[str, ...]  # the fields that are joined; empty: the rows are plain strings
    analyzer: str
    min_n: int
    max_n: int
    weight: float

    @property
    def name(self) -> str:
        order = f"{self.min_n}" if self.min_n == self.max_n else f"{self.min_n}-{self.max_n}"
        return " ".join(filter(None, ("+".join(self.text), self.analyzer, order)))


@dataclass(frozen=True)
class Plan:
    """Which fields are read and which blocks they give."""

    fields: tuple[str, ...]  # empty: the rows are plain strings
    blocks: tuple[Block, ...]  # sorted so that the blocks of one text follow each other

    @property
    def texts(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(block.text for block in self.blocks))

    def sources(self) -> list[list[int]]:
        """For each text the numbers of the fields that it joins."""
        return [[self.fields.index(f) for f in text] if self.fields else [0] for text in self.texts]

    def to_json(self) -> dict[str, Any]:
        return {"fields": list(self.fields), "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        blocks = [Block(**{**block, "text": tuple(block["text"])}) for block in value["blocks"]]
        return cls(tuple(value["fields"]), tuple(blocks))


def _weight(value: Any, name: str) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) <= 1e6:
        raise ValueError(f"{name} is {value!r}, but a weight is a number from 0 to 1,000,000")
    return float(value)


def _orders(value: Any, name: str) -> list[tuple[int, int, float]]:
    """`{1: 1.0, 2: 0.5, (3, 5): 0.3}` as (min_n, max_n, weight); weights of 0 are left out."""
    if value is None:
        return []
    if isinstance(value, Integral) and not isinstance(value, bool):
        orders = range(1, int(value) + 1) if name.endswith("word_ngrams") else [int(value)]
        value = dict.fromkeys(orders, 1.0)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}, but must map orders to weights, as {{1: 1.0, 2: 0.5}}")
    found = []
    for key, weight in value.items():
        ends = key if isinstance(key, tuple) else (key, key)
        whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in ends)
        if len(ends) != 2 or not whole or not 1 <= ends[0] <= ends[1] <= 32:
            raise ValueError(
                f"{name} has the key {key!r}, but an order is an integer from 1 to 32, or a pair of them"
            )
        found.append((int(ends[0]), int(ends[1]), _weight(weight, f"{name}[{key!r}]")))
    return [order for order in found if order[2] > 0]


def _field_names(fields: Any) -> dict[str, Any]:
    """Field names with what was said of each: a weight or a mapping."""
    if isinstance(fields, str):
        raise ValueError(f"fields is {fields!r}, but must be a list of names, or map names to weights")
    named = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields, 0.0)
    if not named:
        raise ValueError("fields is empty: name at least one, or leave it out where rows are plain strings")
    for name in named:
        if not isinstance(name, str) or not name:
            raise ValueError(f"fields has the key {name!r}, but names of fields are strings")
    return named


_SETTINGS = ("weight", "word_ngrams", "char_ngrams")


def make_plan(fields: Any, joint: Any, word_ngrams: Any, char_ngrams: Any, char_boundaries: bool) -> Plan:
    """The blocks that the parameters of a vectorizer stand for; ValueError if they make no sense."""
    common = {"word_ngrams": word_ngrams, "char_ngrams": char_ngrams}
    char = "char_wb" if char_boundaries else "char"

    def blocks(text: tuple[str, ...], weight: float, settings: Mapping[str, Any], prefix: str) -> list[Block]:
        found = []
        for key, analyzer in (("word_ngrams", "word"), ("char_ngrams", char)):
            for min_n, max_n, of_order in _orders(settings[key], prefix + key):
                found.append(Block(text, analyzer, min_n, max_n, weight * of_order))
        return [block for block in found if block.weight > 0]

    if fields is None:
        plan = Plan((), tuple(blocks((), 1.0, common, "")))
    else:
        named = _field_names(fields)
        names = tuple(named)
        found = blocks(names, _weight(joint, "joint"), common, "")
        for name, value in named.items():
            settings = dict(value) if isinstance(value, Mapping) else {"weight": value}
            unknown = set(settings) - set(_SETTINGS)
            if unknown:
                raise ValueError(
                    f"fields[{name!r}] has the key {sorted(map(str, unknown))[0]!r}, but a field has "
                    + ", ".join(_SETTINGS)
                )
            weight = _weight(settings.get("weight", 1.0), f"fields[{name!r}]")
            found += blocks((name,), weight, {**common, **settings}, f"fields[{name!r}].")
        plan = Plan(names, _merged(found))
    if not plan.blocks:
        raise ValueError("there is no block with a weight above 0: set joint, a field's weight or n-grams")
    return plan


def _merged(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Equal blocks (the only field, joint and by itself) become one: their weights add up."""
    weights: dict[tuple[tuple[str, ...], str, int, int], float] = {}
    for b in blocks:
        key = (b.text, b.analyzer, b.min_n, b.max_n)
        weights[key] = weights.get(key, 0.0) + b.weight
    merged = [Block(*key, weight=weight) for key, weight in weights.items()]
    texts = list(dict.fromkeys(block.text for block in merged))
    return tuple(sorted(merged, key=lambda block: texts.index(block.text)))
