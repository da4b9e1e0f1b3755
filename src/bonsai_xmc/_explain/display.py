"""Effects grouped for tables: the character n-grams of a word share a line."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from bonsai_xmc._explain.objects import Ahead, Decision, Difference, Effect, Explanation
from bonsai_xmc._model.ranker import Evidence


class Line(NamedTuple):
    """A line of a table."""

    name: str
    kind: str
    where: str
    effect: float
    share: float
    other: float  # effect on the label that is ahead


def lines_of(effects: Sequence[Effect | Difference]) -> list[Line]:
    """Group effects into lines, largest first; differences are sorted by size."""
    if not effects:
        return []
    groups: dict[Any, list[Effect | Difference]] = {}
    for effect in effects:
        together = (effect.field, effect.word) if effect.word else effect.feature
        groups.setdefault(together, []).append(effect)
    joined = any("+" in effect.field for effect in effects)  # some features are those of all fields joined
    lines = [_line(group, joined) for group in groups.values()]
    differ = isinstance(effects[0], Difference)
    return sorted(lines, key=lambda line: -abs(line.other - line.effect if differ else line.effect))


# Fields that `shown` adds to the objects or, where the type is None, leaves out.
SHOWN: dict[type, dict[str, Any]] = {
    Explanation: {"effects": None, "lines": tuple[Line, ...], "more": int},
    Ahead: {"differences": None, "lines": tuple[Line, ...]},
    Decision: {"others": int},
}


def shown(value: Any, n: int) -> Any:
    """Convert an explanation to JSON values, with lines instead of effects and the n largest of each part.

    `others` is the sum of the omitted products; with the contributions shown it is the integer margin.
    """
    if isinstance(value, Evidence):
        return value._asdict() | {"rows": value.rows[:n]}
    if isinstance(value, Line):
        return value._asdict()
    if isinstance(value, tuple):
        return [shown(item, n) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Decision):
        others = sum(contribution.product for contribution in value.contributions[n:])
        values |= {"contributions": value.contributions[:n], "others": others}
    elif isinstance(value, Explanation):
        lines = lines_of(values.pop("effects"))
        values |= {"lines": tuple(lines[:n]), "more": max(0, len(lines) - n)}
    elif isinstance(value, Ahead):
        values["lines"] = tuple(lines_of(values.pop("differences"))[:n])
    return {name: shown(part, n) for name, part in values.items()}


def _line(group: Sequence[Effect | Difference], joined: bool) -> Line:
    first = group[0]
    effect = sum(e.effect for e in group)
    other = sum(e.other for e in group if isinstance(e, Difference))
    share = sum(abs(e.share) for e in group if isinstance(e, Effect))
    name = f"“{first.name}”" if first.kind == "characters" else first.name
    kind = {"words": "n-gram", "feature": ""}.get(first.kind, first.kind)
    if len(group) > 1:
        name, kind = f"“{first.word}”", f"{len(group)} × characters"
    own = f"{first.field} alone" if joined and first.field else first.field
    where = first.where if "+" in first.field else own
    return Line(name, kind, where, effect, share, other)


def number(x: float) -> str:
    """Format a number with its sign."""
    return f"{'−' if x < 0 else '+'}{abs(x):.3f}"


def figure(x: float, form: str) -> str:
    """Format a number, with a minus sign in place of a hyphen."""
    return f"{x:{form}}".replace("-", "−")
