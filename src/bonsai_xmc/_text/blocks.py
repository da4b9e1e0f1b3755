"""The blocks of a text vectorizer: its parameters made explicit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from bonsai_xmc._base.params import TEXT_PARAMETERS, check, plain

ANALYZERS = ("word", "char", "char_wb")
AUTO = "auto"
_MAX_ORDER = 32

# Names of fields that hold a title.
TITLES = ("title", "titel", "titre", "titolo", "título", "headline", "heading", "name")


def is_title(field: str) -> bool:
    return field.lower() in TITLES


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
        """Return for each text the numbers of the fields that it joins."""
        return [[self.fields.index(f) for f in text] if self.fields else [0] for text in self.texts]

    def to_json(self) -> dict[str, Any]:
        return {"fields": list(self.fields), "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """Read a plan; ValueError if no parameters give it."""
        names = ("analyzer", "min_n", "max_n", "weight")
        blocks = [Block(tuple(b["text"]), *(b[name] for name in names)) for b in value["blocks"]]
        plan = cls(tuple(value["fields"]), tuple(blocks))
        texts = [block.text for block in blocks]
        together = sum(text != before for before, text in zip([None, *texts], texts, strict=False))
        fits = blocks and len(set(plan.fields)) == len(plan.fields) and together == len(plan.texts)
        for block in blocks:
            fits = fits and block.min_n <= block.max_n and bool(block.text) == bool(plan.fields)
            fits = fits and set(block.text) <= set(plan.fields) and len(set(block.text)) == len(block.text)
        if not fits:
            raise ValueError("text.plan does not fit together: its blocks, their texts and their fields")
        return plan


def _weight(value: Any, name: str) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) <= 1e6:
        raise ValueError(f"{name} is {value!r}, but a weight is a number from 0 to 1,000,000")
    return float(value)


def _orders(value: Any, name: str) -> list[tuple[int, int, float]]:
    """Read `{1: 1.0, 2: 0.5, (3, 5): 0.3}` as (min_n, max_n, weight); weights of 0 are left out."""
    if value is None:
        return []
    if isinstance(value, Integral) and not isinstance(value, bool):
        if int(value) > _MAX_ORDER:
            raise ValueError(f"{name} is {value}, but an order is at most {_MAX_ORDER}")
        orders = range(1, int(value) + 1) if name.endswith("word_ngrams") else [int(value)]
        value = dict.fromkeys(orders, 1.0)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}, but must map orders to weights, as {{1: 1.0, 2: 0.5}}")
    found = []
    for key, weight in value.items():
        ends = key if isinstance(key, tuple) else (key, key)
        whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in ends)
        if len(ends) != 2 or not whole or not 1 <= ends[0] <= ends[1] <= _MAX_ORDER:
            raise ValueError(
                f"{name} has the key {key!r}, but an order is an integer from 1 to {_MAX_ORDER}, or a "
                "pair of them"
            )
        found.append((int(ends[0]), int(ends[1]), _weight(weight, f"{name}[{key!r}]")))
    return sorted(order for order in found if order[2] > 0)


# A field's own blocks, if only their weight is given. Chosen on rows held out from TIBKAT, EURLEX57K and the
# Tate collection: character n-grams, pairs and triples of words of a title add more than its words, which
# the joined text has already.
OWN_WORDS: Mapping[Any, float] = {2: 0.3, 3: 0.2}
OWN_CHARS: Mapping[Any, float] = {5: 0.7}
_SETTINGS = ("word_ngrams", "char_ngrams")
# The blocks that a text has at least, where "auto" is given.
_USUAL: Mapping[str, Mapping[Any, float]] = {"word_ngrams": {1: 1.0}, "char_ngrams": {}}


def field_names(fields: Any) -> tuple[str, ...]:
    """Return the fields that the parameter of this name stands for; none where rows are plain strings."""
    return () if fields is None else tuple(_named_fields(fields))


def chooses_title(fields: Any, word_ngrams: Any, char_ngrams: Any) -> bool:
    """Return whether the lengths of texts decide which text has the blocks of a title.

    They do not where weights of fields are given, or n-grams of the only text.
    """
    if isinstance(fields, Mapping):
        return False
    return len(field_names(fields)) > 1 or (_is_auto(word_ngrams) and _is_auto(char_ngrams))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _named_fields(fields: Any) -> dict[str, Any]:
    """Return the names of fields, each with its settings; None for fields of a list."""
    if isinstance(fields, str):
        raise ValueError(f"fields is {fields!r}, but must be a list of names, or map names to weights")
    if isinstance(fields, Mapping):
        named = dict(fields)
    else:
        names = list(fields)
        named = dict.fromkeys(names)
        if len(named) < len(names):
            raise ValueError(f"fields has a name twice: {names!r}")
    if not named:
        raise ValueError("fields is empty: name at least one, or leave it out where rows are plain strings")
    for name in named:
        if not isinstance(name, str) or not name:
            raise ValueError(f"fields has the key {name!r}, but names of fields are strings")
    return named


def _own_settings(value: Any, name: str) -> dict[str, Any]:
    """Return the n-grams of a field's own blocks: standard ones times a weight, or those of a dict."""
    if not isinstance(value, Mapping):
        weight = _weight(value, name)
        words, chars = ({n: weight * w for n, w in own.items()} for own in (OWN_WORDS, OWN_CHARS))
        return {"word_ngrams": words, "char_ngrams": chars}
    unknown = set(value) - set(_SETTINGS)
    if unknown:
        raise ValueError(
            f"{name} has the key {sorted(map(str, unknown))[0]!r}, but a field has " + " and ".join(_SETTINGS)
        )
    return {key: value.get(key) for key in _SETTINGS}


def make_plan(
    fields: Any, word_ngrams: Any, char_ngrams: Any, char_boundaries: Any, title: int | None = None
) -> Plan:
    """Make the blocks that the parameters of a vectorizer stand for; ValueError for impossible ones.

    `title`: the number of the field that has the blocks of a title, if lengths decide (`chooses_title`).
    """
    check("char_boundaries", char_boundaries, TEXT_PARAMETERS)
    char = "char_wb" if char_boundaries else "char"

    def blocks(text: tuple[str, ...], settings: Mapping[str, Any], prefix: str) -> list[Block]:
        found = []
        for key, analyzer in (("word_ngrams", "word"), ("char_ngrams", char)):
            for min_n, max_n, weight in _orders(settings[key], prefix + key):
                found.append(Block(text, analyzer, min_n, max_n, weight))
        return found

    named = {} if fields is None else _named_fields(fields)
    names = tuple(named)
    chosen = title is not None and chooses_title(fields, word_ngrams, char_ngrams)
    of_title = _own_settings(1.0 if chosen else 0.0, "title")
    joined = {"word_ngrams": word_ngrams, "char_ngrams": char_ngrams}
    for key in (key for key, value in joined.items() if _is_auto(value)):
        joined[key] = {**_USUAL[key], **(of_title[key] if len(names) < 2 else {})}
    found = blocks(names, joined, "")
    for i, (name, value) in enumerate(named.items()):
        if value is not None:
            found += blocks((name,), _own_settings(value, f"fields[{name!r}]"), f"fields[{name!r}].")
        elif i == title and len(names) > 1:
            found += blocks((name,), of_title, "")
    if not found:
        raise ValueError("there is no block with a weight above 0: give word_ngrams, char_ngrams or fields")
    return Plan(names, _merged(found))


def _merged(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Merge equal blocks (the only field, joint and by itself): their weights add up."""
    weights: dict[tuple[tuple[str, ...], str, int, int], float] = {}
    for b in blocks:
        key = (b.text, b.analyzer, b.min_n, b.max_n)
        weights[key] = weights.get(key, 0.0) + b.weight
    merged = [Block(*key, weight=weight) for key, weight in weights.items()]
    texts = list(dict.fromkeys(block.text for block in merged))
    return tuple(sorted(merged, key=lambda block: texts.index(block.text)))


def check_given(params: Mapping[str, Any]) -> None:
    """Raise ValueError unless an estimator takes these parameters of texts."""
    missing = {"fields", *_SETTINGS} - params.keys()
    if missing:
        raise ValueError(f"text.given has no key {min(missing)!r}")
    fields = None if params["fields"] == "auto" else params["fields"]
    if isinstance(fields, Mapping):  # a weight that is searched for stands for any valid one
        fields = {name: 1.0 if weight == "auto" else weight for name, weight in fields.items()}
    make_plan(fields, params["word_ngrams"], params["char_ngrams"], bool(params.get("char_boundaries")))


# Parameters as a file holds them: JSON has no integers or pairs as keys.


def params_to_json(params: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: plain(value) for name, value in params.items()}
    for name in _SETTINGS:
        result[name] = _orders_to_json(result[name])
    fields = result["fields"]
    if isinstance(fields, Mapping):  # as pairs: JSON keeps no order, but fields have one
        settings = lambda value: {key: _orders_to_json(part) for key, part in value.items()}
        pairs = fields.items()
        result["fields"] = [[name, settings(v) if isinstance(v, Mapping) else plain(v)] for name, v in pairs]
    elif fields is not None and not isinstance(fields, str):
        result["fields"] = list(fields)
    return result


def params_from_json(params: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(params)
    for name in _SETTINGS:
        if name in result:
            result[name] = _orders_from_json(result[name])
    fields = result.get("fields")
    if fields and isinstance(fields[0], list):
        settings = lambda value: {key: _orders_from_json(part) for key, part in value.items()}
        result["fields"] = {name: settings(v) if isinstance(v, Mapping) else v for name, v in fields}
    return result


def _orders_to_json(value: Any) -> Any:
    """Write `{1: 1.0, (2, 3): 0.5}` as `{"1": 1.0, "2-3": 0.5}`; anything but a mapping stays."""
    if not isinstance(value, Mapping):
        return plain(value)
    text = lambda key: "-".join(map(str, key)) if isinstance(key, tuple) else str(key)
    return {text(key): float(weight) for key, weight in value.items()}


def _orders_from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    orders = {tuple(map(int, key.split("-"))): weight for key, weight in value.items()}
    return {key[0] if len(key) == 1 else key: weight for key, weight in orders.items()}
