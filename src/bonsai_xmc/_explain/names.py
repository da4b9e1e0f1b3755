"""Names of labels and features."""

from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.labels import did_you_mean


class FeatureName(NamedTuple):
    name: str
    field: str
    kind: str


def feature_names(fitted: FittedModel, features: Any) -> list[FeatureName]:
    """Return the names of columns; text models name them by block."""
    if fitted.words is None:
        names = fitted.feature_names
        return [
            FeatureName(f"feature {f}" if names is None else str(names[f]), "", "feature")
            for f in np.asarray(features).tolist()
        ]
    text = fitted.words
    begins = np.cumsum([0, *text.core.block_sizes])
    found = []
    for feature in np.asarray(features).tolist():
        number = int(np.searchsorted(begins, feature, side="right")) - 1
        block = text.plan.blocks[number]
        name = text.feature_name(number, feature - int(begins[number]))
        kind = "characters" if block.analyzer != "word" else "words" if " " in name else "word"
        found.append(FeatureName(name, "+".join(block.text), kind))
    return found


def label_id(fitted: FittedModel, label: Any) -> int:
    """Find a label in `classes_` by the label itself or by its name; ValueError if there is none."""
    key = label if fitted.labels.named else _integer(label)
    if isinstance(key, str if fitted.labels.named else int) and key in fitted.labels.place:
        return fitted.labels.place[key]
    names = fitted.labels.names if isinstance(label, str) else ()
    found = [i for i, name in enumerate(names) if name == label]
    if len(found) > 1:
        some = ", ".join(repr(fitted.classes[i]) for i in found[:3])
        raise ValueError(f"{len(found)} labels have the name {label!r}: {some}; give the label itself")
    if not found:
        raise ValueError(f"the model has no label {label!r}{did_you_mean(fitted, label)}")
    return found[0]


def _integer(label: Any) -> int | None:
    if isinstance(label, str):
        return int(label) if label.isascii() and label.isdigit() else None
    if isinstance(label, int | np.integer) and not isinstance(label, bool):
        return int(label)
    return None


def label_key(fitted: FittedModel, label: int) -> str | int:
    """Return a label as in `classes_`, as a Python value."""
    return fitted.classes[label] if fitted.labels.named else int(fitted.classes[label])


def label_name(fitted: FittedModel, label: int) -> str:
    names = fitted.labels.names
    return (names[label] if names else "") or str(fitted.classes[label])
