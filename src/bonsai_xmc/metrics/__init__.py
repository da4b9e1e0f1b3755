"""Ranking metrics of extreme classification, computed on the k best labels of each row.

With hit(i, r) = 1 if the label at rank r = 1, 2, … of row i is one of its true labels y_i, q_l the inverse
propensity of label l (see `inverse_propensity`), and means over *all* n rows, including those without labels
(they count 0):

=========  =================================================================================================
P@k        mean of Σ_{r≤k} hit / k
nDCG@k     mean of Σ_{r≤k} hit / log2(r+1), each row divided by I(i) = Σ_{r ≤ min(k,|y_i|)} 1 / log2(r+1)
PSP@k      Σ_i Σ_{r≤k} q·hit, divided by the same sum for the best ranking (true labels by descending q)
PSnDCG@k   Σ_i Σ_{r≤k} q·hit / (log2(r+1)·I(i)), divided by the same sum for the best ranking
R@k        mean of Σ_{r≤k} hit / |y_i|
RP@k       mean of Σ_{r≤k} hit / min(k, |y_i|)
F1@k       mean of 2 Σ_{r≤k} hit / (predicted labels, at most k, + |y_i|), as in Annif
C@k        distinct labels in all top k, right or wrong, divided by the distinct labels among each row's
           k true labels of largest q (ties: smaller id). Since wrong labels count, it can exceed 100 %.
CC@k       share of the distinct true labels of the test set that some row has correctly in its top k
=========  =================================================================================================

As in scikit-learn, the true labels come first, then the predictions, and `sample_weight` weights the rows.
A ranking of fewer than k labels counts as wrong at the remaining ranks. A quotient whose denominator is 0
(no true label anywhere) is 0. `evaluate` reports percent, as papers do; the single functions and the scorers
return fractions, as scikit-learn's metrics do.

Everything works on flat (row, rank, label) entries: memory is O(entries + rows·k + labels), never
rows × labels.
"""

from ._definitions import TAIL_ROWS
from ._evaluate import (
    correct_coverage_at_k,
    coverage_at_k,
    evaluate,
    f1_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    r_precision_at_k,
    recall_at_k,
)
from ._files import read_predictions, write_predictions
from ._propensity import PROPENSITY, inverse_propensity
from ._reliability import Reliability, reliability
from ._report.report import Report
from ._scorers import scorer
from ._table import format_table

__all__ = [
    "PROPENSITY",
    "TAIL_ROWS",
    "Reliability",
    "Report",
    "correct_coverage_at_k",
    "coverage_at_k",
    "evaluate",
    "f1_at_k",
    "format_table",
    "inverse_propensity",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "r_precision_at_k",
    "read_predictions",
    "recall_at_k",
    "reliability",
    "scorer",
    "write_predictions",
]
