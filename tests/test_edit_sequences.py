"""Random sequences of label edits compared with a naive model: a table of the log scores of every label."""

import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import bonsai_xmc
from bonsai_xmc.systems import SYSTEMS
from kinds import case_of

#: Kinds in which the log score of a label does not depend on other labels, if all labels are scored.
KINDS = [
    *("exact", "index", "adjusted", "blend", "leaf", "logistic", "joint", "calibrated", "texts"),
    *("row trees", "blend, row trees", "texts by names", "fusion, scores", *SYSTEMS),
]
#: Kinds whose labels are not merged.
UNMERGED = [*SYSTEMS, "fusion, scores"]
#: Of these, kinds that always score all labels, so that `calibrate` sees the ranking of the table.
CALIBRATED = ["exact", "adjusted", "logistic", "leml", "calibrated"]

EXAMPLES = int(os.environ.get("BONSAI_EXAMPLES", 6))  # sequences of each kind


def curve(method, x, y):
    """Return scikit-learn's regression of y on x as a function; None if it has no rising one."""
    if method == "isotonic":
        return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y).predict
    if y.all():
        return None
    found = LogisticRegression(C=100.0).fit(x[:, None], y)
    if found.coef_[0, 0] <= 0:
        return None
    return lambda values: found.predict_proba(values[:, None])[:, 1]


class Curves:
    """What `calibrate` learns: a curve for all labels, or for head, torso and tail labels."""

    def __init__(self, method, grouped, x, y, counts, all_counts):
        """Learn from ranked labels: log scores, whether they are right, and rows of each in training."""
        self.of_all = curve(method, x, y)
        self.curves, self.head_rows = None, 0
        if not grouped or self.of_all is None:
            return
        sizes, before = sorted(all_counts, reverse=True), 0
        head = []
        for size in sizes:
            if 2 * before < sum(sizes) and size >= 5:
                head.append(size)
            before += size
        self.head_rows = min(head, default=max(sizes) + 1)
        group = np.array([self.group(count) for count in counts])
        self.curves = [self._of_group(method, x[group == g], y[group == g]) for g in range(3)]

    def _of_group(self, method, x, y):
        few = y.sum() < 20 or y.all()
        return self.of_all if few else curve(method, x, y) or self.of_all

    def group(self, count):
        return 2 if count < 5 else 0 if count >= self.head_rows else 1

    def __call__(self, log_scores, count):
        """Return the scores of a label."""
        of_label = self.of_all if self.curves is None else self.curves[self.group(count)]
        found = log_scores > -np.inf
        result = np.zeros(len(log_scores))
        if found.any():
            result[found] = np.clip(of_label(log_scores[found].astype(np.float64)), 1e-6, 1)
        return result


class Edits(RuleBasedStateMachine):
    """A model, and by label the log scores, the number of rows and the true rows that it must have."""

    kind = "exact"

    def __init__(self):
        super().__init__()
        case = case_of(self.kind)
        self.X, self.model, self.n_made = case.X, case.model, 0
        self.scores = self._log_scores()
        self.counts = dict(zip(self.model.classes_.tolist(), self.model.label_counts_.tolist(), strict=True))
        self.truth = {label: {i for i, row in enumerate(case.Y) if label in row} for label in self.scores}
        self.curves = None
        if self.kind == "calibrated":  # as `kinds` calibrates it
            self.curves = self._learnt("isotonic", False)

    def _log_scores(self):
        """By label: a log score for each row, or −∞ where it is not found."""
        n = len(self.model.classes_)
        return self._by_label(*self.model._ranked(self.X, n, exact=True), -np.inf)

    def _by_label(self, ids, values, absent):
        table = np.full((len(ids), len(self.model.classes_)), absent, np.float32)
        rows, places = np.nonzero(ids >= 0)
        table[rows, ids[rows, places]] = values[rows, places]
        return dict(zip(self.model.classes_.tolist(), table.T, strict=True))

    def _learnt(self, method, grouped):
        """Return the curves of the ten best labels of each row."""
        best = self.model.classes_[self.model.top_k(self.X, min(10, len(self.scores)))[0]]
        pairs = [(i, label) for i, row in enumerate(best.tolist()) for label in row]
        x = np.array([self.scores[label][i] for i, label in pairs], np.float64)
        y = np.array([i in self.truth[label] for i, label in pairs])
        counts = [self.counts[label] for _, label in pairs]
        found = x > -np.inf
        assert found.all()
        return Curves(method, grouped, x, y, counts, list(self.counts.values())) if y.any() else None

    def some(self, data, least=1, most=4):
        return data.draw(
            st.lists(st.sampled_from(sorted(self.scores)), min_size=least, max_size=most, unique=True)
        )

    def new_label(self):
        self.n_made += 1
        return f"new {self.n_made}"

    @property
    def columns(self):
        """The tables by label."""
        return self.scores, self.counts, self.truth

    @precondition(lambda self: len(self.scores) > 5)
    @rule(data=st.data())
    def drop(self, data):
        gone = self.some(data)
        self.model = self.model.drop(gone)
        for label in gone:
            for column in self.columns:
                del column[label]

    @precondition(lambda self: len(self.scores) > 12)
    @rule(data=st.data())
    def restrict(self, data):
        kept = self.some(data, 8, 12)
        self.model = self.model.restrict([*kept, "no such label"])
        for label in [label for label in self.scores if label not in kept]:
            for column in self.columns:
                del column[label]

    @rule(data=st.data())
    def rename(self, data):
        names = {label: self.new_label() for label in self.some(data)}
        if len(names) > 1 and data.draw(st.booleans()):  # two labels change their names
            first, second = list(names)[:2]
            names[first], names[second] = second, first
        self.model = self.model.rename(names)
        self.scores, self.counts, self.truth = (
            {names.get(label, label): found for label, found in column.items()} for column in self.columns
        )

    @precondition(lambda self: len(self.scores) > 6 and self.kind not in UNMERGED)
    @rule(data=st.data(), into=st.sampled_from(["one of them", "another", "new"]))
    def merge(self, data, into):
        several = self.some(data, 2, 3)
        others = [label for label in sorted(self.scores) if label not in several]
        target = {"one of them": several[0], "another": others[0], "new": self.new_label()}[into]
        self.model = self.model.merge(several, target)
        all_of_them = [*several, *([target] if into == "another" else [])]
        best = np.max([self.scores.pop(label) for label in all_of_them], axis=0)
        rows = min(sum(self.counts.pop(label) for label in all_of_them), self.model.fitted_.n_rows)
        true = set.union(*(self.truth.pop(label) for label in all_of_them))
        self.scores[target], self.counts[target], self.truth[target] = best, rows, true

    @precondition(lambda self: self.kind in CALIBRATED)
    @rule(method=st.sampled_from(["isotonic", "platt"]), groups=st.sampled_from([None, "frequency"]))
    def calibrate(self, method, groups):
        Y = [sorted(label for label in self.truth if i in self.truth[label]) for i in range(self.X.shape[0])]
        curves = self._learnt(method, groups is not None)
        model = pickle.loads(pickle.dumps(self.model))  # it changes its model, and others share this one
        if curves is None or curves.of_all is None:
            with pytest.raises(ValueError, match="right"):
                model.calibrate(self.X, Y, method=method, groups=groups)
            return
        self.model, self.curves = model.calibrate(self.X, Y, method=method, groups=groups), curves

    @rule(way=st.sampled_from(["pickle", "file"]))
    def copy(self, way):
        if way == "pickle":
            self.model = pickle.loads(pickle.dumps(self.model))
            return
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "m")
            self.model = bonsai_xmc.load(Path(folder) / "m", mmap=False, verify=True)

    @invariant()
    def the_model_is_that_of_the_table(self):
        assert set(self.model.classes_.tolist()) == set(self.scores)
        for label, found in self._log_scores().items():
            assert np.array_equal(found, self.scores[label]), label
        counts = zip(self.model.classes_.tolist(), self.model.label_counts_.tolist(), strict=True)
        assert dict(counts) == self.counts

    @invariant()
    def scores_are_those_of_the_table(self):
        ids, scores = self.model.top_k(self.X, len(self.model.classes_), exact=True)
        for label, found in self._by_label(ids, scores, 0).items():
            if self.curves is None:
                assert np.array_equal(found, np.exp(self.scores[label])), label
            else:  # steps of the last digit keep labels of equal scores apart
                expected = self.curves(self.scores[label], self.counts[label])
                np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=label)
        if self.curves is not None and self.curves.curves is None:
            assert (np.diff(scores)[ids[:, 1:] >= 0] < 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_edits_gives_the_scores_of_a_naive_model(kind):
    machine = type(f"Edits of {kind}", (Edits,), {"kind": kind})
    few = settings(
        max_examples=EXAMPLES, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=few)
