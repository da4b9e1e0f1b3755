"""What `Bonsai.explain` and `Bonsai.why_not` do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._explain.linear import LinearRow
from bonsai_xmc._explain.names import label_id
from bonsai_xmc._explain.objects import WhyNot
from bonsai_xmc._explain.systems import FusedRow, SystemRow
from bonsai_xmc._explain.why_not import why_not as _why_not
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.linear import LinearRanker

if TYPE_CHECKING:
    from bonsai_xmc._estimators.base import LabelRanker


def explained_row(model: "LabelRanker", x: Any) -> Any:
    """Read one row: of a matrix a vector or a matrix of one row, of texts a string or a record."""
    fitted = model._require_fitted()
    if isinstance(fitted.ranker, LinearRanker):
        return LinearRow(model, _one_row(x, fitted.text is not None))
    if not isinstance(fitted.ranker, FusionRanker):
        return SystemRow(model, _one_row(x, fitted.text is not None))
    if fitted.text is None and isinstance(x, Mapping):  # rows of each member
        texts = {member.name: member.model.text is not None for member in fitted.ranker.members}
        return FusedRow(model, {name: _one_row(x[name], own) for name, own in texts.items() if name in x})
    return FusedRow(model, _one_row(x, fitted.text is not None))


def explain(model: "LabelRanker", x: Any, label: Any) -> Any:
    row = explained_row(model, x)
    return row.explain(label_id(row.fitted, label))


def why_not(model: "LabelRanker", x: Any, label: Any, n_ahead: int) -> WhyNot:
    if not isinstance(n_ahead, int | np.integer) or isinstance(n_ahead, bool) or n_ahead < 0:
        raise ValueError(f"n_ahead is {n_ahead!r}, but must be an integer of at least 0")
    row = explained_row(model, x)
    return _why_not(row, label_id(row.fitted, label), int(n_ahead))


def _one_row(x: Any, of_texts: bool) -> Any:
    if of_texts:
        X = [x] if isinstance(x, str | Mapping) else x
    elif is_sparse(x) or hasattr(x, "iloc"):
        X = x.reshape(1, -1) if x.ndim == 1 and is_sparse(x) else x
    else:
        X = np.asarray(x)
        X = X[None] if X.ndim == 1 else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X) if hasattr(X, "__len__") else None
    if n_rows != 1:
        what = "a text or a record" if of_texts else "a row, as X[[17]]"
        raise ValueError(f"x must be one row, but it has {n_rows}: give {what}")
    return X
