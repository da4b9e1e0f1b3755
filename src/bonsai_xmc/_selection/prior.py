"""Choose the weights of the label-text prior on held-out rows.

Classifiers of a quarter of the rows score rows that are held out. There, many labels have no row or few, so
that each class of labels is measured on labels that are new to the model, or rare. The objective is nDCG@10
over all true labels; what labels with rows lose in P@1 or P@5 counts several times, so that others, of which
there may be many more, do not displace them.

Imports the core for the log score of a margin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.label_prior import (
    BIAS,
    FEWEST_ROWS,
    USUAL,
    LabelPrior,
    Texts,
    apply_texts,
    keyed_as,
    row_class,
    text_vectors,
    weights_of,
)
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import FALLBACK, Scored, micro_f1, steadiest
from bonsai_xmc._selection.held_out import Evidence, best_of, climb, is_better, measured
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._training import splits
from bonsai_xmc._training.train import Problem, train
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._ranking import Ranking, Truth

_FEWEST = 1000  # rows; fewer are too few to measure by
_TRAINING_SHARE, _MOST_TRAINING = 0.25, 50_000
_MOST_HELD_OUT = 3000
_MOST_PAIRS = 300_000_000  # held-out rows × labels: bounds the time
_DENSE = 10_000_000  # rows × labels at a time: bounds the memory
_CANDIDATES = 60  # of a row: by their classifiers, by texts among labels without rows, and among rare ones
_RARE = 30
_DEPTH, _MEASURES = 10, ("nDCG@10", "P@1", "P@5")

_WEIGHTS, _OFFSETS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3), (0.0, -0.05, -0.1, -0.2)
_WITHOUT_ROWS = (0.7, 1.0, 1.3), (0.0, -0.05, -0.1, -0.15, -0.2, -0.3)
_START = (1.0, -0.5)  # of labels without rows: almost none of them is among the best
_SWEEPS = 3
_MIN_GAIN = 0.01  # points; less is noise
_PRICE_P1, _PRICE_P5 = 2.0, 5.0  # points of nDCG for a point that labels with rows lose

_N = len(FEWEST_ROWS)
_WITHOUT = (0.0,) * _N, (-np.inf,) + (0.0,) * (_N - 1)  # β and δ of each class where texts do not count
_Pairs = tuple[tuple[float, float], ...]  # β and δ of each class


@dataclass(frozen=True)
class Candidates:
    """Labels of held-out rows that may be among the best, (rows, candidates); unused places have −∞."""

    labels: Ranking  # in no particular order
    margin: Array  # by the classifier; BIAS without one
    similarity: Array  # of the row and the label's text
    penalty: Array  # what the logit adjustment adds to the log score
    counts: Array  # (labels,): training rows

    @cached_property
    def kind(self) -> Array:
        """Class of each candidate by its rows."""
        return row_class(self.counts)[np.maximum(self.labels.ids, 0)]

    def scores(self, weights: Any, offsets: Any, loss: str) -> Array:
        """Return log scores with these β and δ of each class."""
        weights, offsets = np.array(weights, np.float32), np.array(offsets, np.float32)
        margin = self.margin + weights[self.kind] * self.similarity + offsets[self.kind]
        return np.asarray(_log_score(margin, loss) + self.penalty)

    def figures(self, weights: Any, offsets: Any, loss: str) -> Array:
        """Return nDCG@10 of all labels, P@1 and P@5 of labels with rows, in percent."""
        best = best_of(self.labels, self.scores(weights, offsets, loss), _DEPTH)
        with_rows = best.among(self.counts > 0)
        return np.append(measured(best, _MEASURES[:1]), measured(with_rows, _MEASURES[1:]))

    def threshold(self, weights: Any, offsets: Any, loss: str) -> float:
        """Return the score with the best micro-F1."""
        scores = np.exp(self.scores(weights, offsets, loss))
        return steadiest(micro_f1(Scored.of(self.labels, scores))) or FALLBACK


def _log_score(margin: Array, loss: str) -> Array:
    """Return scores by which labels rank as in the core: equal scores are ordered by the margin."""
    return _core.log_scores(loss, margin) + 1e-6 * np.maximum(margin, -1e6)


class ChosenPrior(NamedTuple):
    prior: LabelPrior
    threshold_ratio: float  # of the best threshold with texts to that without


class LabelsWithTexts(NamedTuple):
    """The texts of labels, and a vector for each label: those of the rows, then those with only texts."""

    texts: Texts
    vectors: sp.csr_array


def all_labels(text: FittedText, classes: Array, texts: Texts, threads: int) -> LabelsWithTexts:
    """Return the vectors of all labels; ValueError if the texts do not belong to the rows."""
    texts = keyed_as(texts, classes)
    own = classes.tolist()
    others = texts.keys() - set(own)
    labels = own + [label for label in texts if label in others]
    vectors = text_vectors(text, [texts.get(label, []) for label in labels], threads)
    if not vectors.nnz:
        raise ValueError(f"label_texts has no text with a word of the documents, in {len(texts):,} labels")
    return LabelsWithTexts(texts, vectors)


def with_label_texts(
    fitted: FittedModel, problem: Problem, labels: LabelsWithTexts, work: Work
) -> FittedModel:
    """Apply the label-text prior to a trained model, with weights chosen on held-out rows."""
    with work.phases.together("label texts"):
        chosen = choose_prior(problem, fitted.linear.strategy, labels.vectors, fitted.provenance.seed, work)
        threshold = float(np.clip(float(f"{fitted.threshold * chosen.threshold_ratio:.3g}"), 0, 1))
        own = fitted.labels.thresholds
        scaled = None if own is None else np.clip(own * np.float32(chosen.threshold_ratio), 0, 1)
        fitted = replace(fitted, threshold=threshold, labels=replace(fitted.labels, thresholds=scaled))
        return apply_texts(fitted, labels.texts, chosen.prior, work.threads)


def choose_prior(
    problem: Problem, strategy: Strategy, vectors: sp.csr_array, seed: int, work: Work
) -> ChosenPrior:
    """Choose β and δ for these rows.

    `vectors` are those of the texts, first of the problem's labels, then of others.
    """
    n_rows, n_labels = problem.rows.n_rows, vectors.shape[0]
    if n_rows < _FEWEST:
        return ChosenPrior(USUAL, 1.0)
    n_training = min(int(_TRAINING_SHARE * n_rows), _MOST_TRAINING)
    n_held_out = min(n_rows - n_training, _MOST_HELD_OUT, max(500, _MOST_PAIRS // n_labels))
    split = splits.split(n_rows, n_training, n_held_out, seed + 1)
    part, held_out = problem.take(split.training), problem.take(split.held_out)
    if not len(part.labels.indices) or not len(held_out.labels.indices):
        return ChosenPrior(USUAL, 1.0)
    alone = strategy.only_one_vs_rest()
    core, _ = train(part, alone, seed, work)
    assert core.one_vs_rest is not None
    weights, bias = weights_of(core.one_vs_rest)
    counts = np.zeros(n_labels, np.int64)
    counts[: len(bias)] = part.labels.counts
    found = candidates_of(held_out, weights, bias, vectors, counts, strategy.logit_adjustment)
    prior = search(found, strategy.loss, n_training)
    LOG.info("%s", prior.evidence)
    without, with_texts = (
        found.threshold(*part, strategy.loss) for part in (_WITHOUT, (prior.weights, prior.offsets))
    )
    return ChosenPrior(prior, with_texts / without)


def candidates_of(
    held_out: Problem,
    weights: sp.csr_array,
    bias: Array,
    vectors: sp.csr_array,
    counts: Array,
    adjustment: float,
) -> Candidates:
    n_labels = len(counts)
    held_out = held_out.take(np.flatnonzero(np.diff(held_out.labels.indptr)))  # rows that have labels
    rows = held_out.rows.to_scipy()
    has_text = np.diff(vectors.indptr) > 0
    groups = [np.flatnonzero(has_text & (counts == 0))]
    groups.append(np.flatnonzero(has_text & (counts > 0) & (counts < _RARE)))
    of_weights, of_texts = sp.csr_array(weights.T), sp.csr_array(vectors.T)
    parts = []
    size = max(1, _DENSE // n_labels)
    for begin in range(0, rows.shape[0], size):
        some = rows[begin : begin + size]
        margin = (some @ of_weights).toarray() + bias
        similarity = (some @ of_texts).toarray()
        best = [_best(margin, None), *(_best(similarity, group) for group in groups)]
        parts.append(_joined(np.sort(np.concatenate(best, axis=1), axis=1), margin, similarity))
    ids, margin, similarity = (np.concatenate(part) for part in zip(*parts, strict=True))
    labels = Truth(held_out.labels.indptr, held_out.labels.indices).rank(ids)
    penalty = (-adjustment * np.log(np.maximum(counts, 1))).astype(np.float32)[np.maximum(ids, 0)]
    return Candidates(labels, margin, similarity, penalty, counts)


def _best(values: Array, group: Array | None) -> Array:
    """Return the columns with the largest values of each row, among a group; −1 where there are fewer."""
    some = values if group is None else values[:, group]
    k = min(_CANDIDATES, some.shape[1])
    best = np.argpartition(-some, k - 1, axis=1)[:, :k] if k else np.zeros((len(values), 0), np.int64)
    ids = best if group is None else group[best]
    return np.pad(ids, ((0, 0), (0, _CANDIDATES - k)), constant_values=-1)


def _joined(ids: Array, margin: Array, similarity: Array) -> tuple[Array, Array, Array]:
    """Return sorted ids, each once and the others −1, with the margins and similarities of each."""
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
    row, there = np.arange(len(ids))[:, None], ids >= 0
    with_classifier = (ids < margin.shape[1]) & there
    own = margin[row, np.where(with_classifier, ids, 0)]
    own = np.where(with_classifier & (own > -np.inf), own, np.float32(BIAS))
    near = similarity[row, np.maximum(ids, 0)]
    return ids, np.where(there, own, -np.inf).astype(np.float32), np.where(there, near, 0)


def search(found: Candidates, loss: str, n_training: int) -> LabelPrior:
    """Search β and δ together, class by class."""
    without = found.figures(*_WITHOUT, loss)

    def value(pairs: _Pairs) -> float:
        weights, offsets = zip(*pairs, strict=True)
        figures = found.figures(weights, offsets, loss)
        loss_p1, loss_p5 = np.maximum(without - figures, 0)[1:]
        return float(figures[0] - _PRICE_P1 * loss_p1 - _PRICE_P5 * loss_p5)

    def step(kind: int) -> Callable[[_Pairs], list[_Pairs]]:
        return lambda best: [(*best[:kind], pair, *best[kind + 1 :]) for pair in _tried(best, kind)]

    start: _Pairs = (_START, *((0.0, 0.0),) * (_N - 1))
    steps = [step(kind) for kind in range(_N) if (found.kind == kind).any()]
    better = lambda reached, _, best: is_better(reached, best, _MIN_GAIN)
    best = climb(start, value(start), steps, value, better, _SWEEPS, 2 * _MIN_GAIN)[-1]
    weights, offsets = zip(*best, strict=True)
    figures = {"without texts": without, "with texts": found.figures(weights, offsets, loss)}
    n_rows = found.labels.truth.n_rows
    note = " (P@1 and P@5 of labels with rows)"
    return LabelPrior(weights, offsets, str(Evidence(_MEASURES, figures, n_rows, n_training, note)))


def _tried(best: _Pairs, kind: int) -> list[tuple[float, float]]:
    """Return β and δ to try for a class; the more rows a label has, the less its text counts."""
    weights, offsets = (_WEIGHTS, _OFFSETS) if kind else _WITHOUT_ROWS
    most = best[kind - 1][0] if kind else np.inf
    least = best[kind + 1][0] if kind + 1 < _N else 0.0
    allowed = [w for w in weights if least <= w <= most]
    return [(w, d) for w in allowed for d in offsets if w > 0 or d == 0]
