"""Labels given by their keys: filters of a prediction, and changes of a trained model's labels."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import label_key
from bonsai_xmc._model.edit import edit_labels, keep_labels
from bonsai_xmc._model.fitted import FittedModel


def allowed_labels(fitted: FittedModel, restrict: Any, exclude: Any) -> Array | None:
    """Return which labels may be found, as booleans; None: all.

    Both are None, labels, or booleans over `classes`. Labels that the model does not have are ignored, unless
    `restrict` has no other.
    """
    if restrict is None and exclude is None:
        return None
    allowed = np.ones(fitted.n_labels, bool) if restrict is None else _marked(fitted, restrict, "restrict")
    if restrict is not None and not allowed.any():
        hint = did_you_mean(fitted, next(iter(restrict), None))
        raise ValueError(f"restrict: the model has none of these labels{hint}")
    if exclude is not None:
        allowed = allowed & ~_marked(fitted, exclude, "exclude")
    return allowed


def _marked(fitted: FittedModel, labels: Any, name: str) -> Array:
    if isinstance(labels, np.ndarray) and labels.dtype == bool:
        if labels.shape != (fitted.n_labels,):
            raise ValueError(
                f"{name} is an array of booleans of the shape {labels.shape}, but the model has "
                f"{fitted.n_labels:,} labels"
            )
        return labels
    marked = np.zeros(fitted.n_labels, bool)
    place = fitted.labels.place
    marked[[place[label] for label in _keys(labels, name) if label in place]] = True
    return marked


def unknown_labels(fitted: FittedModel, labels: Iterable[Any]) -> list[Any]:
    """Return the labels that the model does not have."""
    return [label for label in labels if label not in fitted.labels.place]


def keys_of(fitted: FittedModel, words: Sequence[str], name: str) -> list[Any]:
    """Return labels that are given as strings as the model has them: names, or integers."""
    if fitted.labels.named:
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{name}: {error}; the labels of this model are integers") from error


def marked_words(
    fitted: FittedModel, words: Sequence[str], name: str, hint: str = ""
) -> tuple[Array, list[Any]]:
    """Return labels that are given as strings, as booleans over `classes`, and those that are unknown.

    Raise ValueError if the model has none of them.
    """
    keys = keys_of(fitted, words, name)
    unknown = unknown_labels(fitted, keys)
    if not keys:
        raise ValueError(f"{name}: there is no label{hint}")
    if len(unknown) == len(keys):
        none = f"none of the {len(keys):,} labels, such as" if len(keys) > 1 else "no label"
        hint = hint or did_you_mean(fitted, unknown[0])
        raise ValueError(f"{name}: the model has {none} {unknown[0]!r:.100}{hint}")
    return _marked(fitted, keys, name), unknown


def did_you_mean(fitted: FittedModel, label: Any) -> str:
    """Return the end of a message about an unknown label: the labels whose names are similar."""
    close = fitted.labels.similar.to(label) if isinstance(label, str) and label else []
    return f"; did you mean {' or '.join(close)}?" if close else ""


def drop(fitted: FittedModel, labels: Any, threads: int) -> FittedModel:
    kept = np.ones(fitted.n_labels, bool)
    kept[_places(fitted, labels, "drop")] = False
    if not kept.any():
        raise ValueError("drop: no label would be left")
    return keep_labels(fitted, kept, threads)


def restrict(fitted: FittedModel, labels: Any, threads: int) -> FittedModel:
    allowed = allowed_labels(fitted, labels, None)
    assert allowed is not None
    return keep_labels(fitted, allowed, threads)


def rename(fitted: FittedModel, names: Any, threads: int) -> FittedModel:
    if not isinstance(names, Mapping):
        raise ValueError(f"rename: pass a mapping of old to new labels, not {type(names).__name__}")
    old = _places(fitted, names, "rename")
    keys = fitted.classes.tolist()
    for i, new in zip(old, names.values(), strict=True):
        keys[i] = label_key(new, "rename")
    key, n = Counter(keys).most_common(1)[0]
    if n > 1:
        raise ValueError(f"rename: {n} labels would be {key!r}; merge makes one label of several")
    return edit_labels(fitted, keys=keys, threads=threads)


def merge(fitted: FittedModel, labels: Any, into: Any, threads: int) -> FittedModel:
    into = label_key(into, "merge")
    places = set(_places(fitted, labels, "merge"))
    if into in fitted.labels.place:
        places.add(fitted.labels.place[into])
    if len(places) < 2:
        raise ValueError("merge: pass two labels or more; rename changes the name of one")
    keys = [into if i in places else label for i, label in enumerate(fitted.classes.tolist())]
    return edit_labels(fitted, keys=keys, threads=threads)


def _keys(labels: Any, name: str) -> list[Any]:
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(f"{name} is {labels!r}, but must be several labels, e.g. [{labels!r}]")
    return [label.item() if isinstance(label, np.generic) else label for label in labels]


def _places(fitted: FittedModel, labels: Any, name: str) -> list[int]:
    keys = _keys(labels, name)
    unknown = unknown_labels(fitted, keys)
    if unknown:
        more = f", nor {len(unknown) - 1:,} others" if len(unknown) > 1 else ""
        hint = did_you_mean(fitted, unknown[0])
        raise ValueError(f"{name}: the model has no label {unknown[0]!r}{more}{hint}")
    return [fitted.labels.place[label] for label in keys]
