"""Accuracy on real data: floors for the default model, with either loss, and for three trees, a little below
what they reach."""

from functools import partial

import pytest

from bonsai_xmc import Bonsai, metrics

#: P@1, P@5, PSP@5 in percent.
FLOORS = {
    ("bibtex", "default"): (63.0, 27.6, 56.5),
    ("bibtex", "logistic"): (62.9, 28.4, 57.5),
    ("bibtex", "bonsai-i"): (62.2, 27.8, 56.8),
    ("delicious", "default"): (66.4, 55.6, 33.9),
    ("delicious", "logistic"): (65.7, 55.4, 33.9),
    ("delicious", "bonsai-i"): (66.0, 55.5, 33.7),
    ("eurlex57k", "default"): (92.4, 69.5, 66.6),
    ("eurlex57k", "bonsai-i"): (91.5, 68.7, 64.1),
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "system"), FLOORS)
def test_accuracy_stays_above_its_floor(real_data, name, system):
    data = real_data(name)
    special = {"default": Bonsai, "logistic": partial(Bonsai, loss="logistic")}
    model = special.get(system, partial(Bonsai.preset, system))()
    ids, _ = model.fit(data.X_train, data.Y_train).top_k(data.X_test, k=5)
    scores = metrics.evaluate(data.Y_test, ids, Y_train=data.Y_train, dataset=name)
    found = {metric: scores[metric] for metric in ("P@1", "P@5", "PSP@5")}
    assert all(value >= floor for value, floor in zip(found.values(), FLOORS[name, system], strict=True)), (
        found
    )
