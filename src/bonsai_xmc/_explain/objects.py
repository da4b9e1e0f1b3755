"""The parts of an explanation: frozen objects that hold numbers and names, and know how to become JSON."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from bonsai_xmc._model.ranker import Evidence


def plain(value: Any) -> Any:
    """Return an object of this module, and all that it holds, as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Evidence):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Answer:
    """What is said about a label: printed as a table, shown as HTML by notebooks."""

    label: str | int
    name: str

    n_shown = 10  # rows of a table

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON can hold it."""
        result: dict[str, Any] = plain(self)
        return result

    def to_html(self) -> str:
        """Return a fragment of HTML that needs nothing else: words highlighted, and the tables."""
        from bonsai_xmc._explain import html  # which needs the objects of this module

        return html.fragment(self)

    def to_text(self, color: bool = False, n: int | None = None) -> str:
        """Return tables of at most n rows for a terminal; `color` with its colours."""
        from bonsai_xmc._explain import table

        return table.text(self, color, self.n_shown if n is None else n)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


@dataclass(frozen=True)
class Ranked(Answer):
    """Why a row has this score for a label."""

    score: float
    rank: int | None

    @property
    def standing(self) -> str:
        """The score and the rank in words."""
        return f"score {self.score:.4g}, " + ("not ranked" if self.rank is None else f"rank {self.rank}")


@dataclass(frozen=True)
class Feature:
    """A feature of the row."""

    feature: int  # column of X
    name: str  # the term, or the name of the column
    field: str  # of a text: the field or fields that it is from; "" for plain strings and matrices
    kind: str  # "word", "words" (an n-gram), "characters" or "feature"


@dataclass(frozen=True)
class Contribution(Feature):
    """What one feature adds to the margin of one classifier."""

    value: float  # of the row, as it is multiplied: quantised × unit
    quantised: int  # 16 bits
    weight: int  # 8 bits
    product: int  # quantised × weight: its share of the classifier's integer margin
    effect: float  # the same in units of the margin: product × unit × scale
    share: float  # of all effects of the classifier, up or down: their absolute values add up to 1


@dataclass(frozen=True)
class Decision:
    """What one classifier says about the row: integer_margin = sum of all products, exactly."""

    tree: int | None  # None: a one-vs-rest classifier
    node: int | None  # of the tree, that it belongs to
    level: int | None  # of that node; the root has level 0
    child: int | None  # node that it leads to; None: it ranks the label itself
    about: str  # the label, or the labels that the child stands for
    contributions: tuple[Contribution, ...]  # those that are not 0, the largest first
    integer_margin: int
    unit: float
    scale: float
    bias: float
    margin: float  # integer_margin × (unit × scale) + bias; in imported models plus a residual
    score: float  # exp(−loss at the margin)


@dataclass(frozen=True)
class Dropped:
    """Where beam search left the path of a label."""

    level: int  # of the node that was not kept
    node: int
    score: float  # of the path up to it
    lowest_kept: float  # the lowest score that was kept at this level of the tree
    kept: int  # how many nodes were kept


@dataclass(frozen=True)
class TreePath:
    """From the root of a tree to the label."""

    tree: int
    decisions: tuple[Decision, ...]
    score: float  # product of their scores
    counts: bool  # whether it plays a part in the score: the search has reached its leaf
    dropped: Dropped | None  # where the search left it, if it did

    @property
    def left(self) -> str:
        """Where the search left it, in words; "" if it did not."""
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
    """What a feature does to the label, over all classifiers that play a part.

    One-vs-rest: its effect on the margin. Trees: the sum of its effects along the path, averaged over the
    trees. A blend: the weighted mean of both. A summary to read; the integers are in the decisions.
    """

    effect: float
    share: float
    where: str = ""  # of a text: the fields of this row that it occurs in
    word: str = ""  # of characters: the word of the text that they are part of


@dataclass(frozen=True)
class Segment:
    """A part of a text that features push by the same amount."""

    begin: int
    end: int
    effect: float
    kind: str  # of the largest effect there: "word", "words" or "characters"


@dataclass(frozen=True)
class TextOf:
    """A text of the row, with the parts that count."""

    field: str  # "" for a plain string
    text: str
    segments: tuple[Segment, ...]  # in the order of the text, none of them overlapping


@dataclass(frozen=True)
class Explanation(Ranked):
    """Why a row has this score for a label.

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
        The features by what they do, the largest first.
    steps : tuple of ScoreStep
        How margins become the score: what is computed, and what results. The last value is the score.
    notes : tuple of str
        What is special about this label or this row.
    texts : tuple of TextOf
        For a model of texts: the texts, with the places of the features.
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
        """All classifiers, the label's own first, then along the paths."""
        own = () if self.one_vs_rest is None else (self.one_vs_rest,)
        return own + tuple(decision for path in self.paths for decision in path.decisions)


@dataclass(frozen=True)
class Difference(Feature):
    """A feature that puts one label before another."""

    effect: float  # on the label that was asked about
    other: float  # on the label that is ahead
    difference: float  # other − effect
    where: str = ""  # as in Effect
    word: str = ""


@dataclass(frozen=True)
class Ahead:
    """A label that ranks before the one that was asked about."""

    label: str | int
    name: str
    rank: int
    score: float
    margin: float
    differences: tuple[Difference, ...]  # the largest first


@dataclass(frozen=True)
class WhyNot(Answer):
    """Why a label is not predicted, or not further ahead.

    Attributes
    ----------
    label, name
        As in `Explanation`.
    reason : str
        "no classifier", "no features", "beam", "index", "rank", "threshold" or "predicted": what keeps
        `predict` from returning the label.
    sentences : tuple of str
        The same in words, with the numbers.
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
        """The paths that beam search has left."""
        paths = () if self.explanation is None else self.explanation.paths
        return tuple(path for path in paths if path.dropped is not None)


@dataclass(frozen=True)
class SystemExplanation(Ranked):
    """Why a row has this score for a label: tables whose meaning depends on the kind of the model.

    Attributes
    ----------
    label, name, score, rank
        As in `Explanation`.
    kind : str
        Of the model: "fastxml", say.
    evidence : tuple of (title, columns, rows)
    """

    kind: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class MemberShare:
    """What a member adds to the score of a label."""

    name: str
    link: str  # "score", "calibrated", "rank" or "root"
    weight: float
    value: float  # by the link, in [0, 1]; 0 if the label is not among the member's best
    share: float  # of the score: all shares add up to 1
    explanation: Explanation | SystemExplanation | None
    note: str = ""  # why there is no explanation

    @property
    def heading(self) -> str:
        """The share in words, and what it is computed from."""
        links = {"calibrated": "calibrated score", "rank": "60 + 1 over 60 + rank", "root": "∛ score"}
        link = links.get(self.link, self.link)
        computed = f"{link} {self.value:.4g}, weight {self.weight:.3g}"
        return f"{self.name}: {100 * self.share:.0f} % of the score ({computed})"


@dataclass(frozen=True)
class FusedExplanation(Ranked):
    """Why a row has this score for a label: by member, those that count most first.

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
        """The shares in words: "words 71 %, vectors 29 %"."""
        return ", ".join(f"{one.name} {100 * one.share:.0f} %" for one in self.members)
