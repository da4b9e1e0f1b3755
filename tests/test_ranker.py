"""One classifier for each label against all rows: its optimum, and the search behind trees or without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, hstack
from sklearn.exceptions import ConvergenceWarning

import reference
import stages
from bonsai_xmc import Bonsai, _core, _core_testing
from helpers import forests_of, one_vs_rest_of, random_csr, trees_of
from reference import Node, unit_rows
from stored import (
    as_rows,
    lattice_forest,
    linear_params,
    make_data,
    make_dataset,
    make_weights,
    pack,
    stored_classifiers,
    stored_forest,
    stored_ranker,
    top_k,
)

several = settings(max_examples=60, deadline=None)
few = settings(max_examples=15, deadline=None)
on_each_isa = pytest.mark.usefixtures("isa")

# --- the classifiers ---


def train(X, Y, weights=None, normalize=True, threads=2, order=None, seed=5, costs=(), **params):
    """(labels in the order of the classifiers, weights, half a step of their quantisation, report)."""
    order = np.flatnonzero(Y.any(axis=0))[::-1] if order is None else order
    options = {"bias": -1.0, "prune": 0.0, "tol": 1e-3, "max_iter": 2000} | params
    dataset = make_dataset(X, Y, weights, normalize)
    labels = np.array(order, dtype=np.uint32)
    costs = np.array(costs, dtype=np.float32)
    params = linear_params(**options)
    forest, report = stages.train_one_vs_rest(dataset, labels, costs, 1.0, params, seed, threads)
    arrays = forest.arrays()
    _core.Forest(arrays, X.shape[1], Y.shape[1]).verify()
    assert arrays["children"].tolist() == list(order)
    W, scale, b = stored_classifiers(arrays, 0, X.shape[1])
    assert set(b) == {options["bias"]}
    return order, W, scale[:, None] / 2, report


def check_optimum(X, Y, weights=None, normalize=True, C=1.0, bias=-1.0, atol=0.01, labels=None, **params):
    """Each weight is that of the exact optimum on all rows, up to its quantisation and `atol`.

    Rows that are wrong by less than the tolerance t move the weights by at most √(2 C n) t, n of them.
    """
    order, W, half, report = train(X, Y, weights, normalize, C=C, bias=bias, **params)
    features = unit_rows(np.float64(X)) if normalize else np.float64(X)
    for place, label in enumerate(order):
        if labels is None or label in labels:
            y = np.where(Y[:, label] > 0, 1.0, -1.0)
            w, _, _ = reference.solve_exact(features, y, C, weights, bias)
            assert np.abs(W[place] - w).max() < half[place] + atol
    return report


def planes(seed, n=900, d=40, labels=6, density=0.3, least=0.02, most=0.3):
    """Labels are half-spaces of signed features: classifiers need many rows, most of them others'."""
    rng = np.random.default_rng(seed)
    X = random_csr((n, d), density=density, rng=rng, data_sampler=rng.standard_normal).toarray()
    Y = X @ rng.standard_normal((d, labels)) + rng.standard_normal((n, labels))
    shares = rng.uniform(least, most, labels)
    Y = np.stack([of > np.quantile(of, 1 - share) for of, share in zip(Y.T, shares, strict=True)], axis=1)
    return X.astype(np.float32), Y.astype(np.float64)


def test_two_rows_by_hand():
    # w = 2 (2 − w) for the label's own row; the other one is content with 0
    _, W, _, report = train(np.eye(2), np.eye(2), order=[1, 0])
    np.testing.assert_allclose(W, [[0, 4 / 3], [4 / 3, 0]], atol=1e-3)
    assert report == {"n_classifiers": 2, "n_unconverged": 0, "max_iter": report["max_iter"]}
    # Two rows alike but for the label: a + b with a = ½α, b = −½β, m = a + b: α = 2(2 − m), β = 2 max(0, m)
    _, W, _, _ = train(np.ones((2, 1)), np.array([[1.0], [0.0]]))
    np.testing.assert_allclose(W, [[4 / 5]], atol=1e-3)  # w = 2(2 − w) − 2w
    # Pruning is by the weight before quantisation
    _, W, _, _ = train(np.eye(2), np.eye(2), prune=1.3)
    assert np.count_nonzero(W) == 2
    _, W, _, _ = train(np.eye(2), np.eye(2), prune=1.34)
    assert not W.any()


@on_each_isa
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_optimum_on_all_rows(seed, weighted):
    """More rows than any sample that the solver begins with: most of those that matter are found later."""
    X, Y = planes(seed)
    report = check_optimum(X, Y, make_weights(len(X), seed) if weighted else None)
    assert (report["n_classifiers"], report["n_unconverged"]) == (6, 0)


@pytest.mark.parametrize(("C", "bias"), [(0.1, -1.0), (8.0, -1.0), (1.0, -1.5), (1.0, -4.0)])
def test_optimum_with_other_costs_and_biases(C, bias):
    X, Y = planes(2)
    check_optimum(X, Y, C=C, bias=bias, atol=0.01 * max(1, -bias))


def test_optimum_of_rows_of_very_different_lengths():
    X, Y = planes(3, n=700, labels=3)
    lengths = np.exp(np.random.default_rng(3).uniform(np.log(0.03), np.log(3), len(X)))
    X = (unit_rows(X) * lengths[:, None]).astype(np.float32)
    check_optimum(X, Y, normalize=False)
    check_optimum(X * 1e3, Y, C=1e-6, normalize=False, atol=1e-5, tol=1e-2)


@on_each_isa
def test_optimum_in_corners():
    """Duplicates that agree and that do not, empty rows with and without the label, a label on all rows."""
    X, Y = planes(4, n=300, labels=8)
    X[150:], Y[150:] = X[:150], Y[:150]
    Y[150:, 2] = Y[:150, 2][::-1]  # the same rows, other labels
    X[[5, 6, 200]] = 0
    Y[5] = 1
    Y[6] = 0
    Y[:, 3] = 1
    Y[:, 4] = 0
    Y[77, 4] = 1  # a single row
    Y[:, 5] = 0  # no row: no classifier
    Y[:, 6] = 0
    Y[5, 6] = 1  # a single row, which is empty
    Y[:, 7] = 1
    Y[150, 7] = 0  # all rows but one, whose twin has it
    check_optimum(X, Y)
    order, W, _, report = train(X, Y)
    assert 5 not in order and report["n_classifiers"] == 7
    assert not W[order.tolist().index(6)].any()


def test_one_row_and_one_label():
    _, W, _, _ = train(np.array([[3.0, 0.0, 4.0]]), np.ones((1, 1)))
    np.testing.assert_allclose(W, [[0.8, 0, 16 / 15]], rtol=0.01)  # 4/3 along the row
    _, W, _, _ = train(np.zeros((3, 2)), np.ones((3, 1)))
    assert not W.any()


@pytest.mark.parametrize("n_labels", [64, 65, 128, 130])
def test_groups_and_blocks(n_labels):
    """64 classifiers look at rows together, 128 are stored together."""
    X, Y = planes(5, n=700, labels=n_labels)
    report = check_optimum(X, Y, labels={0, 1, 62, 63, 64, 65, 127, 128, 129})
    assert (report["n_classifiers"], report["n_unconverged"]) == (n_labels, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_tolerance_finer_than_fixed_point_converges(seed):
    """Rows that look wrong in 16 bits and are not would be found again and again."""
    X, Y = planes(seed, d=60, labels=128)
    report = check_optimum(X, Y, tol=1e-4, labels={0, 64})
    assert report["n_unconverged"] == 0


def test_long_rows():
    """Hundreds of entries: sums in fixed point stay within their range, and good enough."""
    X, Y = planes(6, n=700, d=1000, labels=2, density=0.4)
    order, W, half, _ = train(X, Y, C=0.1)
    plain = _core_testing.solve(
        make_dataset(X, Y), linear_params(C=0.1, tol=1e-3, max_iter=2000, bias=-1.0), 1
    )[0]
    assert (np.abs(W - plain[order]) < half + 0.01).all()


@several
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0.3, 1.0, 4.0]))
def test_optimum_of_any_data(seed, weighted, C):
    rng = np.random.default_rng(seed)
    shape = {"n": int(rng.integers(4, 60)), "d": int(rng.integers(2, 20)), "labels": int(rng.integers(3, 10))}
    X, Y = make_data(seed, density=rng.uniform(0.1, 0.6), **shape)
    check_optimum(X, Y, make_weights(len(X), seed) if weighted else None, C=C)


@pytest.mark.parametrize("tol", [1e-3, 0.1])
def test_the_other_solver_agrees(generated, tol):
    """Trained by panels on all rows, as a tree without inner nodes."""
    X, Y = generated.X_train, generated.Y_train
    options = {"bias": -1.0, "prune": 0.0, "tol": tol, "max_iter": 1000, "tail_exponent": 0.0}
    one = Bonsai(classifiers="one_vs_rest", search="exact", **options).fit(X, Y)
    other = Bonsai(classifiers="leaf", max_depth=1, n_trees=1, **options).fit(X, Y)
    assert one_vs_rest_of(one)["children"].tolist() == trees_of(other)["children"].tolist()
    W, scale, _ = stored_classifiers(one_vs_rest_of(one), 0, X.shape[1])
    V, other_scale, _ = stored_classifiers(trees_of(other), 0, X.shape[1])
    half = (scale + other_scale)[:, None] / 2
    assert (np.abs(W - V) < half + (0.01 if tol < 0.1 else 0.2)).all()
    assert np.abs(W - V).mean() < 0.01
    exact = Bonsai(classifiers="leaf", max_depth=1, n_trees=1, beam_size=None, **options).fit(X, Y)
    found, wanted = (model.top_k(generated.X_test, 5)[0] for model in (one, exact))
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found, wanted, strict=True)]) > 4.5


def test_more_features_than_a_word_has_room_for():
    """Beyond 2^20 features rows are read as they are: 260 rows with 4,100 small entries of their own each."""
    rows, own = 260, 4_100
    X, Y = planes(7, n=rows, labels=3)
    alone = np.random.default_rng(7).uniform(0, 0.01, rows * own).astype(np.float32)
    alone = csr_matrix((alone, np.arange(rows * own), np.arange(0, rows * own + 1, own)))
    X = hstack([csr_matrix(X), alone], format="csr")
    assert X.shape[1] > 2**20
    options = {"bias": -1.0, "prune": 0.0, "tol": 1e-3, "max_iter": 1000, "tail_exponent": 0.0}
    one = Bonsai(classifiers="one_vs_rest", search="exact", **options).fit(X, Y)
    other = Bonsai(classifiers="leaf", max_depth=1, n_trees=1, **options).fit(X, Y)
    margins = one.decision_function(X), other.decision_function(X)
    np.testing.assert_allclose(*(m.toarray() for m in margins), atol=0.05)


def test_passes_that_run_out_are_told(generated):
    with pytest.warns(ConvergenceWarning, match="did not converge within max_iter=1"):
        Bonsai(classifiers="one_vs_rest", max_iter=1, tol=1e-6).fit(generated.X_train, generated.Y_train)


def test_costs_of_labels_multiply_c():
    X, Y = planes(3)
    order = np.flatnonzero(Y.any(axis=0))
    costs = 0.25 * 2.0 ** (np.arange(len(order)) % 5)
    _, W, half, _ = train(X, Y, order=order, costs=costs, C=2.0)
    for place, label in enumerate(order):
        y = np.where(Y[:, label] > 0, 1.0, -1.0)
        w, _, _ = reference.solve_exact(unit_rows(np.float64(X)), y, 2.0 * costs[place], None, -1.0)
        assert np.abs(W[place] - w).max() < half[place] + 0.01


def test_rare_labels_cost_more(generated, monkeypatch):
    data = generated
    seen = []
    of_labels = _core.ClassifierStage.of_labels

    class Recorded:
        @staticmethod
        def of_labels(dataset, labels, costs, *args):
            seen.append((labels, costs))
            return of_labels(dataset, labels, costs, *args)

    monkeypatch.setattr(_core, "ClassifierStage", Recorded)
    Bonsai(classifiers="one_vs_rest", tail_exponent=0.5, threshold=0.5).fit(data.X_train, data.Y_train)
    ((labels, costs),) = seen
    n = np.asarray(data.Y_train.sum(axis=0)).ravel()[labels]
    np.testing.assert_allclose(costs, np.sqrt(n.mean() / n), rtol=1e-6)


def test_one_cost_for_each_label():
    X, Y = planes(3)
    with pytest.raises(ValueError, match="one cost for each label"):
        train(X, Y, costs=[1.0])
    with pytest.raises(ValueError, match="costs of labels"):
        train(X, Y, costs=np.ones(np.count_nonzero(Y.any(axis=0))), loss="logistic")


def test_unknown_labels():
    with pytest.raises(ValueError, match="labels holds 2, but there are only 2"):
        train(np.eye(2), np.eye(2), order=[0, 2])


# --- the search ---


def check_routed(forest, ranker, X, beam, path_power, loss="squared_hinge", normalize=False, n_labels=None):
    """The core's search through `forest` to `ranker`, reference nodes both, against the reference's."""
    n_labels = len(ranker.labels) if n_labels is None else n_labels
    arrays = pack(forest), pack([ranker])
    return check_search(*arrays, forest, ranker, X, n_labels, beam, path_power, loss, normalize)


def check_search(trees, ranked, forest, ranker, X, n_labels, beam, path_power, loss, normalize):
    expected = reference.predict(forest, X, beam, loss, normalize, ranker, path_power)
    core = _core.Forest(trees, X.shape[1], n_labels, True)
    behind = _core.Forest(ranked, X.shape[1], n_labels)
    options = (beam, loss, normalize)
    ids, scores = top_k(core, behind, as_rows(X), n_labels, *options, threads=2, path_weight=path_power)
    for row, candidates in enumerate(expected):
        n = len(candidates)
        assert (ids[row, n:] == -1).all() and (scores[row, n:] == -np.inf).all()
        if path_power == 0:
            assert ids[row, :n].tolist() == [label for label, _, _ in candidates]
        wanted = {label: score for label, score, _ in candidates}
        assert wanted.keys() == set(ids[row, :n].tolist())
        np.testing.assert_allclose(scores[row, :n], [wanted[i] for i in ids[row, :n]], rtol=1e-5, atol=1e-4)
        assert (np.diff(scores[row, :n]) <= 0).all()
        # Neither companions nor k change anything.
        alone = top_k(core, behind, as_rows(X[[row]]), 2, *options, path_weight=path_power)
        assert alone[0].tolist() == ids[[row], :2].tolist()
        assert alone[1].tolist() == scores[[row], :2].tolist()
    return expected


def bare(forest):
    for node in (node for root in forest for node in reference.breadth_first(root)):
        if not node.children:
            node.W = node.b = None
    return forest


def leaf(margins, labels):
    """A leaf whose margins are these on the row (1,)."""
    return Node(np.array(labels), W=np.array(margins)[:, None], b=np.zeros(len(labels)))


def router(margins, *leaves):
    """A root that leads to leaves without classifiers, with these margins on the row (1,)."""
    children = [Node(np.array(labels), level=2, id=i + 1) for i, labels in enumerate(leaves)]
    labels = np.sort(np.concatenate([child.labels for child in children]))
    return Node(labels, children=children, W=np.array(margins)[:, None], b=np.zeros(len(leaves)))


def test_routed_search_by_hand():
    ranker = leaf([0.5, 3.0, 1.0, 0.0], [2, 0, 3, 1])  # log scores −¼, 0, 0, −1
    one = router([0.5, 1.0, -1.0], [0, 1], [2], [3])  # paths −¼, 0, −4
    two = router([0.0, 1.0], [0, 2, 3], [1])  # paths −1, 0
    x = np.ones((1, 1), np.float32)
    found = lambda *args: check_routed(*args)[0]
    # One tree: the ranker alone ranks what the beam reaches, by margin where scores are equal
    assert [c[:2] for c in found([one], ranker, x, 2, 0.0)] == [(0, 0), (2, -0.25), (1, -1)]
    assert [c[0] for c in found([one], ranker, x, None, 0.0)] == [0, 3, 2, 1]
    assert [c[0] for c in found([one], ranker, x, 1, 0.0)] == [2]
    # Times the path's score
    by_path = found([one], ranker, x, None, 1.0)
    assert [(label, round(score, 9)) for label, score, _ in by_path] == [
        (0, -0.25),
        (2, -0.25),
        (1, -1.25),
        (3, -4),
    ]
    assert [(c[0], c[1]) for c in found([one], ranker, x, None, 0.5)][-1] == (3, -2)
    # Two trees: the mean of the paths, where a tree that does not reach the label counts 0
    both = dict(c[:2] for c in found([one, two], ranker, x, None, 2.0))
    assert both[0] == pytest.approx(2 * np.log((np.exp(-0.25) + np.exp(-1)) / 2))
    assert both[3] == pytest.approx(2 * np.log((np.exp(-4) + np.exp(-1)) / 2))
    narrow = dict(c[:2] for c in found([one, two], ranker, x, 1, 1.0))
    assert narrow == pytest.approx({2: -0.25 + np.log(1 / 2), 1: -1 + np.log(1 / 2)})


def test_labels_that_the_ranker_lacks_are_no_candidates():
    ranker, trees = leaf([2.0, 1.0], [3, 0]), router([1.0, 1.0], [0, 1], [2, 3])
    ((best, second),) = check_routed([trees], ranker, np.ones((1, 1), np.float32), None, 0.5, n_labels=4)
    assert (best[0], second[0]) == (3, 0)


@several
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 5, None]),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.integers(1, 3),
)
def test_routed_search(seed, beam, path_power, n_trees):
    """Weights on a coarse grid, which is exact in single precision: ties abound."""
    rng = np.random.default_rng(seed)
    forest = bare(lattice_forest(rng, 30, 6, n_trees))
    labels = rng.permutation(30)[: rng.integers(20, 31)]
    W = rng.integers(-8, 9, (len(labels), 6)) / 4 * (rng.random((len(labels), 6)) < 0.5)
    ranker = Node(labels, W=W, b=rng.integers(-4, 5, len(labels)) / 4)
    X = rng.integers(-1, 3, (8, 6)).astype(np.float32)
    X[3] = 0
    expected = check_routed(forest, ranker, X, beam, path_power, n_labels=30)
    assert expected[3] == []


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("beam", [1, 3, None])
@pytest.mark.parametrize("path_power", [0.0, 0.5])
def test_routed_search_of_a_trained_model(beam, loss, path_power):
    X, Y = make_data(31, n=150, d=60, labels=160, density=0.2)
    options = {
        "branching_factor": 5,
        "n_trees": 2,
        "loss": loss,
        "path_weight": path_power,
        "beam_size": beam,
    }
    model = Bonsai(classifiers="one_vs_rest", search="beam", **options).fit(X, Y)
    assert trees_of(model)["tree_ptr"][1] > 20
    arrays = forests_of(model)
    forest, ranker = stored_forest(arrays[0], 60, bare=True), stored_ranker(arrays[1], 60)
    assert not np.array_equal(ranker.labels, np.sort(ranker.labels))  # those of a leaf stand together
    check_search(*arrays, forest, ranker, X[:40], 160, beam, path_power, loss, True)


@few
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_all_paths_find_what_the_exact_search_finds(seed, n_trees):
    X, Y = make_data(seed, n=60, d=30, labels=40)
    model = Bonsai(
        classifiers="one_vs_rest",
        search="beam",
        branching_factor=3,
        n_trees=n_trees,
        beam_size=None,
        random_state=seed,
    )
    model.fit(X, Y)
    (ids, scores), (exact_ids, exact_scores) = model._ranked(X, 40), model._ranked(X, 40, exact=True)
    assert np.array_equal(ids, exact_ids)
    np.testing.assert_allclose(scores, exact_scores, rtol=1e-6)
    assert (ids[~X.any(axis=1)] == -1).all()


def test_exact_search_is_the_reference_s(generated):
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(classifiers="one_vs_rest", search="exact").fit(X, Y)
    ranker = stored_ranker(one_vs_rest_of(model), X.shape[1])
    expected = reference.predict([ranker], generated.X_test[:40].toarray())
    ids, scores = model._ranked(generated.X_test[:40], 57)
    for row, candidates in enumerate(expected):
        assert set(ids[row]) == {label for label, _, _ in candidates}
        wanted = {label: score for label, score, _ in candidates}
        np.testing.assert_allclose(scores[row], [wanted[i] for i in ids[row]], rtol=1e-5, atol=1e-5)


def test_rows_do_not_depend_on_their_companions(generated):
    trees = {"search": "beam", "branching_factor": 6, "beam_size": 2, "path_weight": 0.3}
    for options in (trees, {"search": "exact"}):
        model = Bonsai(classifiers="one_vs_rest", **options)
        model.fit(generated.X_train, generated.Y_train)
        ids, scores = model.top_k(generated.X_test, 7)
        alone = [model.top_k(generated.X_test[[i]], 7) for i in range(generated.X_test.shape[0])]
        assert np.array_equal(np.concatenate([a[0] for a in alone]), ids)
        assert np.array_equal(np.concatenate([a[1] for a in alone]), scores)


def test_more_margins_than_there_is_room_for_at_once():
    """2048 rows that each need all of 80 blocks of the ranker are ranked in parts."""
    rng, n_labels = np.random.default_rng(8), 80 * 128
    W = rng.integers(-8, 9, (n_labels, 2)) / 4
    ranker = Node(rng.permutation(n_labels), W=W, b=np.zeros(n_labels))
    halves = np.split(rng.permutation(n_labels), 2)
    leaves = [Node(np.sort(half), level=2, id=i + 1) for i, half in enumerate(halves)]
    root = Node(np.arange(n_labels), children=leaves, W=np.zeros((2, 2)), b=np.ones(2))
    core = _core.Forest(pack([root]), 2, n_labels, True)
    behind = _core.Forest(pack([ranker]), 2, n_labels)
    X = rng.integers(1, 4, (4100, 2)).astype(np.float32)
    ids, _ = top_k(core, behind, as_rows(X), 3, None, normalize=False)
    for row in (0, 1000, 1637, 1638, 1639, 2047, 2048, 4099):
        margins = W @ X[row]
        best = sorted(range(n_labels), key=lambda c: (-min(margins[c], 1), -margins[c], ranker.labels[c]))[:3]
        assert ids[row].tolist() == ranker.labels[best].tolist()


def test_trees_and_rankers_that_do_not_fit(generated):
    routed = Bonsai(classifiers="one_vs_rest", search="beam", branching_factor=6).fit(
        generated.X_train, generated.Y_train
    )
    smaller = _core.Forest(one_vs_rest_of(routed), 300, 61)
    wider = _core.Forest(one_vs_rest_of(routed), 301, 60)
    trees, one_vs_rest = routed.fitted_.linear.core.trees, routed.fitted_.linear.core.one_vs_rest
    for pair, message in [
        ((None, None), "neither trees nor one-vs-rest classifiers"),
        ((trees, None), "trees without classifiers at their leaves need one-vs-rest classifiers"),
        ((trees, trees), "not those of a single leaf"),
        ((trees, smaller), "differ in their number of labels or features"),
        ((trees, wider), "differ in their number of labels or features"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.Model(*pair, "squared_hinge", True)
    _core.Model(trees, one_vs_rest, "squared_hinge", True)
