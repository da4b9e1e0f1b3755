"""Weights of fields and n-grams, and the power of values, chosen on held-out training rows.

A coordinate search: starting from the defaults, one setting after the other is tried with other values, and
the best value is kept. Every candidate is trained and measured on the same sample: some training rows, some
held-out rows, and so many of the labels that one candidate costs a bounded number of steps. The texts of the
sample are vectorised once; a candidate has other weights for their blocks. A value is kept only if its gain
is larger than chance explains, and the best settings must be better than the default on a second sample.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import DEFAULTS
from bonsai_xmc._base.progress import LOG, Progress
from bonsai_xmc._base.random import seed_of, shuffled
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.labels import Labels, check_rows, labels_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._selection.held_out import HeldOut, climb, is_better
from bonsai_xmc._selection.strategy import resolve
from bonsai_xmc._text.blocks import AUTO, OWN_CHARS, OWN_WORDS, Block, Plan, make_plan
from bonsai_xmc._text.fitted import FittedText, text_options
from bonsai_xmc._text.records import columns_of
from bonsai_xmc._text.selection import best_columns, is_selected, most_ngrams
from bonsai_xmc._text.title import ROWS, SHORT, measure
from bonsai_xmc._training.samples import only_labels
from bonsai_xmc._training.train import TextFacts, make_problem, train
from bonsai_xmc._training.work import Work
from bonsai_xmc.datasets._documents.fields import guess_text_fields
from bonsai_xmc.metrics._definitions import OF_ROWS

# The budget: candidates, rows of a sample, and labels × entries of X of one candidate.
MOST_CANDIDATES = 32
_TRAINING_ROWS = 12_000
_HELD_OUT_ROWS = 4_000
_WORK = 1.5e9
_FEWEST_LABELS = 200
_LABEL_SEED = 1
_FEWEST_ROWS = 50
_DEPTH = 5  # nDCG at this
# A value is kept if its gain is at least so many standard errors of the paired difference.
_SURE = 1.0

# Parameters that the search sets itself.
_SEARCHED = ("word_ngrams", "char_ngrams")
_SAMPLE = 200  # rows by which fields with texts are found
_FEW_FIELDS = 6  # fields that may have words of their own


WORDS, PAIRS, CHARS = KINDS = ("words", "bigrams", "characters")
_POWER = "power"


@dataclass(frozen=True)
class Settings:
    """A candidate: what the search may change."""

    weights: Mapping[tuple[str, str], float]  # by field, "" for the joined text, and kind
    trigrams: float  # of the joined text, for each 1 of its bigrams; those of a field go with its bigrams
    power: float

    def params(self) -> dict[str, Any]:
        """Return the parameters of `TextBonsai` that stand for it."""
        own = {}
        for field in [field for field, kind in self.weights if kind == WORDS]:
            share = self.weights[field, PAIRS] / OWN_WORDS[2]
            words = {1: self.weights[field, WORDS], **{n: share * w for n, w in OWN_WORDS.items()}}
            blocks = {"word_ngrams": words, "char_ngrams": {5: self.weights[field, CHARS]}}
            own[field] = {name: orders for name, orders in blocks.items() if any(orders.values())} or 0.0
        pairs = self.weights["", PAIRS]
        return {
            "fields": own or None,
            "word_ngrams": {1: 1.0, 2: pairs, 3: self.trigrams * pairs},
            "char_ngrams": {5: self.weights["", CHARS]},
            "power": self.power,
        }

    def changed(self, name: Any, value: float) -> "Settings":
        """Return the settings with another power, or another weight of a field and kind."""
        if name == _POWER:
            return replace(self, power=value)
        return replace(self, weights={**self.weights, name: value})

    def describe(self) -> str:
        parts = [f"{field} {kind} × {w:g}".lstrip() for (field, kind), w in self.weights.items() if w]
        parts += [f"power {self.power:g}"] if self.power != 1 else []
        return ", ".join(parts) or "words only"


def is_auto(fields: Any) -> bool:
    """Return whether weights are searched for: ``fields="auto"``, or "auto" as the weight of a field."""
    if isinstance(fields, Mapping):
        return any(isinstance(weight, str) and weight == AUTO for weight in fields.values())
    return isinstance(fields, str) and fields == AUTO


def rows_and_fields(X: Any, fields: Any) -> tuple[Sequence[Any], list[str]]:
    """Return the rows in memory, and the fields that hold texts: none if the rows are strings."""
    frame = hasattr(X, "columns") and hasattr(X, "iloc")
    rows = X.to_dict("records") if frame else list(X)
    if isinstance(fields, Mapping):
        other = next((name for name, weight in fields.items() if weight != AUTO), None)
        if other is not None:
            raise ValueError(
                f"fields[{other!r}] is {fields[other]!r}, but another weight is 'auto'; all are, or none"
            )
        return rows, list(fields)
    if not rows or isinstance(rows[0], str):
        return rows, []
    sample = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping)]
    return rows, guess_text_fields(sample, None, "X")


def tune(
    params: Mapping[str, Any], names: Sequence[str], rows: Sequence[Any], y: Any, progress: Progress | None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Search for the best settings for `rows` with the fields `names`; None: there are too few rows.

    Return them as parameters of `TextBonsai`, and what was tried as a model file holds it.
    """
    labels = labels_of(y)
    check_rows(len(rows), labels.n_rows)
    for name in _SEARCHED:
        if params[name] != AUTO:
            raise ValueError(
                f"{name} is {params[name]!r}, but fields='auto' searches for it; leave it at 'auto'"
            )
    seed = seed_of(params["random_state"])
    order = shuffled(len(rows), seed)
    measured = next(columns_of(list(rows[:ROWS]), tuple(names), complete=False), [])
    title = measure(names, measured).title
    search = _Search({**params, "random_state": seed}, tuple(names), title, progress)
    first = search.sample(rows, labels, order)
    if first is None:
        return None
    default = search.default()
    path = search.climb(first, default)
    second = search.sample(rows, labels, order[first.n_rows :])
    if path[-1] != default and second is not None:
        again = search.measure(second, default, "the default, on other rows")
        checked = search.measure(second, path[-1], "the best, on other rows")
        path = path if checked.mean() >= again.mean() else [default]
    kept = {settings.describe() for settings in path[1:]}
    for entry in search.tried:
        entry["kept"] = entry["settings"] in kept
    LOG.info("tuning: %s", path[-1].describe())
    rows_and_labels = {
        "training_rows": first.n_training,
        "judging_rows": first.n_rows - first.n_training,
        "labels": first.labels.n_labels,
    }
    return path[-1].params(), {"tried": search.tried, **rows_and_labels}


# How candidates are trained: by one-vs-rest, with the parameters that were given. `fit` resolves "auto"
# afterwards, on more rows; the C of candidates is the usual one.
_CANDIDATE: dict[str, Any] = {"classifiers": "one_vs_rest", "search": "exact"}
_TRAINING_PARAMS = ("C", "loss", "solver", "tol", "max_iter", "tail_exponent", "normalize", "random_state")


@dataclass(frozen=True)
class _Sample:
    """Rows with some of their labels: the first `n_training` train, the others are held out."""

    columns: list[list[Any]]  # texts of all rows, by field
    every: Labels
    labels: Labels  # some of them
    n_training: int
    blocks: dict[tuple[Any, ...], sp.csr_array]  # TF-IDF of unit rows, of the blocks in use

    @property
    def n_rows(self) -> int:
        return self.labels.n_rows


_Step = Callable[[Settings], list[Settings]]


class _Search:
    def __init__(
        self, params: Mapping[str, Any], fields: tuple[str, ...], title: int | None, progress: Progress | None
    ) -> None:
        self._params, self._fields, self._title, self._progress = params, fields, title, progress
        self._options = text_options(params)
        self._threads = threads_of(params["n_jobs"])
        self._short = False
        self.tried: list[dict[str, Any]] = []

    def default(self) -> Settings:
        """Return the settings that a list of fields stands for."""
        weights = {(field, kind): 0.0 for kind in KINDS for field in self._fields}
        weights |= {("", PAIRS): 0.0, ("", CHARS): 0.0}
        trigrams = 0.0
        if self._title is not None:
            field = self._fields[self._title] if len(self._fields) > 1 else ""
            weights |= {(field, PAIRS): OWN_WORDS[2], (field, CHARS): OWN_CHARS[5]}
            trigrams = 0.0 if field else OWN_WORDS[3] / OWN_WORDS[2]
        return Settings(weights, trigrams, float(self._params["power"]))

    def sample(self, rows: Sequence[Any], labels: Labels, order: Array) -> _Sample | None:
        """Take a sample from the beginning of `order`; None if there are too few rows or labels."""
        n_rows = min(len(order), _TRAINING_ROWS + _HELD_OUT_ROWS)
        if n_rows < _FEWEST_ROWS:
            return None
        chosen = order[:n_rows]
        n_training = n_rows - min(_HELD_OUT_ROWS, n_rows // 4)
        [columns] = columns_of([rows[i] for i in chosen], self._fields, complete=False)
        joined = sum(len(text) for column in columns for text in column if text) / n_rows
        self._short = joined <= SHORT
        every = labels.take(chosen)
        sample = _Sample(columns, every, every, n_training, {})
        entries = self._matrix(sample, self.default()).nnz * n_training / n_rows
        known = np.flatnonzero(labels.take(chosen[:n_training]).counts)
        wanted = max(_FEWEST_LABELS, int(_WORK / max(1, entries)))
        some = only_labels(every, known[np.sort(shuffled(len(known), _LABEL_SEED)[:wanted])])
        return replace(sample, labels=some) if some.indptr[n_training] < len(some.indices) else None

    def climb(self, sample: _Sample, start: Settings) -> list[Settings]:
        """Try settings until none improves, or the budget is spent; see `held_out.climb`."""
        seen = {repr(start)}

        def measure(candidate: Settings) -> Array | None:
            if repr(candidate) in seen or len(self.tried) >= MOST_CANDIDATES:
                return None
            seen.add(repr(candidate))
            return self.measure(sample, candidate, candidate.describe())

        def better(figures: Array, best: Array, found: Array) -> bool:
            return is_better(figures, best, errors=_SURE) and bool(figures.mean() > found.mean())

        figures = self.measure(sample, start, "the default")
        return climb(start, figures, self._coordinates(), measure, better, MOST_CANDIDATES)

    def _coordinates(self) -> list[_Step]:
        """Return, for each setting, the candidates around the best one so far; important ones first."""
        chars, pairs, power = (0.0, 0.4, 1.0), (0.0, 0.15, 0.5), (_POWER, (0.85, 1.25))
        tried: list[tuple[Any, Sequence[float]]] = []
        if self._title is not None and len(self._fields) < 2:
            tried = [(("", CHARS), chars), (("", PAIRS), pairs), power]
        else:
            title = None if self._title is None else self._fields[self._title]
            if title is not None:
                tried += [((title, CHARS), chars), ((title, PAIRS), pairs), ((title, WORDS), (0.3,))]
            tried += [(("", PAIRS), (0.3, 0.6)), power]
            if self._short or not self._fields:
                tried.append((("", CHARS), (0.4, 0.8)))
            others = [field for field in self._fields if field != title and len(self._fields) > 1]
            tried += [((field, WORDS), (0.3,)) for field in others[:_FEW_FIELDS]]
        step = lambda name, values: lambda best: [best.changed(name, value) for value in values]
        return [step(*one) for one in tried]

    def measure(self, sample: _Sample, settings: Settings, what: str) -> Array:
        """Return nDCG@5 of each held-out row that has a label."""
        X = self._matrix(sample, settings)
        n = sample.n_training
        given = dict(DEFAULTS) | {name: self._params[name] for name in _TRAINING_PARAMS} | _CANDIDATE
        plan = self._plan(settings)
        texts = TextFacts(len(plan.texts), len(plan.blocks))
        problem = make_problem(training_rows(X, "X")[0], sample.labels, texts=texts)
        part, held_out = problem.take(np.arange(n)), HeldOut.of(problem, np.arange(n, sample.n_rows))
        work = Work(self._threads)
        model, _ = train(part, resolve(given, part.facts), given["random_state"], work)
        ranking = held_out.rank(model, _DEPTH, work)
        scores = OF_ROWS["nDCG"](ranking, ranking.ids.shape[1]).part[ranking.truth.n_true > 0]
        self.tried.append({"settings": what, "nDCG@5": round(100 * float(scores.mean()), 2), "kept": False})
        LOG.info("tuning: %.2f %s", 100 * scores.mean(), what)
        if self._progress is not None:
            self._progress("tuning", len(self.tried), MOST_CANDIDATES + 2)
        return scores

    def _plan(self, settings: Settings) -> Plan:
        params = settings.params()
        return make_plan(
            params["fields"], params["word_ngrams"], params["char_ngrams"], self._params["char_boundaries"]
        )

    def _matrix(self, sample: _Sample, settings: Settings) -> sp.csr_array:
        plan = self._plan(settings)
        parts = [block.weight * self._block(sample, block, settings.power) for block in plan.blocks]
        return sp.csr_array(sp.hstack(parts, format="csr", dtype=np.float32))

    def _block(self, sample: _Sample, block: Block, power: float) -> sp.csr_array:
        key = (block.text, block.analyzer, block.min_n, power)
        if key not in sample.blocks:
            places = [self._fields.index(field) for field in block.text] or [0]
            columns = [sample.columns[place] for place in places]
            plan = Plan(block.text, (replace(block, weight=1.0),))
            options = replace(self._options, power=power)
            _, matrix = FittedText.fit([columns], plan, options, self._threads, rows=True)
            assert matrix is not None
            sample.blocks[key] = self._selected(sample, block, matrix.to_scipy())
        return sample.blocks[key]

    def _selected(self, sample: _Sample, block: Block, X: sp.csr_array) -> sp.csr_array:
        """Select the n-grams of the joined text that `fit` would select, by the rows that train."""
        n = sample.n_training
        most = most_ngrams(self._params["max_ngrams"], n)
        joined = block.text == self._fields
        if most is None or not joined or not is_selected(block) or X.shape[1] <= most:
            return X
        best = best_columns(X[:n], sample.every.take(np.arange(n)), most)
        return sp.csr_array(normalize(X[:, best], copy=False))
