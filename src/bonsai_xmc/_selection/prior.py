"""Choose the weights of the label-text prior on held-out rows.

Classifiers of a quarter of the rows score rows that are held out. There, many labels have no row or few, so
that each class of labels is judged by labels that are new to the model, or rare. The objective is nDCG@10
over all true labels; what labels with rows lose in P@1 or P@5 counts several times, so that others, of which
there may be many more, do not take their places.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bonsai_xmc._base.progress import LOG
from bonsai_xmc._base.random import shuffled
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.label_prior import (
    BIAS,
    FEWEST_ROWS,
    USUAL,
    LabelPrior,
    apply_texts,
    row_class,
    weights_of,
)
from bonsai_xmc._model.label_texts import Texts, keyed_as, text_vectors
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import FALLBACK, Judged, micro_f1, steadiest
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._training.train import Problem, train
from bonsai_xmc._training.work import Work

Array = npt.NDArray[Any]

_FEWEST = 1000  # rows; fewer say too little
_TRAINING_SHARE, _MOST_TRAINING = 0.25, 50_000
_MOST_HELD_OUT = 3000
_MOST_PAIRS = 300_000_000  # held-out rows × labels: bounds the time
_DENSE = 10_000_000  # rows × labels at a time: bounds the memory
_CANDIDATES = 60  # of a row: by their classifiers, by texts among labels without rows, and among rare ones
_RARE = 30
_DEPTH = 10

_WEIGHTS, _OFFSETS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3), (0.0, -0.05, -0.1, -0.2)
_WITHOUT_ROWS = (0.7, 1.0, 1.3), (0.0, -0.05, -0.1, -0.15, -0.2, -0.3)
_START = (1.0, -0.5)  # of labels without rows: almost none of them is among the best
_SWEEPS = 3
_MIN_GAIN = 0.01  # points; less is noise
_PRICE_P1, _PRICE_P5 = 2.0, 5.0  # points of nDCG for a point that labels with rows lose


@dataclass(frozen=True)
class Candidates:
    """Labels of held-out rows that may be among the best, (rows, candidates); unused places have −∞."""

    margin: Array  # by the classifier; BIAS without one
    similarity: Array  # of the row and the label's text
    kind: Array  # class of the label by its rows
    penalty: Array  # what the logit adjustment adds to the log score
    hit: Array
    ideal: Array  # (rows,): the largest possible gain
    n_true: Array  # (rows,): labels

    def figures(self, weights: Array, offsets: Array, loss: str) -> Array:
        """nDCG@10 of all labels, P@1 and P@5 of labels with rows, in percent."""
        margin = self.margin + weights[self.kind] * self.similarity + offsets[self.kind]
        score = _log_score(margin, loss) + self.penalty
        row = np.arange(len(score))[:, None]
        best = np.argpartition(-score, _DEPTH, axis=1)[:, :_DEPTH]
        best = best[row, np.argsort(-score[row, best], axis=1, kind="stable")]
        hit = self.hit[row, best]
        with_rows = hit & (self.kind[row, best] > 0)
        gain = (hit * _DISCOUNTS).sum(1) / self.ideal
        return 100 * np.array([gain.mean(), with_rows[:, 0].mean(), with_rows[:, :5].mean()])

    def threshold(self, prior: LabelPrior, loss: str) -> float:
        """The score with the best micro-F1."""
        weights, offsets = (np.array(part, np.float32) for part in (prior.weights, prior.offsets))
        margin = self.margin + weights[self.kind] * self.similarity + offsets[self.kind]
        scores = np.exp(_log_score(margin, loss) + self.penalty).ravel().astype(np.float64)
        judged = Judged(scores, self.hit.ravel(), np.ones(len(scores)), float(self.n_true.sum()))
        return steadiest(micro_f1(judged)) or FALLBACK


_N = len(FEWEST_ROWS)
_DISCOUNTS = 1 / np.log2(np.arange(2, _DEPTH + 2))


def _log_score(margin: Array, loss: str) -> Array:
    """As the core ranks: by the score, and equal scores by the margin."""
    if loss == "logistic":
        return np.asarray(-np.logaddexp(0, -margin))
    with np.errstate(invalid="ignore"):
        return np.asarray(-np.square(np.maximum(1 - margin, 0)) + 1e-6 * np.maximum(margin, -1e6))


class Chosen(NamedTuple):
    prior: LabelPrior
    threshold_ratio: float  # of the best threshold with texts to that without


class LabelVectors(NamedTuple):
    """The texts of labels, and a vector for each label: those of the rows, then those with texts alone."""

    texts: Texts
    vectors: sp.csr_array


def all_labels(text: FittedText, classes: Array, texts: Texts, threads: int) -> LabelVectors:
    """Return the vectors of all labels; ValueError if the texts do not belong to the rows."""
    texts = keyed_as(texts, classes)
    own = classes.tolist()
    others = texts.keys() - set(own)
    labels = own + [label for label in texts if label in others]
    vectors = text_vectors(text, [texts.get(label, []) for label in labels], threads)
    if not vectors.nnz:
        raise ValueError(f"label_texts has no text with a word of the documents, in {len(texts):,} labels")
    return LabelVectors(texts, vectors)


def with_label_texts(fitted: FittedModel, problem: Problem, labels: LabelVectors, work: Work) -> FittedModel:
    """Apply the label-text prior to a trained model, with weights chosen on held-out rows."""
    with work.phases.together("label texts"):
        chosen = choose_prior(problem, fitted.linear.strategy, labels.vectors, fitted.provenance.seed, work)
        threshold = float(np.clip(float(f"{fitted.threshold * chosen.threshold_ratio:.3g}"), 0, 1))
        return apply_texts(replace(fitted, threshold=threshold), labels.texts, chosen.prior, work.threads)


def choose_prior(
    problem: Problem, strategy: Strategy, vectors: sp.csr_array, seed: int, work: Work
) -> Chosen:
    """β and δ for these rows.

    `vectors` are those of the texts, first of the problem's labels, then of others.
    """
    n_rows, n_labels = problem.rows.n_rows, vectors.shape[0]
    if n_rows < _FEWEST:
        return Chosen(USUAL, 1.0)
    order = shuffled(n_rows, seed + 1)
    n_training = min(int(_TRAINING_SHARE * n_rows), _MOST_TRAINING)
    n_held_out = min(n_rows - n_training, _MOST_HELD_OUT, max(500, _MOST_PAIRS // n_labels))
    part = problem.take(np.sort(order[:n_training]))
    held_out = problem.take(np.sort(order[n_rows - n_held_out :]))
    if not len(part.labels.indices) or not len(held_out.labels.indices):
        return Chosen(USUAL, 1.0)
    alone = replace(strategy, classifiers="one_vs_rest", search="exact", n_trees=0, blend_weight=0.0)
    core, _ = train(part, alone, seed, work)
    assert core.one_vs_rest is not None
    weights, bias = weights_of(core.one_vs_rest)
    counts = np.zeros(n_labels, np.int64)
    counts[: len(bias)] = part.labels.counts
    found = candidates_of(held_out, weights, bias, vectors, counts, strategy.logit_adjustment)
    prior = search(found, strategy.loss, n_training)
    LOG.info("%s", prior.evidence)
    without = found.threshold(
        replace(prior, weights=(0,) * _N, offsets=(-np.inf,) + (0,) * (_N - 1)), strategy.loss
    )
    return Chosen(prior, found.threshold(prior, strategy.loss) / without)


def candidates_of(
    held_out: Problem,
    weights: sp.csr_array,
    bias: Array,
    vectors: sp.csr_array,
    counts: Array,
    adjustment: float,
) -> Candidates:
    n_labels = len(counts)
    truth = held_out.labels
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
        ids = [_best(margin, None), *(_best(similarity, group) for group in groups)]
        parts.append(_joined(np.sort(np.concatenate(ids, axis=1), axis=1), margin, similarity))
    label, margin, similarity = (np.concatenate(part) for part in zip(*parts, strict=True))
    row = np.arange(truth.n_rows)
    keys = np.repeat(row, np.diff(truth.indptr)) * np.int64(n_labels) + truth.indices
    some_labels = np.diff(truth.indptr) > 0
    ideal = np.concatenate([[0], np.cumsum(_DISCOUNTS)])[np.minimum(np.diff(truth.indptr), _DEPTH)]
    taken = np.maximum(label, 0)
    found = Candidates(
        margin=margin,
        similarity=similarity,
        kind=row_class(counts)[taken],
        penalty=(-adjustment * np.log(np.maximum(counts, 1))).astype(np.float32)[taken],
        hit=np.isin(row[:, None] * np.int64(n_labels) + label, keys) & (label >= 0),
        ideal=ideal,
        n_true=np.diff(truth.indptr),
    )
    return Candidates(**{name: values[some_labels] for name, values in vars(found).items()})


def _best(values: Array, group: Array | None) -> Array:
    """The columns with the largest values of each row, among a group; −1 where there are fewer."""
    some = values if group is None else values[:, group]
    k = min(_CANDIDATES, some.shape[1])
    best = np.argpartition(-some, k - 1, axis=1)[:, :k] if k else np.zeros((len(values), 0), np.int64)
    ids = best if group is None else group[best]
    return np.pad(ids, ((0, 0), (0, _CANDIDATES - k)), constant_values=-1)


def _joined(ids: Array, margin: Array, similarity: Array) -> tuple[Array, Array, Array]:
    """Of sorted ids: each once, the others −1; the margins and similarities of each."""
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
    row, there = np.arange(len(ids))[:, None], ids >= 0
    with_classifier = (ids < margin.shape[1]) & there
    own = margin[row, np.where(with_classifier, ids, 0)]
    own = np.where(with_classifier & (own > -np.inf), own, np.float32(BIAS))
    near = similarity[row, np.maximum(ids, 0)]
    return ids, np.where(there, own, -np.inf).astype(np.float32), np.where(there, near, 0)


def search(found: Candidates, loss: str, n_training: int) -> LabelPrior:
    """Coordinate search, class by class, for β and δ together."""
    weights, offsets = np.zeros(_N, np.float32), np.zeros(_N, np.float32)
    offsets[0] = -np.inf
    without = found.figures(weights, offsets, loss)

    def value(weights: Array, offsets: Array) -> float:
        figures = found.figures(weights, offsets, loss)
        loss_p1, loss_p5 = np.maximum(without - figures, 0)[1:]
        return float(figures[0] - _PRICE_P1 * loss_p1 - _PRICE_P5 * loss_p5)

    weights[0], offsets[0] = _START
    best = value(weights, offsets)
    for _ in range(_SWEEPS):
        before = best
        for kind in range(_N):
            if not (found.kind == kind).any():
                continue
            # The more rows, the less a label leans on its text.
            most = weights[kind - 1] if kind else np.inf
            least = weights[kind + 1] if kind + 1 < _N else 0
            for pair in _pairs(kind, least, most):
                some = weights.copy(), offsets.copy()
                some[0][kind], some[1][kind] = pair
                if (reached := value(*some)) > best + _MIN_GAIN:
                    best, (weights, offsets) = reached, some
        if best - before < 2 * _MIN_GAIN:
            break
    figures = found.figures(weights, offsets, loss)
    table = _table(len(found.ideal), n_training, without, figures)
    rounded = [tuple(round(float(number), 6) for number in part) for part in (weights, offsets)]
    return LabelPrior(rounded[0], rounded[1], table)


def _pairs(kind: int, least: float, most: float) -> list[tuple[float, float]]:
    weights, offsets = (_WEIGHTS, _OFFSETS) if kind else _WITHOUT_ROWS
    allowed = [w for w in weights if least - 1e-6 <= w <= most + 1e-6]
    return [(w, d) for w in allowed for d in offsets if w > 0 or d == 0]


def _table(n_rows: int, n_training: int, without: Array, figures: Array) -> str:
    lines = [f"{n_rows:,} held-out rows, classifiers of {n_training:,} others:"]
    lines.append(" " * 15 + " nDCG@10    P@1    P@5 (the latter of labels with rows)")
    for name, (ndcg, p1, p5) in (("without texts", without), ("with texts", figures)):
        lines.append(f"{name:15} {ndcg:7.2f} {p1:6.2f} {p5:6.2f}")
    return "\n".join(lines)
