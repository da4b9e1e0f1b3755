"""Rows, labels and a strategy → the core's model. The only caller of the core's training."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import Labels, check_rows
from bonsai_xmc._data.rows import Rows, label_vectors
from bonsai_xmc._data.user_trees import tree_arrays, tree_list
from bonsai_xmc._model.linear import core_model
from bonsai_xmc._model.row_trees import relabelled
from bonsai_xmc._model.strategy import Facts, Strategy
from bonsai_xmc._training import recipes, trees_over_rows
from bonsai_xmc._training.recipes import Dataset, DatasetArrays, Recipe
from bonsai_xmc._training.samples import LabelSample
from bonsai_xmc._training.work import Work

# More than this share of classifiers that do not converge causes a warning; a few are normal.
_MANY_UNCONVERGED = 0.1
# Classifiers without weights give all rows one score; some are normal, where all rows of a node are positive.
_MANY_EMPTY = 0.5
# The largest C of a single row and label: beyond it, weights leave the range of float32.
_LARGEST_COST = 1e15


class TextFacts(NamedTuple):
    """What is known about rows that are made of texts; the defaults stand for other rows. See `Facts`."""

    n_texts: int = 1
    n_blocks: int = 1
    label_texts: bool = False


NO_TEXTS = TextFacts()


@dataclass(frozen=True)
class Problem:
    """The data of a training."""

    rows: Rows
    labels: Labels
    weights: Array | None  # float32, above 0; None: all rows weigh 1
    representation: Any  # a name, or the user's label vectors
    tree: Any  # the user's tree or trees, or None
    texts: TextFacts
    feature_names: Array | None = None
    name_vectors: Any = None  # a matrix: of the name of each label, where labels are clustered by names

    @property
    def facts(self) -> Facts:
        return Facts(
            n_rows=self.rows.n_rows,
            n_features=self.rows.n_features,
            n_entries=self.rows.n_entries,
            n_labels=int(np.count_nonzero(self.labels.counts)),
            dense=self.rows.dense,
            negative=self.rows.negative,
            n_positives=len(self.labels.indices),
            given_trees=0 if self.tree is None else len(tree_list(self.tree)),
            **self.texts._asdict(),
        )

    def arrays(self, normalize: bool) -> DatasetArrays:
        """Return rows, labels and weights as the core takes them."""
        weights = np.empty(0, np.float32) if self.weights is None else np.ascontiguousarray(self.weights)
        labels = self.labels.indptr, self.labels.indices, self.labels.n_labels
        return DatasetArrays(self.rows.to_core(), *labels, weights, normalize)

    def take(self, rows: Array) -> "Problem":
        """Return the same problem on some of its rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, rows=self.rows.take(rows), labels=self.labels.take(rows), weights=weights)


@dataclass(frozen=True)
class Report:
    """Figures about a training."""

    n_classifiers: int
    n_unconverged: int
    max_iter: int  # passes or Newton steps of the slowest classifier

    def __add__(self, other: "Report") -> "Report":
        return Report(
            self.n_classifiers + other.n_classifiers,
            self.n_unconverged + other.n_unconverged,
            max(self.max_iter, other.max_iter),
        )


def make_problem(
    rows: Rows,
    labels: Labels,
    weights: Array | None = None,
    representation: Any = "input",
    tree: Any = None,
    texts: TextFacts = NO_TEXTS,
    feature_names: Array | None = None,
) -> Problem:
    """Make a problem, without the rows of weight 0."""
    check_rows(rows.n_rows, labels.n_rows)
    if weights is not None and not weights.all():
        used = np.flatnonzero(weights)
        rows, labels, weights = rows.take(used).by_density(), labels.take(used), weights[used]
    if weights is not None and (weights == 1).all():
        weights = None
    problem = Problem(rows, labels, weights, representation, tree, texts, feature_names)
    if not len(problem.labels.indices):
        raise ValueError("Y holds no label at all; there is nothing to learn")
    return problem


def grow(problem: Problem, strategy: Strategy, seed: int, work: Work) -> _core.Trees:
    """Build the label trees that `train` would build."""
    counts = problem.labels.counts
    dataset, _ = _dataset(problem, strategy, counts)
    return _trees(problem, dataset, np.flatnonzero(counts).astype(np.uint32), strategy, seed, work)


def train(
    problem: Problem, strategy: Strategy, seed: int, work: Work, trees: _core.Trees | None = None
) -> tuple[_core.Model, Report]:
    """Train with a strategy, and on these trees if they are given."""
    counts = problem.labels.counts
    dataset, costs = _dataset(problem, strategy, counts)
    present = np.flatnonzero(counts).astype(np.uint32)
    forest = of_labels = None
    report = Report(0, 0, 0)
    if strategy.n_trees > 0:
        trees = trees or _trees(problem, dataset, present, strategy, seed, work)
        forest, of_trees = _tree_classifiers(dataset, trees, strategy, seed, work)
        report += of_trees
        # Labels of a leaf are scored together, so their classifiers are stored together.
        present = trees.leaf_order(0) if strategy.classifiers != "leaf" else present
    elif strategy.search == "index":
        # Similar labels are stored together: a row's best labels share blocks of classifiers.
        present = _trees(problem, dataset, present, strategy, seed, work).leaf_order(0)
    if strategy.classifiers != "leaf":
        of_labels, more = one_vs_rest(dataset, strategy, present, costs, seed, work)
        report += more
    index = None
    if strategy.search == "index":
        index = work.run("index", _core.build_label_index, of_labels, work.threads_for("index"))
    more_trees = row_trees(problem, strategy, seed, work)
    return core_model(forest, of_labels, index, strategy, counts, more_trees), report


def row_trees(problem: Problem, strategy: Strategy, seed: int, work: Work) -> _core.RowTrees | None:
    """Grow the trees over rows that rank labels with one-vs-rest classifiers, if there are any."""
    return (
        trees_over_rows.beside(problem, strategy.n_row_trees, seed, work).core
        if strategy.n_row_trees
        else None
    )


def train_sample(
    problem: Problem,
    strategy: Strategy,
    sample: LabelSample,
    counts: Array,
    seed: int,
    work: Work,
    more_trees: _core.RowTrees | None = None,
) -> _core.Model:
    """Train only some labels, as they would be trained among all labels, which have these counts.

    `more_trees` are trees over rows whose leaves have all labels.
    """
    dataset, costs = _dataset(problem, strategy, counts)
    forest = of_labels = None
    if sample.tree is not None:
        trees = _core.Trees.from_arrays([sample.tree], problem.labels.n_labels)
        forest, _ = _tree_classifiers(dataset, trees, strategy, seed, work)
    n_sampled = len(sample.original)
    if strategy.classifiers != "leaf":
        costs = costs[sample.original] if len(costs) else costs
        present = np.flatnonzero(problem.labels.counts[:n_sampled]).astype(np.uint32)
        of_labels, _ = one_vs_rest(dataset, strategy, present, costs, seed, work)
    counts_here = np.ones(problem.labels.n_labels, np.int64)
    counts_here[:n_sampled] = counts[sample.original]
    if more_trees is not None:
        number = np.full(more_trees.n_labels, -1, np.int32)
        number[sample.original] = np.arange(n_sampled, dtype=np.int32)
        sizes = more_trees.n_features, problem.labels.n_labels
        more_trees = _core.RowTrees(relabelled(more_trees.arrays(), number), *sizes, more_trees.normalize)
    return core_model(forest, of_labels, None, strategy, counts_here, more_trees)


def train_labels(
    problem: Problem, strategy: Strategy, some: Array, *, at_nodes: bool, work: Work
) -> _core.Forest:
    """Train the classifiers of some labels against all rows of a problem, as at a leaf or as one-vs-rest."""
    dataset, costs = _dataset(problem, strategy, problem.labels.counts)
    some = np.ascontiguousarray(some, np.uint32)
    if at_nodes:
        params = node_params(strategy)
        costs, frequent = costs[:0], 1.0
    else:
        params = label_params(strategy)
        costs, frequent = costs[some] if len(costs) else costs, strategy.frequent_share
    stage = _core.ClassifierStage.of_labels(dataset.core, some, costs, frequent, params, 0)
    stage.solve(stage.missing(), work.threads)
    return stage.finish(work.threads)[0]


def core_dataset(problem: Problem, strategy: Strategy) -> _core.Dataset:
    return _dataset(problem, strategy, problem.labels.counts)[0].core


def _dataset(problem: Problem, strategy: Strategy, counts: Array) -> tuple[Dataset, Array]:
    """Return the core's data set, and what C is multiplied by for each label (empty: by 1)."""
    arrays = problem.arrays(strategy.normalize)
    costs = label_costs(counts, strategy, arrays.weights)
    return Dataset(arrays), costs


def _tree_classifiers(
    dataset: Dataset, trees: _core.Trees, strategy: Strategy, seed: int, work: Work
) -> tuple[_core.Forest, Report]:
    params = node_params(strategy)
    stage = _core.ClassifierStage.of_trees(dataset.core, trees, params, seed, work.threads)
    own = lambda: (dataset.arrays.n_labels, trees.arrays(), params, seed)
    recipe = lambda: Recipe(recipes.tree_classifiers, own(), dataset.arrays, recipes.dataset)
    finish = lambda stored: stage.finish(work.threads, stored)
    forest, numbers = work.solve("classifiers", stage, recipe, finish=finish)
    return forest, Report(**numbers)


def one_vs_rest(
    dataset: Dataset,
    strategy: Strategy,
    labels: Array,
    costs: Array,
    seed: int,
    work: Work,
    old: _core.Forest | None = None,
    n_old_rows: int = 0,
) -> tuple[_core.Forest, Report]:
    """Train the classifiers of labels against all rows; those in `old` are trained further."""
    params = label_params(strategy)
    costs = costs[labels] if len(costs) else costs
    own = (labels, costs, strategy.frequent_share, params, seed, old, n_old_rows)
    stage = _core.ClassifierStage.of_labels(dataset.core, *own)
    recipe = lambda: Recipe(recipes.label_classifiers, own, dataset.arrays, recipes.dataset)
    work.solve("one-vs-rest", stage, recipe)
    forest, numbers = stage.finish(work.threads)
    return forest, Report(**numbers)


def warn(model: _core.Model, report: Report, strategy: Strategy, n_labels: int, stacklevel: int) -> None:
    """Warn of what is unusual about the trained classifiers."""
    last = model.trees if model.one_vs_rest is None else model.one_vs_rest
    assert last is not None
    scale = last.arrays()["scale"]
    empty = int(np.count_nonzero(scale == 0))
    if strategy.prune > 0 and empty > _MANY_EMPTY * len(scale) and n_labels > 1:
        warnings.warn(
            f"prune={strategy.prune:g} leaves {empty:,} of {len(scale):,} classifiers without any weight; "
            "rows with many small entries, such as embeddings, need a smaller one",
            stacklevel=stacklevel + 1,
        )
    if report.n_unconverged > _MANY_UNCONVERGED * report.n_classifiers:
        warnings.warn(
            f"{report.n_unconverged:,} of {report.n_classifiers:,} classifiers did not converge within "
            f"max_iter={strategy.max_iter}; allow more, or a larger tol",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def _trees(
    problem: Problem, dataset: Dataset, present: Array, strategy: Strategy, seed: int, work: Work
) -> _core.Trees:
    labels = problem.labels
    if strategy.given_tree:
        arrays = tree_arrays(problem.tree, labels.classes, labels.counts > 0)
        return _core.Trees.from_arrays(arrays, labels.n_labels)

    basis: tuple[Any, Any, tuple[Any, ...]]
    kind, _, text = strategy.representation.partition("+")
    names = None if problem.name_vectors is None else label_vectors(problem.name_vectors, labels.n_labels)
    if kind in ("custom", "text"):
        rows = label_vectors(problem.representation, labels.n_labels) if names is None else names
        given = rows.to_core()
        checked = _core.LabelVectors.from_rows(given)  # even where nothing is split
        vectors = lambda: checked
        basis = given, recipes.given_vectors, ()
    elif text:
        assert names is not None
        given = names.to_core()
        vectors = cache(lambda: recipes.side_by_side(_label_vectors(dataset, kind, work), given, kind))
        basis = (dataset.arrays, given), recipes.joined_vectors, (kind,)
    else:
        vectors = cache(lambda: _label_vectors(dataset, strategy.representation, work))
        basis = dataset.arrays, recipes.vectors, (strategy.representation,)
    params = tree_params(strategy)
    n_trees = max(1, strategy.n_trees)
    builder = _core.TreeBuilder(present, labels.n_labels, n_trees, params, seed)
    while builder.is_open:
        _split_level(builder, vectors, basis, params, work)
    work.phases.end("trees")
    return builder.finish()


def _split_level(
    builder: _core.TreeBuilder,
    vectors: Callable[[], _core.LabelVectors],
    basis: tuple[Any, Any, tuple[Any, ...]],
    params: dict[str, Any],
    work: Work,
) -> None:
    stage = builder.splits()
    # How many levels there will be is not known, and the first takes the most time.
    part = (1 - 0.5 ** (builder.depth - 1), 1 - 0.5**builder.depth)
    prepare = lambda stage: stage.set_vectors(vectors())
    recipe = lambda: Recipe(recipes.splits, (stage.nodes(), params), *basis, prepare)
    work.solve("trees", stage, recipe, part=part)
    builder.advance(stage, work.threads)


def _label_vectors(dataset: Dataset, kind: str, work: Work) -> _core.LabelVectors:
    stage = _core.LabelVectorStage(dataset.core, kind)
    recipe = lambda: Recipe(recipes.label_vectors, (kind,), dataset.arrays, recipes.dataset)
    # Solving them takes about as long as reading them would, and they are larger than X.
    work.solve("label vectors", stage, recipe, keep=False)
    return stage.finish(work.threads)


def tree_params(strategy: Strategy) -> dict[str, Any]:
    return {
        "branching_factor": strategy.branching_factor,
        "kmeans_tol": strategy.kmeans_tol,
        "kmeans_max_iter": strategy.kmeans_max_iter,
        "plus_plus": strategy.kmeans_init == "k-means++",
        "balanced": strategy.balanced,
        "max_leaf_size": strategy.max_leaf_size,
        "max_depth": strategy.max_depth or 0,
        "split_oversized": strategy.split_oversized,
        "bounded": strategy.bounded,
    }


def node_params(strategy: Strategy) -> dict[str, Any]:
    """Return the parameters of the classifiers at tree nodes."""
    return _linear_params(strategy, strategy.node_C, strategy.node_bias, strategy.node_prune)


def label_params(strategy: Strategy) -> dict[str, Any]:
    """Return the parameters of one-vs-rest classifiers."""
    return _linear_params(strategy, strategy.C, strategy.bias, strategy.prune)


def _linear_params(strategy: Strategy, C: float, bias: str | float, prune: float) -> dict[str, Any]:
    return {
        "loss": strategy.loss,
        "solver": strategy.solver,
        "C": C,
        "tol": strategy.tol,
        "max_iter": strategy.max_iter,
        "learn_bias": bias == "learn",
        "fixed_bias": 0.0 if isinstance(bias, str) else bias,
        "prune": prune,
    }


def label_costs(counts: Array, strategy: Strategy, weights: Array) -> Array:
    """Return what C is multiplied by for each label; empty if by 1."""
    costs = np.empty(0)
    if strategy.tail_exponent > 0:
        mean = counts[counts > 0].mean()
        with np.errstate(over="ignore"):
            costs = np.power(mean / np.maximum(counts, 1), strategy.tail_exponent, dtype=np.float64)
    largest = strategy.C * costs[counts > 0].max(initial=1.0) if len(costs) else strategy.C
    largest *= float(weights.max(initial=1.0))
    if largest > _LARGEST_COST:
        raise ValueError(
            f"C ({strategy.C:g}), the weight of a row and the tail_exponent ({strategy.tail_exponent:g}) "
            f"multiply to {largest:.3g}, but must stay below {_LARGEST_COST:.0e}"
        )
    return costs.astype(np.float32)
