"""Calls of omikuji's interface and their outcomes, for our implementation and for omikuji.

python tests/omikuji_calls.py FOLDER     # with omikuji installed; prints JSON
"""

import json
import os
import sys

KINDS = (AttributeError, OverflowError, TypeError, RuntimeError, RuntimeWarning, AssertionError, ValueError)
SETTINGS = {
    "default": {},
    "Parabel": {"min_branch_size": 10},
    "Bonsai": {"cluster_k": 8, "cluster_balanced": False, "max_depth": 3, "min_branch_size": 9},
    "AttentionXML": {"collapse_every_n_layers": 2, "min_branch_size": 8},
    "logistic": {"linear_loss_type": 1, "min_branch_size": 10},
    "one leaf": {"cluster_k": 1},
    "one tree": {"n_trees": 1, "linear_c": 2, "linear_eps": 0.01, "linear_max_iter": 50},
}


def outcome(call):
    """("raises", name of the exception) or ("returns", value)."""
    try:
        return ["returns", call()]
    except KINDS as error:
        return ["raises", next(kind.__name__ for kind in KINDS if isinstance(error, kind))]


def assigned(omikuji, name, value):
    param = omikuji.Model.default_hyper_param()
    setattr(param, name, value)
    return getattr(param, name)


def param_of(omikuji, **values):
    param = omikuji.Model.default_hyper_param()
    for name, value in values.items():
        setattr(param, name, value)
    return param


def rows_of(path):
    with open(path) as file:
        lines = file.read().splitlines()[1:]
    for line in lines:
        labels, *pairs = line.split()
        yield (
            {int(l) for l in labels.split(",")},
            [(int(p.split(":")[0]), float(p.split(":")[1])) for p in pairs],
        )


def close(found, expected):
    return {label: round(score, 4) for label, score in found} == {l: round(s, 4) for l, s in expected}


def calls(omikuji, folder):
    """Name → outcome, equal for both."""
    train, other = os.path.join(folder, "train.txt"), os.path.join(folder, "other.txt")
    param = omikuji.Model.default_hyper_param()
    fields = sorted(name for name in dir(param) if not name.startswith("_"))
    results = {
        "fields": [
            "returns",
            {name: [getattr(param, name), type(getattr(param, name)).__name__] for name in fields},
        ]
    }
    for name, value in (
        ("n_trees", -1), ("n_trees", 2.5), ("n_trees", "3"), ("n_trees", 5), ("max_depth", True),
        ("max_depth", 2**33), ("cluster_balanced", 2), ("cluster_balanced", "yes"), ("cluster_balanced", 0),
        ("linear_c", "1"), ("linear_c", 3), ("linear_loss_type", omikuji.LossType.LOG.value),
        ("linear_loss_type", omikuji.LossType.LOG), ("linear_max_iter", 2**33), ("unknown", 1),
    ):  # fmt: skip
        results[f"{name} = {value}"] = outcome(lambda n=name, v=value: assigned(omikuji, n, v))
    train_on = omikuji.Model.train_on_data
    results["no such file"] = outcome(lambda: train_on(os.path.join(folder, "none.txt")))
    results["not a data file"] = outcome(lambda: train_on(os.path.join(folder, "bad.txt")))
    for name, value in (
        ("linear_c", -1),
        ("linear_eps", 0),
        ("n_trees", 0),
        ("cluster_k", 0),
        ("max_depth", 0),
    ):
        refused = param_of(omikuji, **{name: value})
        results[f"training with {name} = {value}"] = outcome(lambda p=refused: train_on(train, p, 1))
    results["no such model"] = outcome(lambda: omikuji.Model.load(os.path.join(folder, "none")))
    results["init_logger"] = outcome(omikuji.init_logger)

    model = train_on(train, param_of(omikuji, min_branch_size=10), 2)
    results["n_features"], results["n_trees"] = (
        outcome(lambda: model.n_features),
        outcome(lambda: model.n_trees),
    )
    for name, pairs, options in (
        ("descending", [(5, 1.0), (4, 1.0), (3, 1.0)], {}),
        ("a generator", ((i, 1.0) for i in (3, 4, 5)), {}),
        ("an index twice", [(3, 1.0), (3, 1.0)], {}),
        ("an index too large", [(3, 1.0), (10_000, 1.0)], {}),
        ("a negative index", [(-1, 1.0), (3, 1.0)], {}),
        ("top_k 0", [(3, 1.0)], {"top_k": 0}),
        ("top_k −1", [(3, 1.0)], {"top_k": -1}),
    ):
        results[f"predict: {name}"] = outcome(
            lambda p=pairs, o=options: [l for l, _ in model.predict(p, **o)][:1]
        )
    results["predict: all labels"] = outcome(
        lambda: len(model.predict([(3, 1.0)], beam_size=100, top_k=1000))
    )
    results["densify_weights"] = outcome(lambda: model.densify_weights(0.05, n_threads=1))
    results["thread pool"] = outcome(lambda: model.init_prediction_thread_pool(1))
    saved = os.path.join(folder, "model")
    os.makedirs(saved)  # an empty folder is no obstacle
    results["save"] = outcome(lambda: model.save(saved))
    before = model.predict([(3, 1.0), (4, 1.0)])
    loaded = omikuji.Model.load(saved)
    results["same after loading"] = ["returns", close(loaded.predict([(3, 1.0), (4, 1.0)]), before)]
    results["save again"] = outcome(lambda: model.save(saved))
    doubled = omikuji.Model.load(saved)
    results["trees after saving again"] = outcome(lambda: doubled.n_trees)
    added = close(doubled.predict([(3, 1.0), (4, 1.0)]), before)
    results["predictions after saving again"] = ["returns", added]
    wider = train_on(other, param_of(omikuji, n_trees=1), 1)
    results["save beside another"] = outcome(lambda: wider.save(saved))
    results["save over a file"] = outcome(lambda: wider.save(train))
    return results


def qualities(omikuji, folder):
    """For each setting: the share of rows whose best label is right, and the mean score of the best label."""
    train = os.path.join(folder, "train.txt")
    rows = list(rows_of(train))
    results = {}
    for name, values in SETTINGS.items():
        model = omikuji.Model.train_on_data(train, param_of(omikuji, **values))
        best = [model.predict(pairs, top_k=1)[0] for _, pairs in rows]
        right = sum(label in labels for (label, _), (labels, _) in zip(best, rows))  # noqa: B905
        results[name] = [right / len(rows), sum(score for _, score in best) / len(rows)]
    return results


def trained_models(omikuji, folder):
    """Models in folders, one of them densified, and the predictions of each for all rows."""
    train = os.path.join(folder, "train.txt")
    rows = [pairs for _, pairs in rows_of(train)]
    results = {}
    for name, values in {**SETTINGS, "dense": {"min_branch_size": 10}}.items():
        model = omikuji.Model.train_on_data(train, param_of(omikuji, **values))
        if name == "dense":
            model.densify_weights(0.0)
        model.save(os.path.join(folder, name))
        results[name] = [model.predict(pairs, top_k=5) for pairs in rows]
    return results


if __name__ == "__main__":
    import omikuji as peer

    if sys.argv[2:] == ["models"]:
        print(json.dumps(trained_models(peer, sys.argv[1])))
        sys.exit()
    print(json.dumps({"calls": calls(peer, sys.argv[1]), "qualities": qualities(peer, sys.argv[1])}))
