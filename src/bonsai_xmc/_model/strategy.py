"""How a model is trained and searched, every value concrete, and the facts about the data behind it.

Imports the core for the size of its blocks of classifiers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bonsai_xmc import _core
from bonsai_xmc._base.params import PARAMETERS, check

# Further blocks for each label beyond the tenth, at least.
_PER_LABEL = 4


@dataclass(frozen=True)
class Probes:
    """Blocks that are scored for the 5 and for the 10 best labels, and the share of them that is found there.

    0 stands for all blocks: half of them contain too few.
    """

    n_rows: int  # that were searched
    n_probe_5: int
    n_probe_10: int
    recall_5: float
    recall_10: float

    def n_probe(self, k: int) -> int:
        """Return the number of blocks for the k best labels; 0 for all."""
        few, many = self.n_probe_5, self.n_probe_10
        if k <= 5 or few == 0:
            return few
        if many == 0:
            return 0
        more = (many - few) / 5
        return round(few + more * (k - 5)) if k <= 10 else round(many + max(more, _PER_LABEL) * (k - 10))


# The values that `classifiers` and `search` can be resolved to, and the sections of the model that they need.
STRATEGIES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("leaf", "beam"): ("trees",),
    ("one_vs_rest", "exact"): ("one_vs_rest",),
    ("one_vs_rest", "index"): ("one_vs_rest", "index"),
    ("blend", "exact"): ("trees", "one_vs_rest"),
    ("blend", "index"): ("trees", "one_vs_rest", "index"),
}


@dataclass(frozen=True)
class Facts:
    """What the choice between strategies depends on."""

    n_rows: int
    n_features: int
    n_entries: int  # non-zero entries of X
    n_labels: int  # labels with at least one row
    dense: bool  # X is handled as dense
    negative: bool = False  # X has values below 0
    n_positives: int = 0  # pairs of a row and a label
    n_texts: int = 1  # texts whose blocks of features make up the rows, if these are made of texts
    n_blocks: int = 1  # blocks of features
    label_texts: bool = False  # labels have texts, which are a prior for one-vs-rest classifiers
    given_trees: int = 0  # trees that are given instead of clustering


@dataclass(frozen=True)
class Strategy:
    """How a model is trained and searched, every value concrete; see the parameters of `Bonsai`.

    Model files hold it: a field that is added later needs a default, for files that lack it.
    """

    classifiers: str  # "leaf", "one_vs_rest" or "blend"
    search: str  # "beam", "exact" or "index"
    representation: str  # "input", "output", "joint", or "custom" for given label vectors
    given_tree: bool  # given trees instead of clustering
    n_trees: int  # 0: no trees
    branching_factor: int
    max_leaf_size: int
    max_depth: int | None
    split_oversized: bool  # leaves of 100 × max_leaf_size labels or more are split beyond max_depth
    balanced: bool
    kmeans_tol: float
    kmeans_max_iter: int
    kmeans_init: str
    node_C: float  # of the classifiers at tree nodes
    C: float  # of the classifiers that rank labels; in a blend, of the one-vs-rest classifiers
    loss: str
    solver: str
    tol: float
    max_iter: int
    node_prune: float
    prune: float
    node_bias: str | float  # of the classifiers at tree nodes: "learn" or a number
    bias: str | float  # of the classifiers that rank labels
    frequent_share: float  # one-vs-rest: labels of more than this share of the rows learn their bias
    tail_exponent: float
    blend_weight: float  # of the trees; 0 unless classifiers are blended
    logit_adjustment: float  # scores are multiplied by (rows of the label)^−this
    normalize: bool
    reason: str  # why `classifiers` and `search` are what they are
    bounded: bool = False  # large clusters are split again at the same level
    strict_beam: bool = False  # leaves compete for the beam, and have no more labels than it has nodes
    evidence: str = ""  # a table: accuracy on held-out rows of the choice and of simpler ones
    n_row_trees: int = 0  # trees over rows, together with one-vs-rest classifiers
    row_tree_weight: float = 0.0  # of these, against all others

    def only_one_vs_rest(self) -> "Strategy":
        """Return the strategy for its one-vs-rest classifiers alone."""
        trees: Any = {"n_trees": 0, "blend_weight": 0.0, "n_row_trees": 0, "row_tree_weight": 0.0}
        return replace(self, classifiers="one_vs_rest", search="exact", **trees)


def beam_size(given: Any, n_trees: int, search: str) -> int:
    """Return the nodes that beam search keeps at each level; 0 for all."""
    check("beam_size", given)
    if n_trees == 0 and given != PARAMETERS["beam_size"].default:
        how = "it scores all labels" if search == "exact" else "an index finds the labels that it scores"
        raise ValueError(
            f"beam_size is {given!r}, but this model has no trees to search: {how}. Leave it out, or train "
            'with classifiers="leaf" or classifiers="blend"'
        )
    return int(given or 0)


def n_probe(
    given: Any, search: str, k: int, n_labels: int, adjusted: bool = False, measured: Probes | None = None
) -> int:
    """Return the blocks of classifiers that are scored for a row's k best labels; 0 for all."""
    if not is_auto(given):
        check("n_probe", given)
        if search != "index":
            raise ValueError(
                f'n_probe is {given!r}, but this model has no index to search. Leave n_probe="auto", or '
                'train with classifiers="one_vs_rest" and search="index"'
            )
        return int(given or 0)
    # Without a measure, 99 % of the labels of generated data (docs/performance.md); adjusted scores prefer
    # rare labels, while the index is made for raw scores. Where half of the blocks would be scored, scoring
    # all takes no longer.
    chosen = measured.n_probe(k) if measured is not None else (16 + 4 * k) * (4 if adjusted else 1)
    return chosen if 2 * chosen * _core.BLOCK_LABELS <= n_labels else 0


def is_auto(given: Any) -> bool:
    return isinstance(given, str) and given == "auto"
