"""Choose how many blocks of classifiers a search by an index scores for a row."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._base.random import shuffled
from bonsai_xmc._data.labels import Labels, is_true
from bonsai_xmc._data.rows import DenseRows, Rows, SparseRows
from bonsai_xmc._model.strategy import Probes
from bonsai_xmc._training.work import Work

if TYPE_CHECKING:
    from bonsai_xmc import _core


_TARGET = 0.995  # of the best labels among all
# Rows that are searched: few enough for no more than 2 % of the time of training.
_SHARE = 1 / 60
_FEWEST_ROWS, _MOST_ROWS = 200, 1000
# Share of the entries of these rows that is left out.
_LEFT_OUT = 0.3
# Labels of a row that can be passed over.
_MOST_OWN = 20
# Numbers of blocks that are tried: from the fewest on, this many to an octave.
_FEWEST_BLOCKS, _PER_OCTAVE = 4, 4


def measure(core: _core.Model, rows: Rows, labels: Labels, beam_size: int, seed: int, work: Work) -> Probes:
    """Choose the fewest blocks that find 99.5 % of the best labels of rows like unseen ones.

    Training rows are not like these: their own labels are found easily, and training lowers the scores of all
    others. So a random part of the entries is left out, and for every second row its own labels do not count
    (docs/performance.md).
    """
    assert core.one_vs_rest is not None
    most = len(core.one_vs_rest.arrays()["shift"]) // 2
    with work.phases.together("probes"):
        n_rows = min(rows.n_rows, max(_FEWEST_ROWS, min(_MOST_ROWS, int(_SHARE * rows.n_rows))))
        some = shuffled(rows.n_rows, seed)[:n_rows]
        search = _search(core, _thinned(rows.take(some), seed), labels.take(some), beam_size, work)
        best = search(0)

        def recall(n_probe: int, k: int) -> float:
            """Return the share of what all blocks have; equal scores are equally good."""
            there = np.isfinite(best[:, k - 1 : k])
            found = search(n_probe)[:, :k] >= best[:, k - 1 : k]
            return float(np.mean(found[there[:, 0]])) if there.any() else 1.0

        few = _fewest(most, lambda n: recall(n, 5) >= _TARGET)
        many = few and _fewest(most, lambda n: n >= few and recall(n, 10) >= _TARGET)
        probes = Probes(n_rows, few, many, recall(few, 5), recall(many, 10))
    LOG.info(
        "%d probes find %.2f %% of the 5 best labels, %d find %.2f %% of the 10 best (0: all blocks)",
        *(probes.n_probe_5, 100 * probes.recall_5, probes.n_probe_10, 100 * probes.recall_10),
    )
    return probes


def _search(core: _core.Model, rows: Rows, own: Labels, beam_size: int, work: Work) -> Callable[[int], Array]:
    """Return a function of the number of blocks: log scores of each row's ten best labels, descending.

    Of every second row, the best labels that are not its own.
    """
    n_own = np.diff(own.indptr)
    n_own[1::2] = 0
    depth = min(core.n_labels, 10 + min(_MOST_OWN, int(n_own.max(initial=0))))

    @cache
    def search(n_probe: int) -> Array:
        options = {"beam_size": beam_size, "exact": False, "n_probe": n_probe}
        ids, scores = work.predict(core, rows, depth, **options)
        scores[is_true(own, ids) & (n_own > 0)[:, None]] = -np.inf
        best = np.full((len(ids), 10), -np.inf, np.float32)  # there may be fewer labels
        best[:, : min(10, depth)] = np.sort(scores, axis=1)[:, ::-1][:, :10]
        return best

    return search


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
    """Return the first number of blocks that is enough, if those above it are, too; 0 if `most` is not."""
    n_steps = max(0, int(_PER_OCTAVE * np.log2(max(1, most) / _FEWEST_BLOCKS)))
    tried = sorted({round(_FEWEST_BLOCKS * 2 ** (step / _PER_OCTAVE)) for step in range(n_steps + 1)})
    tried = [n for n in tried if n < most] + [most]
    place = bisect.bisect_left(tried, True, key=enough)
    return tried[place] if most and place < len(tried) else 0


def _thinned(rows: Rows, seed: int) -> Rows:
    """Return rows without a random part of their entries."""
    n_entries = rows.values.size
    left_out = shuffled(n_entries, seed) < _LEFT_OUT * n_entries
    if isinstance(rows, DenseRows):
        return DenseRows(np.where(left_out.reshape(rows.values.shape), np.float32(0), rows.values))
    ends = np.concatenate([[0], np.cumsum(~left_out)])[rows.indptr].astype(np.int64)
    return SparseRows(ends, rows.indices[~left_out], rows.values[~left_out], rows.n_features)
