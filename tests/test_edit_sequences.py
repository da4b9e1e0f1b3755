"""Random sequences of label edits beside a naive model: a table of the scores of every label."""

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

import bonsai_xmc
from bonsai_xmc.systems import SYSTEMS
from kinds import case_of

#: Kinds in which the score of a label does not depend on other labels, if all labels are scored.
KINDS = ["exact", "index", "adjusted", "blend", "leaf", "logistic", "leml", "fastxml"]

EXAMPLES = int(os.environ.get("BONSAI_EXAMPLES", 6))  # sequences of each kind


class Edits(RuleBasedStateMachine):
    """A model, and by label the scores and the number of rows that it must have."""

    kind = "exact"

    def __init__(self):
        super().__init__()
        case = case_of(self.kind)
        self.X, self.model, self.n_made = case.X[:8], case.model, 0
        self.scores = dict(self._scores())
        self.counts = dict(zip(self.model.classes_.tolist(), self.model.label_counts_.tolist(), strict=True))

    def _scores(self):
        """By label: a score for each row, or 0 where it is not found."""
        n = len(self.model.classes_)
        ids, scores = self.model.top_k(self.X, n, exact=True)
        table = np.zeros((len(ids), n), np.float32)
        rows, places = np.nonzero(ids >= 0)
        table[rows, ids[rows, places]] = scores[rows, places]
        return zip(self.model.classes_.tolist(), table.T, strict=True)

    def some(self, data, least=1, most=4):
        return data.draw(
            st.lists(st.sampled_from(sorted(self.scores)), min_size=least, max_size=most, unique=True)
        )

    def new_label(self):
        self.n_made += 1
        return f"new {self.n_made}"

    @precondition(lambda self: len(self.scores) > 5)
    @rule(data=st.data())
    def drop(self, data):
        gone = self.some(data)
        self.model = self.model.drop(gone)
        for label in gone:
            del self.scores[label], self.counts[label]

    @precondition(lambda self: len(self.scores) > 12)
    @rule(data=st.data())
    def restrict(self, data):
        kept = self.some(data, 8, 12)
        self.model = self.model.restrict([*kept, "no such label"])
        self.scores = {label: self.scores[label] for label in self.scores if label in kept}
        self.counts = {label: self.counts[label] for label in self.scores}

    @rule(data=st.data())
    def rename(self, data):
        names = {label: self.new_label() for label in self.some(data)}
        if len(names) > 1 and data.draw(st.booleans()):  # two labels change their names
            first, second = list(names)[:2]
            names[first], names[second] = second, first
        self.model = self.model.rename(names)
        self.scores = {names.get(label, label): found for label, found in self.scores.items()}
        self.counts = {names.get(label, label): found for label, found in self.counts.items()}

    @precondition(lambda self: len(self.scores) > 6 and self.kind not in SYSTEMS)
    @rule(data=st.data(), into=st.sampled_from(["one of them", "another", "new"]))
    def merge(self, data, into):
        several = self.some(data, 2, 3)
        others = [label for label in sorted(self.scores) if label not in several]
        target = {"one of them": several[0], "another": others[0], "new": self.new_label()}[into]
        self.model = self.model.merge(several, target)
        all_of_them = [*several, *([target] if into == "another" else [])]
        best = np.max([self.scores.pop(label) for label in all_of_them], axis=0)
        rows = min(sum(self.counts.pop(label) for label in all_of_them), self.model.fitted_.n_rows)
        self.scores[target], self.counts[target] = best, rows

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
        for label, found in self._scores():
            assert np.array_equal(found, self.scores[label]), label
        counts = zip(self.model.classes_.tolist(), self.model.label_counts_.tolist(), strict=True)
        assert dict(counts) == self.counts


@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_edits_gives_the_scores_of_a_naive_model(kind):
    machine = type(f"Edits of {kind}", (Edits,), {"kind": kind})
    few = settings(
        max_examples=EXAMPLES, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=few)
