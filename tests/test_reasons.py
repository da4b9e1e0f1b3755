"""Parts of a prediction: quantised rows, integer products, margins, and nodes of a beam search."""

import gc

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, _core, datasets
from kinds import TREES as SHAPE
from kinds import some

TREES = SHAPE | {"beam_size": 2}
KINDS = some("exact", "adjusted") | some("index", n_probe=1)
KINDS |= some("leaf", "one tree", "blend, adjusted", "logistic blend", "raw rows", beam_size=2)
KINDS |= {"dense": KINDS["blend, adjusted"]}


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=400, n_test=20, n_features=250, n_labels=200, random_state=3)


@pytest.fixture(scope="module", params=KINDS)
def model(request, data):
    X = data.X_train
    if request.param == "dense":
        X = X.toarray() + 0.25
    model = Bonsai(**KINDS[request.param], threshold=0.5, random_state=1, n_jobs=1).fit(X, data.Y_train)
    model.kind = request.param
    return model


def rows_of(model, X, i):
    x = X[[i]].toarray() + 0.25 if model.kind == "dense" else X[[i]]
    return model._rows(x, model.fitted_).to_core()


def quantised(row, normalize):
    """Plain reference: {feature: integer}, unit. The step is a power of two that keeps sums in 32 bits."""
    _, indices, values, _ = row if isinstance(row, tuple) else (None, np.arange(row.size), row[0], None)
    values = values.astype(np.float64)
    sum_limit = 2**31 // 127 - 1.0
    least = max(np.abs(values).max() / 32767, np.abs(values).sum() / (sum_limit - len(values)))
    step = 2.0 ** (np.frexp(least)[1])
    norm = np.sqrt((values**2).sum()) if normalize else 1.0
    integers = np.rint(values / step).astype(int)
    return {int(f): int(v) for f, v in zip(indices, integers, strict=True) if v}, np.float32(step / norm)


def test_rows_are_quantised_as_in_the_reference(model, data):
    core = model.fitted_.linear.core
    for i in range(5):
        row = rows_of(model, data.X_test, i)
        reasons = _core.Reasons(core, row)
        expected, unit = quantised(row, core.normalize)
        assert dict(zip(reasons.features.tolist(), reasons.values.tolist(), strict=True)) == expected
        assert reasons.unit == pytest.approx(unit, rel=1e-6)


def test_products_add_up_to_the_margin_of_every_classifier(model, data):
    """Of each node of each tree, and of each label: by the whole classifier, unpacked, as a reference."""
    core = model.fitted_.linear.core
    reasons = _core.Reasons(core, rows_of(model, data.X_test, 3))
    value = np.zeros(core.n_features, np.int64)
    value[reasons.features] = reasons.values
    for forest in filter(None, (core.trees, core.one_vs_rest)):
        arrays = forest.arrays()
        for child in range(len(arrays["children"])):
            features, weights, scale, bias = forest.classifier(child)
            assert (scale, bias) == (arrays["scale"][child], arrays["bias"][child])
            seen, total, *same, margin, score = reasons.decide(forest, child)
            whole = np.zeros(core.n_features, np.int64)
            whole[features] = weights
            assert np.array_equal(seen, whole[reasons.features]) and same == [scale, bias]
            assert total == (seen.astype(np.int64) * reasons.values).sum() == (whole * value).sum()
            expected = np.float32(total) * (np.float32(reasons.unit) * np.float32(scale)) + np.float32(bias)
            assert np.float32(margin) == expected
            slack = max(0.0, 1 - margin)
            log_score = -np.log1p(np.exp(-margin)) if core.loss == "logistic" else -(slack**2)
            assert score == pytest.approx(log_score, rel=1e-5, abs=1e-6)


def test_one_classifier_equals_those_of_its_node(model):
    forest = model.fitted_.linear.core.trees or model.fitted_.linear.core.one_vs_rest
    child, feature, value = forest.weights(0)
    for c in range(min(5, forest.arrays()["child_ptr"][1])):
        features, weights, scale, _ = forest.classifier(c)
        assert np.array_equal(features, feature[child == c])
        assert np.array_equal(weights * np.float32(scale), value[child == c])


def test_a_search_keeps_the_best_nodes_of_each_level(model, data):
    trees = model.fitted_.linear.core.trees
    reasons = _core.Reasons(model.fitted_.linear.core, rows_of(model, data.X_test, 1))
    if trees is None:
        with pytest.raises(ValueError, match="no trees"):
            reasons.search(2)
        return
    arrays = trees.arrays()
    for beam in (1, 2, 0):
        level, node, score = reasons.search(beam)
        kept = list(zip(level.tolist(), node.tolist(), score.tolist(), strict=True))
        assert sorted(kept) == sorted(plain_search(reasons, trees, arrays, beam))


def plain_search(reasons, forest, arrays, beam):
    """The nodes of each level, tree by tree, with float32 scores of the core's classifiers."""
    for tree in range(forest.n_trees):
        root = int(arrays["tree_ptr"][tree])
        visits, level = [(root, 0.0)], 0
        while True:
            yield from ((level, *visit) for visit in visits)
            inner = [visit for visit in visits if not arrays["is_leaf"][visit[0]]]
            if not inner:
                # Leaves stay while another tree goes on; a level that no tree has is not listed.
                depth = reasons.search(beam)[0].max()
                for later in range(level + 1, depth + 1):
                    yield from ((later, *visit) for visit in visits)
                break
            found = []
            for node, path in inner:
                for child in range(*arrays["child_ptr"][node : node + 2].tolist()):
                    *_, margin, score = reasons.decide(forest, child, path)
                    found.append((-score, -margin, root + int(arrays["children"][child])))
            best = sorted(found)[: beam or None]
            leaves = [visit for visit in visits if arrays["is_leaf"][visit[0]]]
            visits, level = leaves + [(node, -score) for score, _, node in best], level + 1


def test_the_model_lives_as_long_as_its_reasons(data):
    model = Bonsai(classifiers="leaf", threshold=0.5, **TREES).fit(data.X_train, data.Y_train)
    reasons = _core.Reasons(model.fitted_.linear.core, model._rows(data.X_test[[0]], model.fitted_).to_core())
    expected = reasons.search(2)[1].tolist()
    del model
    gc.collect()
    assert reasons.search(2)[1].tolist() == expected


def test_rows_that_do_not_fit(model, data):
    core = model.fitted_.linear.core
    with pytest.raises(ValueError, match="2 rows instead of one"):
        _core.Reasons(core, np.zeros((2, core.n_features), np.float32))
    with pytest.raises(ValueError, match="X has 3 features, but the model has 250"):
        _core.Reasons(core, np.zeros((1, 3), np.float32))
    forest = core.trees or core.one_vs_rest
    reasons = _core.Reasons(core, rows_of(model, data.X_test, 0))
    for call in (forest.classifier, lambda child: reasons.decide(forest, child)):
        with pytest.raises(ValueError, match="no such child"):
            call(10**9)
    empty = _core.Reasons(core, (np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 250))
    assert not len(empty.features) and empty.decide(forest, 0)[1] == 0


def test_zeros_and_huge_values(data):
    model = Bonsai(classifiers="leaf", threshold=0.5, **TREES).fit(data.X_train, data.Y_train)
    x = sp.csr_array(([1e30, -1e-30, 1e29], ([0, 0, 0], [3, 5, 9])), shape=(1, 250))
    reasons = _core.Reasons(model.fitted_.linear.core, model._rows(x, model.fitted_).to_core())
    assert reasons.features.tolist() == [3, 9]  # the third rounds to 0
    assert np.abs(reasons.values.astype(int)).max() <= 32767
