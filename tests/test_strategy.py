"""Every "auto" is resolved in one place; given values that would have no effect are an error."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai
from bonsai_xmc._base.params import OF_PREDICTION
from bonsai_xmc._model.strategy import Facts
from bonsai_xmc._selection.strategy import resolve
from helpers import random_csr, same_model, says

SPARSE = Facts(n_rows=1000, n_features=500, n_entries=20_000, n_labels=300, dense=False)
DENSE = SPARSE.__class__(n_rows=1000, n_features=500, n_entries=500_000, n_labels=300, dense=True)
# 45,000 embeddings of 384 numbers with 4,108 labels, and 41,902 with 24,473: one and nine minutes of a core.
EMBEDDINGS = replace(DENSE, n_rows=45_000, n_features=384, n_entries=45_000 * 384, n_labels=4108)
MANY_EMBEDDINGS = replace(DENSE, n_rows=41_902, n_features=384, n_entries=41_902 * 384, n_labels=24_473)
FEW = SPARSE.__class__(n_rows=999, n_features=500, n_entries=20_000, n_labels=300, dense=False)
HUGE = SPARSE.__class__(n_rows=10**6, n_features=10**5, n_entries=10**8, n_labels=10**6, dense=False)
NEGATIVE = replace(HUGE, negative=True)


def strategy(facts=SPARSE, **params):
    return resolve(Bonsai(**params).get_params(deep=False), facts)


@pytest.mark.parametrize(
    ("facts", "params", "expected"),
    [
        (SPARSE, {}, {"classifiers": "one_vs_rest", "search": "exact", "prune": 0.05, "tail_exponent": 0.25}),
        (SPARSE, {}, {"C": 1.0, "bias": -1.0, "node_bias": "learn", "frequent_share": 0.02, "n_trees": 0}),
        # The loss of a row without evidence is not 0 at any bias: one of −1 scores every rare label 27 %.
        (SPARSE, {"loss": "logistic"}, {"classifiers": "one_vs_rest", "tail_exponent": 0.0, "bias": "learn"}),
        (SPARSE, {"loss": "logistic"}, {"C": 10.0, "node_C": 10.0}),
        (SPARSE, {"loss": "logistic", "C": 2}, {"C": 2.0, "node_C": 2.0}),
        (DENSE, {"loss": "logistic"}, {"classifiers": "one_vs_rest", "C": 10.0, "node_C": 10.0}),
        (SPARSE, {"solver": "newton"}, {"tail_exponent": 0.0}),
        (SPARSE, {"prune": 0.2}, {"prune": 0.2, "tail_exponent": 0.25}),
        (SPARSE, {"classifiers": "leaf"}, {"search": "beam", "prune": 0.1, "n_trees": 3, "bias": "learn"}),
        (SPARSE, {"classifiers": "leaf"}, {"max_depth": 3, "split_oversized": True, "max_leaf_size": 100}),
        (SPARSE, {"classifiers": "leaf", "max_depth": 3}, {"max_depth": 3, "split_oversized": False}),
        (SPARSE, {"classifiers": "leaf", "max_depth": None}, {"max_depth": None, "split_oversized": False}),
        (SPARSE, {"classifiers": "leaf", "branching_factor": 7}, {"max_leaf_size": 7}),
        (DENSE, {}, {"classifiers": "one_vs_rest", "search": "exact", "tail_exponent": 0.0}),
        (EMBEDDINGS, {}, {"classifiers": "one_vs_rest", "search": "exact", "bias": "learn"}),
        (MANY_EMBEDDINGS, {}, {"classifiers": "leaf", "search": "beam", "tail_exponent": 0.0}),
        (replace(DENSE, n_labels=50_001), {}, {"classifiers": "leaf", "search": "beam"}),
        (DENSE, {"search": "exact"}, {"classifiers": "one_vs_rest", "tail_exponent": 0.0, "bias": "learn"}),
        (HUGE, {}, {"classifiers": "one_vs_rest", "search": "index"}),
        # Where rows cannot be searched, such a training would scan them for too long.
        (HUGE, {"loss": "logistic"}, {"classifiers": "leaf", "search": "beam"}),
        (HUGE, {"solver": "newton"}, {"classifiers": "leaf", "search": "beam"}),
        (NEGATIVE, {}, {"classifiers": "leaf", "search": "beam"}),
        (replace(HUGE, n_rows=2**24), {}, {"classifiers": "leaf", "search": "beam"}),
        (replace(HUGE, n_positives=10**7), {}, {"classifiers": "one_vs_rest", "search": "index"}),
        (replace(HUGE, n_positives=10**8), {}, {"classifiers": "leaf", "search": "beam"}),
        (replace(HUGE, n_labels=49_999), {}, {"classifiers": "leaf", "search": "beam"}),
        (replace(HUGE, n_labels=50_001), {}, {"classifiers": "one_vs_rest", "search": "index"}),
        (replace(NEGATIVE, n_entries=10**5), {}, {"classifiers": "one_vs_rest", "search": "index"}),
        (HUGE, {"classifiers": "one_vs_rest"}, {"search": "index", "n_trees": 0, "prune": 0.05}),
        (HUGE, {"search": "exact"}, {"classifiers": "one_vs_rest", "search": "exact"}),
    ],
)
def test_auto_resolves_to_expected_values(facts, params, expected):
    found = strategy(facts, **params)
    assert {name: getattr(found, name) for name in expected} == expected


def test_large_clusters_are_split_where_there_are_many_labels():
    trees = {"classifiers": "leaf"}
    assert strategy(HUGE, **trees).bounded and not strategy(**trees).bounded
    assert strategy(**trees, balance="bounded").bounded
    assert not strategy(HUGE, **trees, balance="none").bounded
    balanced = strategy(HUGE, **trees, balance="equal")
    assert balanced.balanced and not balanced.bounded
    assert not strategy(**trees, balance="bounded").balanced


def test_the_reason_names_the_numbers():
    assert "300 labels × 20,000 entries of X" in strategy(FEW).reason
    assert "999 rows are too few to choose by" in strategy(FEW).reason
    assert "300 labels are no more than 50,000" in strategy().reason
    assert "24,473 labels × 16,090,368 entries of dense X are too many" in strategy(MANY_EMBEDDINGS).reason
    assert "50,001 labels are too many to score" in strategy(replace(DENSE, n_labels=50_001)).reason
    assert "too many" in strategy(NEGATIVE).reason
    many = strategy(replace(HUGE, n_positives=10**8)).reason
    assert "100,000,000 pairs of a row and a label are too many" in many
    assert "an index finds the rows that 1,000,000 labels need" in strategy(HUGE).reason
    assert strategy(classifiers="leaf").reason == 'classifiers="leaf" was given'


# --- giving a default changes nothing ---

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Bonsai).parameters.items()
    if name not in (*OF_PREDICTION, "n_jobs", "random_state")
}


@pytest.mark.parametrize(
    ("name", "value"),
    [*DEFAULTS.items(), ("C", 1.0), ("prune", 0.05), ("tail_exponent", 0.25)],
)
def test_giving_a_value_that_holds_anyway_changes_nothing(name, value):
    """`--tol 0.1`, the printed default, gives the same model as no option at all."""
    assert strategy(**{name: value}) == strategy()


def test_one_option_changes_that_option_alone(generated):
    base = strategy()
    for name, value in (("tol", 0.01), ("max_iter", 50), ("C", 2.0), ("prune", 0.1), ("normalize", False)):
        changed = strategy(**{name: value})
        differing = [field for field in vars(base) if getattr(base, field) != getattr(changed, field)]
        assert set(differing) == {name} | {f"node_{name}" for _ in range(name in ("C", "prune"))}


# --- what would be ignored ---

CLUSTERING = {
    "representation": "output",
    "n_trees": 2,
    "branching_factor": 50,
    "max_leaf_size": 100,
    "max_depth": 3,
    "balance": "equal",
}


@pytest.mark.parametrize("name", CLUSTERING)
@pytest.mark.parametrize("chosen", [{}, {"classifiers": "one_vs_rest", "search": "exact"}])
def test_what_only_trees_use_is_an_error_without_trees(name, chosen):
    with says(f"{name}={CLUSTERING[name]!r} would have no effect: this model has no trees") as caught:
        strategy(**{name: CLUSTERING[name]}, **chosen)
    assert 'classifiers="leaf"' in str(caught.value)  # the fix that the message names
    found = strategy(**{name: CLUSTERING[name]}, classifiers="leaf")
    assert found.search == "beam"


@pytest.mark.parametrize("name", CLUSTERING)
def test_what_only_clustering_uses_is_an_error_beside_a_tree(name):
    with says(f"{name}={CLUSTERING[name]!r} would have no effect: tree is given"):
        strategy(replace(SPARSE, given_trees=1), **{name: CLUSTERING[name], "classifiers": "leaf"})


def test_given_trees_are_an_error_without_trees_and_counted_otherwise():
    given = replace(SPARSE, given_trees=2)
    with says("tree would have no effect: this model has no trees"):
        strategy(given, classifiers="one_vs_rest")
    assert strategy(given, classifiers="leaf").n_trees == 2


def test_matrices_are_not_printed():
    with says("representation would have no effect: this model has no trees"):
        strategy(representation=np.ones((3, 3)))


def test_a_beam_size_is_an_error_without_trees():
    for value in (20, None):
        with says(f"beam_size is {value}, but this model has no trees to search"):
            strategy(beam_size=value)
    strategy(beam_size=20, classifiers="leaf")


def test_tail_exponent_needs_one_vs_rest_classifiers():
    with says('tail_exponent needs classifiers="one_vs_rest" or "blend", but this model has "leaf"'):
        strategy(tail_exponent=0.5, classifiers="leaf")
    with says('tail_exponent needs classifiers="one_vs_rest" or "blend", but this model has "leaf"'):
        strategy(NEGATIVE, tail_exponent=0.5)
    assert strategy(tail_exponent=0.0, classifiers="leaf").tail_exponent == 0


def test_exact_search_needs_one_vs_rest():
    with says('search="exact" needs one-vs-rest classifiers'):
        strategy(classifiers="leaf", search="exact")


# --- depth ---


def test_an_explicit_depth_is_a_maximum():
    """Leaves of 100 × `max_leaf_size` labels or more are not split beyond it."""
    n_labels = 1000
    rng = np.random.default_rng(0)
    X = random_csr((n_labels, 50), density=0.2, rng=rng, dtype=np.float32)
    Y = sp.eye(n_labels, dtype=int, format="csr")
    options = {
        "classifiers": "leaf",
        "branching_factor": 2,
        "max_leaf_size": 1,
        "n_trees": 1,
        "threshold": 0.5,
    }
    for depth in (1, 2, 3):
        tree = Bonsai(max_depth=depth, **options).fit(X, Y).trees_[0]
        assert tree.depth == depth
    (auto,) = Bonsai(**options).fit(X, Y).trees_
    assert auto.depth > 3  # leaves of 100 labels and more are split on
    sizes = [node.size for node in auto.nodes if node.is_leaf]
    assert max(sizes) < 100
    (unlimited,) = Bonsai(max_depth=None, **options).fit(X, Y).trees_
    assert unlimited.depth > auto.depth


def test_the_default_is_that_of_the_command_line(generated, tmp_path):
    from bonsai_xmc import _cli, datasets

    datasets.save_xc(tmp_path / "train.txt", generated.X_train, generated.Y_train)
    X, Y = datasets.load_xc(tmp_path / "train.txt")
    model = Bonsai().fit(X, Y)
    for options in ([], ["--tol", "0.1"], ["--C", "1.0"], ["--max-iter", "20"], ["--normalize"]):
        line = ["train", str(tmp_path / "train.txt"), "-o", str(tmp_path / "m"), "--quiet", *options]
        assert _cli.main(line) == 0
        assert same_model(Bonsai.load(tmp_path / "m"), model)
