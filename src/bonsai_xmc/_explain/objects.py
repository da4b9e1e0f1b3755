"""The parts of an explanation: frozen objects of numbers and names, which convert to JSON."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from bonsai_xmc._model.ranker import Evidence


def plain(value: Any) -> Any:
    """Convert an object of this module to JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Evidence):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Answer:
    """An explanation of a label: printed as a table, shown as HTML in notebooks."""

    label: str | int
    name: str

    n_shown = 10  # rows of a table

    def to_dict(self) -> dict[str, Any]:
        """Return all parts as JSON values."""
        result: dict[str, Any] = plain(self)
        return result

    def to_html(self, n: int | None = None) -> str:
        """Return a fragment of HTML that needs nothing else, with tables of at most n rows."""
        from bonsai_xmc._explain import html, view  # which need the objects of this module

        return html.fragment(view.blocks_of(self, 2 * self.n_shown if n is None else n))

    def to_text(self, color: bool = False, n: int | None = None) -> str:
        """Return tables of at most n rows for a terminal, in colours if asked for."""
        from bonsai_xmc._explain import terminal, view

        return terminal.text(view.blocks_of(self, self.n_shown if n is None else n), color)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


@dataclass(frozen=True)
class Ranked(Answer):
    """An explanation of the score of a label for a row."""

    score: float
    rank: int | None

    @property
    def standing(self) -> str:
        """Return the score and the rank in words."""
        return f"score {self.score:.4g}, " + ("not ranked" if self.rank is None else f"rank {self.rank}")


@dataclass(frozen=True)
class Feature:
    """A feature of the row."""

    feature: int  # column of X
    name: str  # the term, or the name of the column
    field: str  # the fields of its text block; "" for plain strings and matrices
    kind: str  # "word", "words" (an n-gram), "characters" or "feature"


@dataclass(frozen=True)
class Contribution(Feature):
    """The share of one feature in the margin of one classifier."""

    value: float  # in the row, quantised × unit
    quantised: int  # 16 bits
    weight: int  # 8 bits
    product: int  # quantised × weight; the products add up to the integer margin
    effect: float  # in units of the margin: product × unit × scale
    share: float  # of all effects of the classifier; absolute values add up to 1


@dataclass(frozen=True)
class Decision:
    """The margin and score of one classifier; integer_margin is exactly the sum of all products."""

    tree: int | None  # None for a one-vs-rest classifier
    node: int | None  # of the tree
    level: int | None  # of the node; the root has level 0
    child: int | None  # node that it leads to; None for the label itself
    about: str  # the label, or the labels below the child
    contributions: tuple[Contribution, ...]  # those that are not 0, the largest first
    integer_margin: int
    unit: float
    scale: float
    bias: float
    margin: float  # integer_margin × (unit × scale) + bias; in imported models plus a residual
    score: float  # exp(−loss at the margin)


@dataclass(frozen=True)
class Dropped:
    """The place where beam search left the path of a label."""

    level: int  # of the node that was not kept
    node: int
    score: float  # of the path up to it
    lowest_kept: float  # the lowest score that was kept at this level of the tree
    kept: int  # how many nodes were kept


@dataclass(frozen=True)
class TreePath:
    """A path from the root of a tree to the label."""

    tree: int
    decisions: tuple[Decision, ...]
    score: float  # product of their scores
    counts: bool  # whether the score depends on it: the search has reached its leaf
    dropped: Dropped | None  # where the search left the path, if it did

    @property
    def left(self) -> str:
        """Return where the search left the path, in words; "" if it did not."""
        if (d := self.dropped) is None:
            return ""
        where = f"level {d.level}, node {d.node} ({self.decisions[d.level - 1].about})"
        return (
            f"tree {self.tree + 1}: beam search left the path at {where}: its score {d.score:.3g} is below "
            f"{d.lowest_kept:.3g}, the lowest of {d.kept} nodes kept"
        )


@dataclass(frozen=True)
class ScoreStep:
    """A step from margins to the score. The last one gives the score."""

    text: str
    value: float


@dataclass(frozen=True)
class Effect(Feature):
    """The effect of a feature on the label, over all classifiers that the score depends on.

    One-vs-rest: its effect on the margin. Trees: the sum of its effects along the path, averaged over the
    trees. A blend: the weighted mean of both. The exact integers are in the decisions.
    """

    effect: float
    share: float
    where: str = ""  # fields of this row in which it occurs
    word: str = ""  # word of the text around a character n-gram


@dataclass(frozen=True)
class Segment:
    """A part of a text in which features have the same total effect."""

    begin: int
    end: int
    effect: float
    kind: str  # kind of the feature with the largest effect: "word", "words" or "characters"


@dataclass(frozen=True)
class TextOf:
    """A text of the row, with the parts that have effects."""

    field: str  # "" for a plain string
    text: str
    segments: tuple[Segment, ...]  # in the order of the text, none of them overlapping


@dataclass(frozen=True)
class Explanation(Ranked):
    """An explanation of the score of a label for a row.

    Attributes
    ----------
    label : str or int
        As in `classes_`.
    name : str
        Its name; the label itself where it has none.
    score : float
        As in `top_k`. For a label that the search does not find, the score that an exhaustive search gives.
    rank : int or None
        1 for the best label; None if the label is not among the `max_labels` best that the search finds.
    margin : float
        Of the one-vs-rest classifier; without one, the mean of those of the leaves.
    found : bool
        Whether the model's own search scores the label for this row.
    one_vs_rest : Decision or None
        The label's own classifier.
    paths : tuple of TreePath
        One for each tree that holds the label.
    effects : tuple of Effect
        The effects of the features, largest first.
    steps : tuple of ScoreStep
        The computation of the score from margins. The last value is the score.
    notes : tuple of str
        Remarks about this label or this row.
    texts : tuple of TextOf
        For a text model: the texts, with the places of the features.
    """

    margin: float
    found: bool
    one_vs_rest: Decision | None
    paths: tuple[TreePath, ...]
    effects: tuple[Effect, ...]
    steps: tuple[ScoreStep, ...]
    notes: tuple[str, ...] = ()
    texts: tuple[TextOf, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return all decisions, that of the label's own classifier first, then those along the paths."""
        own = () if self.one_vs_rest is None else (self.one_vs_rest,)
        return own + tuple(decision for path in self.paths for decision in path.decisions)


@dataclass(frozen=True)
class Difference(Feature):
    """A feature with different effects on two labels."""

    effect: float  # on the label in question
    other: float  # on the label that is ahead
    difference: float  # other − effect
    where: str = ""  # as in Effect
    word: str = ""


@dataclass(frozen=True)
class Ahead:
    """A label that ranks before the label in question."""

    label: str | int
    name: str
    rank: int
    score: float
    margin: float
    differences: tuple[Difference, ...]  # the largest first


@dataclass(frozen=True)
class WhyNot(Answer):
    """The reasons why a label is not predicted, or does not rank higher.

    Attributes
    ----------
    label, name
        As in `Explanation`.
    reason : str
        Why `predict` does not return the label: "no classifier", "no features", "beam", "index", "rank" or
        "threshold"; or "predicted".
    sentences : tuple of str
        The reason in words, with numbers.
    rank : int or None
        In an exhaustive search, which scores all labels; None if the label has no score.
    n_ranked : int
        Labels that the exhaustive search ranks.
    score : float
        In the exhaustive search.
    ahead : tuple of Ahead
        The best labels that rank before it, with the features that put them there.
    explanation : Explanation or None
        Of the label itself; None if it has no classifier.
    """

    n_shown = 5

    reason: str
    sentences: tuple[str, ...]
    rank: int | None
    n_ranked: int
    score: float
    ahead: tuple[Ahead, ...]
    explanation: Explanation | None

    @property
    def dropped(self) -> tuple[TreePath, ...]:
        """Return the paths that beam search left."""
        paths = () if self.explanation is None else self.explanation.paths
        return tuple(path for path in paths if path.dropped is not None)


@dataclass(frozen=True)
class SystemExplanation(Ranked):
    """An explanation of a score by tables whose meaning depends on the kind of the model.

    Attributes
    ----------
    label, name, score, rank
        As in `Explanation`.
    kind : str
        Kind of the model, such as "fastxml".
    evidence : tuple of (title, columns, rows)
    """

    kind: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class MemberShare:
    """The share of a member of a fusion in the score of a label."""

    name: str
    link: str  # "score", "calibrated", "rank" or "root"
    weight: float
    value: float  # by the link, in [0, 1]; 0 if the label is not among the member's best
    share: float  # of the score: all shares add up to 1
    explanation: Explanation | SystemExplanation | None
    note: str = ""  # why there is no explanation

    @property
    def heading(self) -> str:
        """Return the share in words, with the numbers behind it."""
        links = {"calibrated": "calibrated score", "rank": "60 + 1 over 60 + rank", "root": "∛ score"}
        link = links.get(self.link, self.link)
        computed = f"{link} {self.value:.4g}, weight {self.weight:.3g}"
        return f"{self.name}: {100 * self.share:.0f} % of the score ({computed})"


@dataclass(frozen=True)
class FusedExplanation(Ranked):
    """An explanation of a score by the members of a fusion, those that count most first.

    Attributes
    ----------
    label, name, score, rank
        As in `Explanation`.
    kind : str
        "fusion".
    members : tuple of MemberShare
    """

    kind: str
    members: tuple[MemberShare, ...]

    @property
    def summary(self) -> str:
        """Return the shares in words: "words 71 %, vectors 29 %"."""
        return ", ".join(f"{one.name} {100 * one.share:.0f} %" for one in self.members)
