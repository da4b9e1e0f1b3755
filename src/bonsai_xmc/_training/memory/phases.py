"""What training will need: one function for each phase, by the arrays that it allocates. All in bytes.

Left out are arrays whose size does not grow with the data. The numbers below are sizes of C++ types; an entry
of a sparse row is an index and a value of four bytes each.
"""

from dataclasses import replace
from typing import Any

from bonsai_xmc import _core
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._training import splits
from bonsai_xmc._training.memory.sizes import Sizes, leaf_size, levels, n_leaves

_ENTRY = 8
_PANEL = 64  # classifiers that are solved together
_MANY_THREADS = 12  # from here on, panels of roots are half as wide
_ROOT_THREADS = 4  # at least, for each root that is clustered beside others
_UNIT_LABELS = 64  # labels of a unit of label vectors
_SLAB = 2 << 20  # bytes of vectors that a thread fills, until they are put in order
_UNIT_CLASSES = 512  # classes of a unit of a root
_WEIGHT = 12  # bytes of a solved weight before it is packed
_BLOCK_ENTRIES = 1 << 18  # of rows that are sorted together
_KEPT = 16 << 20  # bytes of freed arrays that a thread keeps, at most (src/core/base/memory.cpp)
# Whether label vectors come from rows, and from co-occurring labels.
_KINDS = {"input": (1, 0), "output": (0, 1), "joint": (1, 1), "custom": (0, 0)}
# Vectors that grow by doubling have half as much again on average.
_GROWTH = 1.5
_VISIT = 24  # bytes of a node that a row visits
_MARGIN_BYTES, _VISIT_BYTES = 192 << 20, 48 << 20  # bounds of a beam search


def by_phase(
    sizes: Sizes,
    strategy: Strategy,
    threads: int,
    tunes: bool,
    threshold: Any,
    batch_rows: int | None = None,
) -> dict[str, float]:
    """The peak of each phase, X and Y as `fit` holds them included.

    `threshold` is the parameter: a number, or what is chosen on held-out rows.
    `batch_rows`: held-out rows that are predicted at once, at most.
    """
    held = rows_and_labels(sizes)
    phases = {"reading": held}
    if tunes:
        phases["held-out rows"] = held + held_out_rows(sizes, strategy, threads, batch_rows)
    phases |= {name: held + more for name, more in training(sizes, strategy, threads).items()}
    if isinstance(threshold, str):
        per_label = threshold == PER_LABEL
        phases["threshold"] = held + threshold_rows(sizes, strategy, threads, batch_rows, per_label)
    return phases


def training(sizes: Sizes, strategy: Strategy, threads: int) -> dict[str, float]:
    """The phases of one training."""
    data = dataset(sizes)
    phases = {}
    if clusters(sizes, strategy):
        phases["label vectors"] = data + label_vectors(sizes, strategy, threads)
        phases["trees"] = data + trees(sizes, strategy, threads)
    if strategy.n_trees > 0:
        phases["classifiers"] = data + tree_classifiers(sizes, strategy, threads)
    if strategy.classifiers != "leaf":
        solver = active_sets if uses_active_sets(sizes, strategy) else one_leaf
        phases["one-vs-rest"] = data + sizes.tree_bytes + solver(sizes, strategy, threads)
    if strategy.search == "index":
        phases["index"] = data + sizes.model_bytes + 8.0 * sizes.n_features + sizes.n_present
    return phases


def clusters(sizes: Sizes, strategy: Strategy) -> bool:
    """Whether there are nodes to split."""
    wanted = (strategy.n_trees > 0 or strategy.search == "index") and not strategy.given_tree
    return wanted and len(levels(sizes.n_present, strategy)) > 1


def uses_active_sets(sizes: Sizes, strategy: Strategy) -> bool:
    held = not isinstance(strategy.bias, str) and strategy.bias <= -1
    return not sizes.dense and (strategy.loss, strategy.solver, held) == ("squared_hinge", "dual", True)


def rows_and_labels(sizes: Sizes) -> float:
    """X and Y as training uses them, with weights, classes and counts."""
    rows = 4.0 * sizes.n_rows * sizes.n_features if sizes.dense else sparse_rows(sizes)
    return rows + 8.0 * sizes.n_rows + 4 * sizes.n_pairs + 16 * sizes.n_labels


def sparse_rows(sizes: Sizes) -> float:
    return float(_ENTRY * sizes.n_entries + 8 * sizes.n_rows)


def dataset(sizes: Sizes) -> float:
    """A factor for each row, and the rows of each label."""
    return 4.0 * sizes.n_rows + 8 * sizes.n_labels + 4 * sizes.n_pairs


def vector_entries(sizes: Sizes, strategy: Strategy) -> float:
    of_input, of_output = _KINDS[strategy.representation]
    return of_input * sizes.input_entries + of_output * sizes.output_entries


def vector_columns(sizes: Sizes, strategy: Strategy) -> int:
    of_input = sizes.n_features if strategy.representation in ("input", "joint") else 0
    return of_input + (sizes.n_labels if strategy.representation in ("output", "joint") else 0)


def vector_features(sizes: Sizes, strategy: Strategy, share: float) -> float:
    """Columns that the vectors of a share of the labels use."""
    if has_dense_vectors(sizes, strategy):
        return float(sizes.n_features)
    of_output = min(float(sizes.n_labels), share * sizes.output_entries)
    with_input, with_output = _KINDS[strategy.representation]
    of_input = sizes.distinct_features(share * sizes.input_entries)
    return max(1.0, with_input * of_input + with_output * of_output)


def has_dense_vectors(sizes: Sizes, strategy: Strategy) -> bool:
    return sizes.dense and strategy.representation == "input"


def vectors(sizes: Sizes, strategy: Strategy) -> float:
    """All label vectors."""
    if has_dense_vectors(sizes, strategy):
        return 4.0 * sizes.n_labels * sizes.n_features
    return _ENTRY * vector_entries(sizes, strategy) + 8 * sizes.n_labels


def label_vectors(sizes: Sizes, strategy: Strategy, threads: int) -> float:
    """The vectors, and for each thread the sums of one. Parts are freed while they are joined."""
    columns = vector_columns(sizes, strategy)
    if has_dense_vectors(sizes, strategy):
        return vectors(sizes, strategy) + 4.0 * threads * _UNIT_LABELS * columns
    return vectors(sizes, strategy) + threads * (_SLAB + 4.2 * columns)


def trees(sizes: Sizes, strategy: Strategy, threads: int) -> float:
    """k-means of the roots, or of the largest nodes of the second level."""
    k = min(strategy.branching_factor, sizes.n_present)
    n_roots = min(max(1, strategy.n_trees), max(1, threads // _ROOT_THREADS))
    at_root = sort_rows(sizes, strategy, threads, 1.0), n_roots * k_means(sizes, strategy, 1.0)
    root = max(at_root[0], at_root[1] + sorted_rows(sizes, strategy, 1.0))
    share = min(1.0, (1.0 if strategy.balanced else 2.0) / k)  # the largest have twice the mean
    of_node = k_means(sizes, strategy, share)
    n_nodes = min(threads, max(1, strategy.n_trees) / share)  # that are split at once
    below = n_nodes * (sort_rows(sizes, strategy, 1, share) + of_node + min(_KEPT, of_node) / 2)
    of_nodes = 4.0 * sizes.n_present * max(1, strategy.n_trees) * 4
    return vectors(sizes, strategy) + of_nodes + max(root, below if sizes.n_present * share > 1 else 0.0)


def sorted_rows(sizes: Sizes, strategy: Strategy, share: float) -> float:
    """The vectors of a share of the labels once more, with features by their frequency."""
    if has_dense_vectors(sizes, strategy):
        return 4.0 * share * sizes.n_present
    return share * (_ENTRY * vector_entries(sizes, strategy) + 8 * sizes.n_present)


def sort_rows(sizes: Sizes, strategy: Strategy, threads: int, share: float) -> float:
    """While they are sorted: each thread has the frequency of features, then a block as columns, too."""
    rows = sorted_rows(sizes, strategy, share)
    if has_dense_vectors(sizes, strategy):
        return rows
    columns, entries = vector_columns(sizes, strategy), share * vector_entries(sizes, strategy)
    of_block = max(float(_BLOCK_ENTRIES), columns)
    parts = min(threads, max(1.0, entries / _BLOCK_ENTRIES))
    counting = 8.0 * parts * columns
    return 4.0 * columns + max(counting, rows + parts * (_ENTRY * min(of_block, entries) + 8.0 * columns))


def k_means(sizes: Sizes, strategy: Strategy, share: float) -> float:
    """Centres as sums and as int8, similarities where they are kept, and the moves of an iteration."""
    n = share * sizes.n_present
    k = min(strategy.branching_factor, n)
    padded = -(-k // 16) * 16
    features = vector_features(sizes, strategy, share)
    centres = 4 * k * features
    if strategy.balanced or has_dense_vectors(sizes, strategy):
        similarities = 4 * n * padded + 4 * features * min(64, padded)
    else:
        similarities = padded * features + 4 * features + (4 * n * k if n <= 64 * k else 0)
    return centres + similarities + 40 * n


def tree_classifiers(sizes: Sizes, strategy: Strategy, threads: int) -> float:
    """Roots share a slice of all rows; each thread solves a panel, of a root or of a node of its own."""
    nodes = levels(sizes.n_present, strategy)
    of_jobs = 8.0 * _GROWTH * sizes.n_present * strategy.n_trees * len(nodes)
    scratch = threads * (4.0 * sizes.n_labels + sizes.n_rows + 4 * sizes.n_features)
    solving = root_problem(sizes, strategy, max(1, strategy.n_trees))
    root_classes = sizes.n_present if len(nodes) == 1 else strategy.branching_factor
    lanes = _PANEL // 2 if threads >= _MANY_THREADS else _PANEL
    one = panel(sizes, strategy, min(lanes, root_classes), 1.0)
    if len(nodes) > 1:
        pairs_of_row = sizes.n_pairs / max(1, sizes.n_rows)
        share = min(1.0, 2 * pairs_of_row / min(nodes[1], sizes.n_present))
        classes = strategy.branching_factor if len(nodes) > 2 else leaf_size(sizes.n_present, strategy)
        below = slice_of(sizes, share) + panel(sizes, strategy, min(_PANEL, classes), share)
        solving += one + (threads - 1) * max(one, below)
        solving += threads * min(_KEPT, one)
    else:
        solving += threads * (one + unpacked(sizes, sizes.tree_bytes / max(1, strategy.n_trees)))
    # Of small nodes the heap keeps more than they take; those of a single level have pages of their own.
    results = (1.3 if len(nodes) > 1 else 1.1) * sizes.tree_bytes
    return of_jobs + max(scratch + solving + results / 2, results + scratch, results + sizes.tree_bytes)


def unpacked(sizes: Sizes, model_bytes: float) -> float:
    """Solved classes of a unit of a root before they are packed."""
    share = min(1.0, _UNIT_CLASSES / max(1, sizes.n_present))
    return share * model_bytes / 2.2 * _WEIGHT * _GROWTH


def slice_of(sizes: Sizes, share: float) -> float:
    """A share of the rows over the features that they use."""
    if sizes.dense:
        return 8.0 * share * sizes.n_rows + 4 * sizes.n_features
    return share * (sparse_rows(sizes) + 12.0 * sizes.n_rows) + 8.0 * min(
        sizes.n_used_features, share * sizes.n_entries
    )


def root_problem(sizes: Sizes, strategy: Strategy, n_trees: int) -> float:
    """The slice of all rows, and for each tree the classes of each row."""
    problem = 16.0 * sizes.n_rows + 4 * _GROWTH * sizes.n_pairs
    return slice_of(sizes, 1.0) + 4.0 * sizes.n_rows + n_trees * problem


def panel(sizes: Sizes, strategy: Strategy, classes: float, share: float) -> float:
    """Weights and dual variables of up to 64 classes (Newton: vectors of weights and of margins)."""
    width = -(-classes // 16) * 16
    features = float(sizes.n_features if sizes.dense else sizes.n_used_features)
    if strategy.solver == "dual" and strategy.loss == "squared_hinge":
        features -= sizes.n_singletons  # they are eliminated
    features = min(features, max(1.0, share * sizes.n_entries / 2))
    rows = share * sizes.n_rows
    if strategy.solver == "newton":
        return 4.0 * width * (6 * features + 4 * rows) + 8 * rows
    return 4.0 * width * (features + rows) + 20 * rows


def active_sets(sizes: Sizes, strategy: Strategy, threads: int) -> float:
    """One-vs-rest with a fixed bias: all rows quantised twice, and the buffers of each thread."""
    rows = slice_of(sizes, 1.0) + (4.0 + 2) * sizes.n_entries + 18 * sizes.n_rows
    if indexed := sizes.n_present >= _core.MIN_SEARCHED_LABELS:
        rows += 4.0 * sizes.n_entries + 12.0 * sizes.n_used_features
    used = float(sizes.n_used_features)
    # For each thread: the weights of a classifier, dense and as a list; a panel of int16; 64 active sets, and
    # their weights before small ones are dropped, which are most.
    per_label = sizes.one_vs_rest_bytes / max(1, sizes.n_present) / 2.2
    support = 8 * max(16.0, 4 * per_label / max(1.0, sizes.n_entries / sizes.n_rows))
    group = min(_PANEL, sizes.n_present)
    solver = (16 + 2 * _PANEL) * used + 8.0 * sizes.n_rows
    solver += group * _GROWTH * (support + 8 * _ENTRY * per_label) + 6.0 * indexed * sizes.n_rows
    # Windows of 64 groups: active sets, then classifiers that are not packed yet.
    window = min(sizes.n_present, 64 * _PANEL)
    n_windows = min(threads, sizes.n_present / window)
    windows = n_windows * window * (72 + support + 5 * per_label) * _GROWTH
    solving = rows + threads * solver + windows + 72.0 * sizes.n_present + 1.3 * sizes.one_vs_rest_bytes
    return max(solving, 2.3 * sizes.one_vs_rest_bytes)


def one_leaf(sizes: Sizes, strategy: Strategy, threads: int) -> float:
    """One-vs-rest by panels over all rows."""
    one = panel(sizes, strategy, min(_PANEL, sizes.n_present), 1.0)
    model = sizes.one_vs_rest_bytes
    solving = root_problem(sizes, strategy, 1) + threads * (one + unpacked(sizes, model))
    return max(solving + model * 0.65, 2.3 * model)


def prediction(
    sizes: Sizes,
    n_rows: float,
    visits: tuple[float, float],
    n_choices: float,
    k: int,
    batch_rows: int | None,
) -> float:
    """A batch of rows with the nodes that they visit, and the best k labels of all rows.

    `visits`: nodes that a row visits at once, and what the size of a batch assumes. They are in one array for
    all rows, and in one for each row, which grows.
    """
    batch = min(n_rows, float(batch_rows or 8192))
    n_nodes, n_assumed = visits
    if n_nodes > 0:
        batch = min(batch, max(1.0, _VISIT_BYTES / (2 * _VISIT * n_assumed)))
        batch = min(batch, max(1.0, _MARGIN_BYTES / (4 * (n_choices + 1))))
    of_visits = _VISIT * (1 + _GROWTH) * n_nodes
    of_row = 16.0 * sizes.n_entries / max(1, sizes.n_rows) + of_visits + 4.25 * n_choices + 24 * k
    return batch * of_row + n_rows * k * 8 + 4.0 * sizes.n_features


def _padded(strategy: Strategy) -> int:
    return -(-strategy.branching_factor // 16) * 16


def _part(sizes: Sizes, rows: float, labels: float, pairs: float) -> Sizes:
    """The sizes of a part of the problem: entries of label vectors grow a little slower than pairs."""
    of_rows = rows / max(1, sizes.n_rows)
    of_vectors = (pairs / max(1, sizes.n_pairs)) ** 0.9
    return replace(
        sizes,
        n_rows=int(rows),
        n_entries=int(of_rows * sizes.n_entries),
        n_present=max(1, int(labels)),
        n_pairs=int(pairs),
        input_entries=of_vectors * sizes.input_entries,
        output_entries=of_vectors * sizes.output_entries,
        tree_bytes=of_vectors * sizes.tree_bytes,
        one_vs_rest_bytes=of_vectors * sizes.one_vs_rest_bytes,
        index_bytes=of_vectors * sizes.index_bytes,
    )


def held_out_rows(sizes: Sizes, strategy: Strategy, threads: int, batch_rows: int | None = None) -> float:
    """A training on a part of the rows, and what it predicts for others."""
    n = sizes.n_rows
    n_part, n_held_out = splits.part_sizes(n)
    share = n_part / max(1, n)
    pairs = share * sizes.n_pairs
    part = _part(sizes, n_part, min(sizes.n_present, pairs), pairs)
    rows = rows_and_labels(part) * 1.5 + n_held_out / max(1, n) * rows_and_labels(sizes)
    k = splits.CANDIDATES
    found = 3.0 * n_held_out * k * 8
    predicting = (
        dataset(part)
        + part.model_bytes
        + prediction(part, n_held_out, (30.0, 30.0), 30.0 * strategy.branching_factor, 32, batch_rows)
    )
    comparing = n_held_out * 2 * k * 8 * 8.0
    return rows + found + max(*training(part, strategy, threads).values(), predicting, comparing)


def threshold_rows(
    sizes: Sizes, strategy: Strategy, threads: int, batch_rows: int | None = None, per_label: bool = False
) -> float:
    """Some labels, or all of them, trained once more on most rows, and predicted for the others."""
    n = sizes.n_rows
    of_trees = strategy.classifiers != "one_vs_rest"
    judging = min(splits.HELD_OUT_SHARE * n, splits.MOST_HELD_OUT)
    if per_label:
        part, share = _part(sizes, n - judging, sizes.n_present, (1 - judging / n) * sizes.n_pairs), 1.0
    elif sizes.n_present * sizes.n_entries <= splits.SMALL:
        part = _part(sizes, 0.75 * n, sizes.n_present, 0.75 * sizes.n_pairs)
        judging, share = n / 4, 1.0
    else:
        share = splits.TREE_SHARE if of_trees else splits.LABEL_SHARE
        part = _part(sizes, n - judging, share * sizes.n_present, share * sizes.n_pairs)
        part = replace(part, tree_bytes=part.tree_bytes / max(1, strategy.n_trees))
    rows = rows_and_labels(part) + judging / max(1, n) * rows_and_labels(sizes)
    again = replace(strategy, n_trees=min(1, strategy.n_trees), given_tree=True, search="exact")
    again = strategy if per_label else again
    n_nodes = n_leaves(sizes.n_present, strategy) * share if of_trees else 0.0
    n_choices = n_nodes if not strategy.balanced else n_nodes / strategy.branching_factor * _padded(strategy)
    # Batches assume that all nodes of the tree are visited at once, not just its leaves.
    visits = n_nodes, n_nodes * strategy.branching_factor / (strategy.branching_factor - 1)
    predicting = (
        dataset(part) + part.model_bytes + prediction(part, judging, visits, n_choices, 32, batch_rows)
    )
    judged = judging * 32 * 60.0
    phases = training(part, again, threads).values()
    return sizes.model_bytes + rows + max(*phases, predicting, dataset(part) + judged)
