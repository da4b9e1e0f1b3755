"""The reference against answers worked out by hand, closed forms, and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from reference import (
    Node,
    Rng,
    breadth_first,
    build_tree,
    derive,
    first_centres,
    flatten,
    kmeans,
    label_vectors,
    objective,
    predict,
    shorten,
    solve_dual_logistic,
    solve_dual_squared_hinge,
    solve_exact,
    train,
    tree_key,
    unit_rows,
)

# Unit vectors of the plane whose products are short decimals, from east to north.
EAST, NEAR_EAST, EASTISH = (1, 0), (0.96, 0.28), (0.8, 0.6)
NORTHISH, NEAR_NORTH, NORTH = (0.6, 0.8), (0.28, 0.96), (0, 1)


class Scripted(Rng):
    """A generator that returns the given draws, whatever the range."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def below(self, n):
        assert self.draws[0] < n
        return self.draws.pop(0)

    def uniform(self):
        return self.draws.pop(0)


def plane(*rows):
    return np.array(rows, dtype=float)


def test_rng_is_splitmix64():
    rng = Rng(1234567)  # published outputs of the generator for this seed
    assert [rng.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert Rng(0).next() == derive(0, 0) == 0xE220A8397B1DCDAF


def test_derive_addresses_the_stream():
    rng = Rng(2**64 - 3)
    outputs = [rng.next() for _ in range(5)]
    assert [derive(2**64 - 3, word) for word in range(5)] == outputs


def test_bounded_draws_scale_one_word():
    rng, same = Rng(7), Rng(7)
    word = same.next()
    assert rng.below(10) == word * 10 // 2**64
    word = same.next()
    assert rng.uniform() == (word >> 11) / 2**53


def test_shuffle_and_sample_by_hand():
    v = [0, 1, 2, 3]
    Scripted(0, 0, 0).shuffle(v)  # swaps 3↔0, 2↔0, 1↔0 by place
    assert v == [1, 2, 3, 0]
    assert Scripted(4, 3, 0).sample(5, 3) == [4, 0, 2]  # 4 1 2 3 0 → 4 0 2 3 1


X3 = plane((3, 4), (0, 2), (5, 0))
Y3 = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]])  # label 3 has no row


@pytest.mark.parametrize("convert", [np.asarray, csr_array])
def test_label_vectors_by_hand(convert):
    X, Y = convert(X3), convert(Y3)
    first = np.array([0.6, 1.8]) / np.sqrt(3.6)  # (0.6, 0.8) + (0, 1)
    inputs = np.array([first, (0.6, 0.8), (1, 0), (0, 0)])
    np.testing.assert_allclose(label_vectors(X, Y), inputs)
    outputs = np.zeros((4, 4))
    outputs[0, 1] = outputs[1, 0] = 1  # labels 2 and 3 co-occur with nothing
    np.testing.assert_array_equal(label_vectors(X, Y, "output"), outputs)
    joint = np.hstack([inputs, outputs])
    joint[:2] /= np.sqrt(2)
    np.testing.assert_allclose(label_vectors(X, Y, "joint"), joint)


def test_label_vectors_weights_raw_rows_and_user_matrix():
    weighted = label_vectors(X3, Y3, "input", sample_weight=[1, 0, 2])
    np.testing.assert_allclose(weighted, [(0.6, 0.8), (0.6, 0.8), (1, 0), (0, 0)])
    raw = label_vectors(X3, Y3, normalize=False)
    np.testing.assert_allclose(raw[0], np.array([3, 6]) / np.sqrt(45))
    pairs = np.array([[1, 1, 0], [1, 0, 1]])
    weighted = label_vectors(X3[:2], pairs, "output", sample_weight=[3, 4])
    np.testing.assert_allclose(weighted, [(0, 0.6, 0.8), (1, 0, 0), (1, 0, 0)])
    np.testing.assert_allclose(label_vectors(X3, Y3, plane((0, 2), (3, 4))), [(0, 1), (0.6, 0.8)])
    with pytest.raises(ValueError, match="median"):
        label_vectors(X3, Y3, "median")


def test_kmeans_four_points_by_hand():
    V = plane(EAST, EASTISH, NORTH, (-0.6, 0.8))
    found = kmeans(V, 2, Scripted(0, 0))  # centres: rows 0 and 1
    # 1: sims (1 .8) (.8 1) (0 .6) (−.6 0), so row 0 | rows 1 2 3; the second centre turns to (.2, 2.4)/√5.8
    # 2: row 1 has .8 with the first, .66 with the second: it moves; centres (3, 1)/√10 and (−1, 3)/√10
    # 3: each row has 3/√10 with its own; 4: nothing gained
    expected = [2.6 / 4, (1.8 + 4.2 / np.sqrt(5.8)) / 4, 3 / np.sqrt(10), 3 / np.sqrt(10)]
    np.testing.assert_allclose(found.objectives, expected)
    assert found.cluster.tolist() == [0, 0, 1, 1]


def test_kmeans_stops_by_tolerance_and_by_cap():
    V = plane(EAST, EASTISH, NORTHISH, NORTH)
    draws = 0, 2  # rows 0 and 3; objectives .9 and 3/√10 ≈ .9487
    assert len(kmeans(V, 2, Scripted(*draws), tol=0.04).objectives) == 3
    assert len(kmeans(V, 2, Scripted(*draws), tol=0.05).objectives) == 2
    assert kmeans(V, 2, Scripted(*draws), max_iter=1).objectives == [pytest.approx(0.9)]


def test_kmeans_centre_without_members_vanishes():
    # Rows 0 and 1 are one point: the tie goes to the first centre. If the second stayed where it is, it would
    # win both rows from the first, which moves towards row 2.
    found = kmeans(plane(EAST, EAST, NORTHISH, NORTHISH), 2, Scripted(0, 0))
    assert found.cluster.tolist() == [0, 0, 0, 0]
    assert len(found.objectives) == 3


def test_kmeans_centre_with_zero_sum_resembles_nothing():
    assert kmeans(plane(EAST, (-1, 0)), 1, Scripted(0)).objectives == [0, 0]
    V = np.array([(1, 0, 0, 0), (0.5, 0.5, 0.5, 0.5), (0, 0, 1, 0), (-1, 0, 0, 0)])
    # 1: all gaps are .5; only the first centre has room for the last row, its opposite: sum zero
    # 2: the second centre is (.5, .5, 1.5, .5)/√3; gaps .29 .87 .87 .29; rows 1 and 2 join it
    found = kmeans(V, 2, Scripted(0, 0), max_iter=2, balanced=True)
    np.testing.assert_allclose(found.objectives, [1.5 / 4, np.sqrt(3) / 4])
    assert found.cluster.tolist() == [0, 1, 1, 0]


def test_kmeans_ties_go_to_the_smaller_centre():
    V = unit_rows(plane(EAST, EAST, NORTH, NORTH, (1, 1)))
    clusters = lambda K, *draws: kmeans(V, K, Scripted(*draws), max_iter=1).cluster.tolist()
    assert clusters(2, 0, 1) == [0, 0, 1, 1, 0]
    assert clusters(2, 2, 1) == [1, 1, 0, 0, 0]  # the north is the first centre
    assert clusters(3, 0, 1, 2) == [0, 0, 1, 1, 0]  # row 4 begins as a singleton
    assert kmeans(plane(*[NORTHISH] * 5), 2, Rng(0), balanced=True).cluster.tolist() == [0, 0, 0, 1, 1]


def test_kmeans_singleton_joins_next_best():
    V = plane(EAST, NEAR_EAST, NORTH, NEAR_NORTH, EASTISH)
    found = kmeans(V, 3, Scripted(0, 1, 2), max_iter=1)  # centres: rows 0, 2, 4; row 4 alone
    assert found.cluster.tolist() == [0, 0, 1, 1, 0]  # .8 with east, .6 with north


def test_kmeans_singletons_depend_on_current_sizes():
    # All are singletons. Row 0 joins row 1's cluster, which has two rows then, and its own cluster is empty:
    # row 2, which is nearest to row 0, joins the same cluster.
    V = plane(EAST, EASTISH, (0.8, -0.6))
    assert kmeans(V, 3, Scripted(0, 0, 0)).cluster.tolist() == [0, 0, 0]
    V = plane(EAST, EASTISH, NORTH, NORTH)  # the fourth centre gets nothing, row 2's cluster keeps two rows
    assert kmeans(V, 4, Scripted(0, 0, 0, 0), max_iter=1).cluster.tolist() == [0, 0, 1, 1]
    assert kmeans(plane(EAST), 2, Scripted(0)).cluster.tolist() == [0]


@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.parametrize("seed", range(5))
def test_kmeans_identical_rows_are_one_cluster(init, seed):
    assert kmeans(plane(*[NORTHISH] * 6), 3, Rng(seed), init=init).cluster.tolist() == [0] * 6


def test_kmeans_zero_rows_are_spread():
    ZERO = (0, 0)
    V = plane(ZERO, EAST, NEAR_EAST, ZERO, NORTH, NORTH, NEAR_NORTH, ZERO)
    # Sizes 2 and 3: the zeros make them 3 3, then 4 3 (tie: the smaller index), then 4 4
    found = kmeans(V, 2, Scripted(0, 1))  # centres: rows 1 and 4, the first and third that are not zero
    assert found.cluster.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert kmeans(np.zeros((5, 2)), 3, Scripted()).cluster.tolist() == [0, 1, 2, 0, 1]
    assert kmeans(np.zeros((2, 2)), 3, Scripted()).cluster.tolist() == [0, 1]


def test_kmeans_plus_plus_by_hand():
    V = plane(EAST, EASTISH, NORTH, (-1, 0))
    # Weights 0 .2 1 2, u = .3·3.2 = .96 → row 2; then 0 .2 0 1, u = .1·1.2 → row 1
    assert first_centres(V, 3, "k-means++", Scripted(0, 0.3, 0.1)) == [0, 2, 1]
    assert first_centres(V, 2, "k-means++", Scripted(0, 0.0)) == [0, 1]  # never a weight of zero
    assert first_centres(plane(EAST, EAST, EAST), 3, "k-means++", Scripted(1)) == [1]


def test_kmeans_balanced_by_hand():
    V = plane(EASTISH, EAST, NEAR_EAST, NORTH)
    # Gaps .2, 1, .68, 1: row 0 is assigned last; the east is full, so it gets .6 in the north
    found = kmeans(V, 2, Scripted(1, 2), balanced=True)  # centres: rows 1 and 3
    second = (1.96 / np.sqrt(3.92) + 2 / np.sqrt(5)) / 2  # centres (1.96, .28)/√3.92 and (1, 2)/√5
    np.testing.assert_allclose(found.objectives, [3.56 / 4, second, second])
    assert found.cluster.tolist() == [1, 0, 0, 1]
    # Three rows, two centres: one each, and the extra place goes to the first centre that needs it
    found = kmeans(plane(EAST, NEAR_EAST, NORTH), 2, Scripted(0, 1), balanced=True)
    assert found.cluster.tolist() == [0, 0, 1]


@pytest.mark.parametrize("init", ["random", "k-means++"])
@given(st.integers(1, 30), st.integers(2, 6), st.integers(0, 2**64 - 1))
def test_kmeans_balanced_sizes(init, n, K, seed):
    V = unit_rows(np.random.default_rng(seed).standard_normal((n, 4)))
    size = np.bincount(kmeans(V, K, Rng(seed), init=init, balanced=True).cluster)
    assert len(size) == min(K, n)
    assert size.max() - size.min() <= 1


def test_kmeans_balanced_splits_what_cannot_be_told_apart():
    V = np.vstack([plane(*[EAST] * 4), np.zeros((3, 2))])
    assert sorted(np.bincount(kmeans(V, 3, Rng(5), balanced=True).cluster)) == [2, 2, 3]


@given(st.integers(1, 30), st.integers(2, 6), st.integers(0, 2**64 - 1))
def test_kmeans_objective_never_falls(n, K, seed):
    V = unit_rows(np.random.default_rng(seed).standard_normal((n, 4)))
    found = kmeans(V, K, Rng(seed), tol=0)
    assert np.all(np.diff(found.objectives) >= -1e-12)
    size = np.bincount(found.cluster)
    assert size.min() >= min(2, n)
    assert size.sum() == n


def test_tree_numbering_keys_and_levels():
    V = unit_rows(np.random.default_rng(0).standard_normal((40, 3)))
    labels = [l for l in range(40) if l % 7]
    root = build_tree(V, labels, tree_key(3, 1), branching=3, max_leaf=2)
    assert root.key == derive(derive(3, 0), 1)
    nodes = breadth_first(root)
    assert [node.id for node in nodes] == list(range(len(nodes)))
    for node in nodes:
        assert node.labels.tolist() == sorted(node.labels)
        for j, child in enumerate(node.children):
            assert (child.key, child.level) == (derive(node.key, j), node.level + 1)
        if node.children:
            assert sorted(l for child in node.children for l in child.labels) == node.labels.tolist()
            rng = Rng(derive(node.key, 2**32))
            again = kmeans(V[node.labels], 3, rng).cluster
            parts = [node.labels[again == j].tolist() for j in range(len(node.children))]
            assert parts == [child.labels.tolist() for child in node.children]
    leaves = [node for node in nodes if not node.children]
    assert sorted(l for leaf in leaves for l in leaf.labels) == labels


def test_trees_stop_by_size_depth_and_equal_vectors():
    V = unit_rows(np.random.default_rng(1).standard_normal((50, 3)))
    depth = lambda **params: max(n.level for n in breadth_first(build_tree(V, range(50), 9, **params)))
    assert depth(branching=50) == 1  # max_leaf is the branching
    assert depth(branching=3, max_depth=1) == 1
    assert depth(branching=3, max_depth=3) == 3
    assert depth(branching=3, max_leaf=50) == 1
    same = build_tree(np.ones((50, 1)), range(50), 9, branching=3)
    assert (same.children, len(same.labels)) == ([], 50)
    assert build_tree(V, [], 9).labels.tolist() == []


def test_flat_tree_by_hand():
    low, high = Node(np.array([1, 4]), id=1), Node(np.array([0]), id=2)
    child_ptr, children, is_leaf = flatten(Node(np.array([0, 1, 4]), children=[low, high]))
    assert child_ptr.tolist() == [0, 2, 4, 5]
    assert children.tolist() == [1, 2, 1, 4, 0]
    assert is_leaf.tolist() == [False, True, True]


def tight(X, y, C=1.0, s=None, bias="learn"):
    return solve_dual_squared_hinge(X, y, C, s, 1e-12, 100_000, bias, Rng(0))


PAIR, SIGNS = np.eye(2), np.array([1.0, -1.0])


def test_dual_passes_equal_hand_computed_steps():
    # Q = 1 + ½, b = 0. First row: G = −1, α = ⅔. Second: its margin is ⅔, G = −5/3, α = 10/9. Σyα = −4/9,
    # and b moves by −4/9 / (1 + 2 · 2 / Q)
    X, in_order, swapped = np.array([[1.0], [1.0]]), Scripted(1), Scripted(0)
    w, b, n_iter = solve_dual_squared_hinge(X, SIGNS, 1.0, None, 1.7, 20, "learn", in_order)
    np.testing.assert_allclose([*w, b], [-4 / 9, -4 / 33])
    assert n_iter == 1  # 0 − (−5/3) ≤ 1.7
    w, b, n_iter = solve_dual_squared_hinge(X, SIGNS, 1.0, None, 1.7, 20, "learn", swapped)
    np.testing.assert_allclose([*w, b], [4 / 9, 4 / 33])
    # The second pass starts from the first one's order: swapped, then left alone
    w, b, n_iter = solve_dual_squared_hinge(X, SIGNS, 1.0, None, 1e-9, 2, "learn", Scripted(0, 1))
    np.testing.assert_allclose([*w, b], [80 / 891, 1104 / 9801])
    assert n_iter == 2  # the passes ran out
    # Two positives: b begins at 1, where no gradient is left, and has to come down first
    ones = np.ones(2)
    w, b, n_iter = solve_dual_squared_hinge(PAIR, ones, 1.0, None, 0.5, 1, "learn", Scripted(1))
    np.testing.assert_allclose([*w, b, n_iter], [0, 0, 0, 1])
    w, b, n_iter = solve_dual_squared_hinge(PAIR, ones, 1.0, None, 0.5, 2, "learn", Scripted(1, 1))
    np.testing.assert_allclose([*w, b, n_iter], [2 / 3, 2 / 3, 4 / 11, 2])


def test_two_rows_in_closed_form():
    w, b, _ = tight(PAIR, SIGNS)  # by symmetry (a, −a), 0 with 2a = 4(1 − a)
    np.testing.assert_allclose([*w, b], [2 / 3, -2 / 3, 0], atol=1e-11)
    assert objective(w, b, PAIR, SIGNS) == pytest.approx(4 / 9 + 2 / 9)
    # Bias fixed at 0: two problems of one row, |w_i| = 2Cs_i / (1 + 2Cs_i)
    w, b, _ = tight(PAIR, SIGNS, C=0.5, s=[1, 3], bias=0.0)
    np.testing.assert_allclose([*w, b], [1 / 2, -3 / 4, 0], atol=1e-11)
    # Bias fixed at −1: w = 2(2 − w) for the positive row; the negative one has no loss at w = 0
    w, b, _ = tight(PAIR, SIGNS, bias=-1.0)
    np.testing.assert_allclose([*w, b], [4 / 3, 0, -1], atol=1e-11)
    assert objective(w, b, PAIR, SIGNS, bias=-1.0) == pytest.approx(8 / 9 + 4 / 9)


def test_logistic_objective_by_hand():
    w = np.array([np.log(3), 0.0])
    expected = np.log(3) ** 2 / 2 + 2 * (5 * np.log(4 / 3) + 7 * np.log(2))
    assert objective(w, 0.0, PAIR, SIGNS, 2.0, [5, 7], 0.0, "logistic") == pytest.approx(expected)


def problem(seed):
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.6))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(40) > 0.2, 1.0, -1.0)
    return X, y, rng.uniform(0.5, 2, 40)


@pytest.mark.parametrize("C", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_optimum_equals_that_of_scikit_learn(C, weighted):
    X, y, s = problem(0)
    s = s if weighted else None
    w, b, _ = tight(X, y, C, s)
    svc = LinearSVC(dual=True, loss="squared_hinge", C=C, tol=1e-10, max_iter=100_000, random_state=0)
    svc.set_params(fit_intercept=True, intercept_scaling=1).fit(X, y, s)
    np.testing.assert_allclose([*w, b], [*svc.coef_[0], svc.intercept_[0]], atol=1e-7)
    exact = solve_exact(X, y, C, s)
    np.testing.assert_allclose([*exact[0], exact[1]], [*w, b], atol=1e-8)

    with_constant = np.hstack([X, np.ones((len(X), 1))])  # its intercept is regularised like any weight
    logistic = LogisticRegression(C=C, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
    logistic.fit(with_constant, y, s)
    w, b, _ = solve_exact(X, y, C, s, loss="logistic")
    np.testing.assert_allclose([*w, b], logistic.coef_[0], atol=1e-7)
    w, b, n_iter = solve_dual_logistic(X, y, C, s, 1e-10, 10_000, "learn", Rng(0))
    np.testing.assert_allclose([*w, b], logistic.coef_[0], atol=1e-7)
    assert n_iter < 10_000


@pytest.mark.parametrize("bias", [-1.0, 0.5])
def test_dual_and_exact_agree_with_a_fixed_bias(bias):
    X, y, s = problem(1)
    w, b, _ = tight(X, y, 2.0, s, bias)
    exact, fixed, _ = solve_exact(X, y, 2.0, s, bias)
    np.testing.assert_allclose(w, exact, atol=1e-8)
    assert b == fixed == bias


def node(margins, *, labels=(), children=(), id=0):
    """A node whose margins are these on the row (1,): one feature, no bias."""
    W = np.array(margins, dtype=float)[:, None]
    return Node(np.array(labels, dtype=int), id=id, children=list(children), W=W, b=np.zeros(len(W)))


def scores(ranked):
    return [(l, pytest.approx(score), pytest.approx(margin)) for l, score, margin in ranked]


def hand_made_tree():
    leaves = [
        node([1.2, 3.0], labels=[0, 1], id=4),
        node([3.0], labels=[2], id=5),
        node([9.0], labels=[6], id=6),
        node([9.0], labels=[7], id=7),
    ]
    inner = node([1.5, 0.9, 0.8], children=leaves[:3], id=1)  # 0, −.01, −.04
    early = node([2.0, 0.0], labels=[4, 5], id=2)
    third = node([2.0], children=leaves[3:], id=3)
    return node([0.5, 0.4, 0.0], children=[inner, early, third])  # −.25, −.36, −1


def test_beam_search_by_hand():
    tree = hand_made_tree()
    kept = [(1, -0.25, 3.0), (0, -0.25, 1.2), (2, -0.26, 3.0), (4, -0.36, 2.0), (5, -1.36, 0.0)]
    x = plane((5,))  # rows are normalised
    assert predict([tree], x, beam=2)[0] == scores(kept)
    everything = [*kept[:3], (6, -0.29, 9.0), (4, -0.36, 2.0), (7, -1.0, 9.0), (5, -1.36, 0.0)]
    assert predict([tree], x, beam=None)[0] == scores(everything)
    assert predict([tree], x, beam=4)[0] == scores(everything)
    without_7 = [entry for entry in everything if entry[0] != 7]  # fourth of the third level's leaves
    assert predict([tree], x, beam=3)[0] == scores(without_7)
    assert predict([tree], x, beam=1)[0] == scores(kept[:2])
    assert predict([tree], plane((0,), (2,)), beam=1) == [[], scores(kept[:2])]


def test_beam_ties_by_margin_then_node():
    def tree(*margins):
        leaves = [node([1.0], labels=[j], id=j + 1) for j in range(len(margins))]
        return node(margins, children=leaves)

    first = lambda root: predict([root], [[1.0]], beam=1)[0][0][0]
    assert first(tree(1.5, 2.0, 1.0)) == 1
    assert first(tree(0.0, 2.0, 2.0)) == 1


def test_rank_ties_by_margin_then_label():
    leaf = node([2.0, 3.0, 0.5, 2.0], labels=[8, 5, 1, 3])
    assert [l for l, _, _ in predict([leaf], [[1.0]])[0]] == [5, 3, 8, 1]


def test_ensembles_average_probabilities_of_trees():
    flat = node([1.0, 0.0, -1.0], labels=[0, 1, 2])  # 0, −1, −4
    near, far = node([0.0, 1.0], labels=[0, 2], id=1), node([5.0], labels=[1], id=2)
    deep = node([1.0, 0.0], children=[near, far])  # label 1 is outside the beam
    expected = [
        (0, np.log((1 + np.exp(-1)) / 2), 0.5),
        (2, np.log((np.exp(-4) + 1) / 2), 0.0),
        (1, np.log(np.exp(-1) / 2), 0.0),  # its share of the second tree is 0, its margin the first tree's
    ]
    assert predict([flat, deep], [[1.0]], beam=1)[0] == scores(expected)


def test_scores_are_finite_below_underflow_and_exact_at_the_top():
    low, top = node([-40.0, -41.0], labels=[0, 1]), node([1.0, 7.0], labels=[0, 1])
    assert predict([low, low], [[1.0]])[0] == scores([(0, -(41.0**2), -40), (1, -(42.0**2), -41)])
    assert predict([top] * 3, [[1.0]])[0] == [(1, 0.0, 7.0), (0, 0.0, 1.0)]


def test_logistic_scores_by_hand():
    leaf = node([np.log(3), -800.0], labels=[0, 1])
    expected = [(0, np.log(3 / 4), np.log(3)), (1, -800.0, -800.0)]
    assert predict([leaf], [[1.0]], loss="logistic")[0] == scores(expected)


def made_data(seed=0, n=60, L=12):
    rng = np.random.default_rng(seed)
    topics = rng.random((L, 20)) * (rng.random((L, 20)) < 0.3)
    Y = rng.random((n, L)) < 0.15
    Y[:, -1] = False  # a label without rows
    Y[0] = False  # a row without labels
    X = Y @ topics + 0.05 * rng.random((n, 20))
    X[1] = 0  # a row without features
    return X, Y.astype(int), rng.integers(0, 3, n).astype(float)


PARAMS = {"branching": 3, "n_trees": 2, "seed": 4}


def assert_same_forest(a, b, **tolerance):
    for left, right in zip(a, b, strict=True):
        for x, y in zip(breadth_first(left), breadth_first(right), strict=True):
            assert x.labels.tolist() == y.labels.tolist()
            np.testing.assert_allclose(x.W, y.W, **tolerance)
            np.testing.assert_allclose(x.b, y.b, **tolerance)


def test_train_rows_and_classifiers_of_each_node():
    X, Y, s = made_data()
    U = unit_rows(X)
    for root in train(X, Y, s, prune=0.05, **PARAMS):
        nodes = breadth_first(root)
        assert max(v.level for v in nodes) >= 3
        for v in nodes:
            rows = [i for i in range(len(X)) if s[i] > 0 and (v is root or Y[i, v.labels].any())]
            assert v.rows.tolist() == rows
            groups = [c.labels for c in v.children] if v.children else [[l] for l in v.labels]
            for j, group in enumerate(groups):
                y = np.array([1.0 if Y[i, group].any() else -1.0 for i in rows])
                rng = Rng(derive(v.key, 2**32 + 1))
                w, b, n_iter = solve_dual_squared_hinge(U[rows], y, 1.0, s[rows], 0.1, 20, "learn", rng)
                w[np.abs(w) <= 0.05] = 0
                np.testing.assert_array_equal(v.W[j], w)
                assert (v.b[j], v.n_iter[j]) == (b, n_iter)


def test_rows_of_weight_zero_are_dropped():
    X, Y, s = made_data()
    Y[:, 5] = 0
    Y[np.flatnonzero(s == 0)[0], 5] = 1  # a label whose only row is dropped
    forest = train(X, Y, s, **PARAMS)
    assert 5 not in forest[0].labels
    assert_same_forest(forest, train(X[s > 0], Y[s > 0], s[s > 0], **PARAMS))


def test_weight_two_is_twice_the_loss():
    X, Y, _ = made_data()
    twice = train(X, Y, np.full(len(X), 2.0), **PARAMS)
    assert_same_forest(twice, train(X, Y, C=2.0, **PARAMS), atol=1e-12)


def test_train_on_given_trees():
    X, Y, s = made_data()
    forest = train(X, Y, s, **PARAMS)
    again = train(X, Y, s, seed=4, trees=[flatten(root) for root in forest])
    assert_same_forest(forest, again, atol=0)
    assert [v.key for v in breadth_first(again[1])] == [v.key for v in breadth_first(forest[1])]


def test_sixteen_bits_are_left():
    x = np.array([1, 2**-15, 3 * 2**-15, -(2**-14), 0.0])
    assert shorten(x).tolist() == [1, 0, 2**-13, -(2**-14), 0]
    many = np.full(2**11, 1.0)  # 2**11 * 2**14 * 127 would not fit into 32 bits
    assert shorten(many + 2**-14).tolist() == many.tolist()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_full_beam_is_exhaustive(seed):
    X, Y, _ = made_data(seed)
    forest = train(X, Y, max_iter=2, branching=3, n_trees=1, seed=seed)
    short = np.array([shorten(x) for x in unit_rows(X)])  # what is short already stays as it is
    for x, ranked in zip(short, predict(forest, short, beam=None, normalize=False), strict=True):
        expected = {}

        def walk(v, path, x=x, expected=expected):
            log_scores = path - np.maximum(0, 1 - (v.W @ x + v.b)) ** 2
            for j, score in enumerate(log_scores):
                if v.children:
                    walk(v.children[j], score)
                else:
                    expected[v.labels[j]] = score

        if x.any():
            walk(forest[0], 0.0)
        assert {l: score for l, score, _ in ranked} == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_trained_forest_finds_the_labels(loss):
    X, Y, _ = made_data()
    Y = Y * (np.cumsum(Y, axis=1) == 1)  # one label for each row
    forest = train(X, Y, loss=loss, solver="exact", C=100.0, prune=0.0, **PARAMS)
    labelled = np.flatnonzero(Y.any(axis=1) & X.any(axis=1))
    first = [ranked[0][0] for ranked in predict(forest, X[labelled], loss=loss)]
    assert np.mean(Y[labelled, first]) > 0.9
