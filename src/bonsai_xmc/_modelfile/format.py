"""Fitted models ↔ the tensors and metadata of a model file: format 3 (docs/format.md)."""

import json
import math
import os
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import _core
from bonsai_xmc._base.files import PathLike
from bonsai_xmc._base.params import OF_PREDICTION, OF_TRAINING, PARAMETERS, check, plain
from bonsai_xmc._model.calibration import Calibration
from bonsai_xmc._model.fitted import FittedModel, Provenance, core_model
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.probes import Probes
from bonsai_xmc._model.strategy import STRATEGIES, Strategy, beam_size, n_probe
from bonsai_xmc._modelfile import container, schema
from bonsai_xmc._modelfile.container import FormatError, ModelFile
from bonsai_xmc._text.fitted import FittedText

Array = npt.NDArray[Any]

_ALWAYS_NEEDED = (
    *("trees", "trees_residual", "one_vs_rest", "index"),
    *("labels", "merged", "text", "calibration"),
)
SECTIONS = (*_ALWAYS_NEEDED, "features")
_STRICT_BEAM, _SPARSE_INDEX = (
    "strict_beam",
    "sparse_index",
)  # no sections, but what a reader must know as well
# What prediction depends on: `model` and `params` both have it, and agree.
_OF_PREDICTION = (
    *("classifiers", "search", "loss", "normalize"),
    *("path_weight", "blend_weight", "logit_adjustment"),
)
# Values of a strategy that the parameters of the estimator do not take.
_UNUSED = {"representation": "custom", "n_trees": 0, "blend_weight": 0.0}


def save(path: PathLike, fitted: FittedModel, prediction: Mapping[str, Any]) -> None:
    """Write a model file that `load` has accepted before it takes its place."""
    arrays, metadata = to_tensors(fitted, prediction)
    requires = sorted({name.partition(".")[0] for name in arrays} & set(_ALWAYS_NEEDED))
    if fitted.strategy.strict_beam:
        requires.append(_STRICT_BEAM)
    if "index.features" in arrays:
        requires.append(_SPARSE_INDEX)
    container.write(path, arrays, metadata, requires, check=lambda temporary: _read_back(temporary))


def load(path: PathLike, mmap: bool | str, verify: bool) -> tuple[FittedModel, dict[str, Any]]:
    """The model of a file, and the parameters of prediction that were saved with it."""
    file = container.read(path, mmap=mmap)
    if verify:
        container.verify(file)
    try:
        fitted, prediction = from_tensors(file)
        if verify:
            for part in (fitted.core.trees, fitted.core.one_vs_rest, fitted.core.index):
                if part is not None:
                    part.verify()
        return fitted, prediction
    except FormatError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        what = str(error).removeprefix("the model is inconsistent: ")  # as the core says already
        raise FormatError(f"{os.fspath(path)}: the model is inconsistent: {what}") from error


def _read_back(path: str) -> None:
    try:
        load(path, mmap=True, verify=False)
    except FormatError as error:
        what = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"this model cannot be saved: {what}") from error


# --- to the file ---


def to_tensors(fitted: FittedModel, prediction: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors and the metadata of a model."""
    arrays: dict[str, Array] = {}
    weights = {}
    for section, forest in (("trees", fitted.core.trees), ("one_vs_rest", fitted.core.one_vs_rest)):
        if forest is not None:
            arrays |= {f"{section}.{name}": array for name, array in forest.arrays().items()}
            weights[section] = "int8"
    if fitted.core.trees is not None and fitted.core.trees.residual is not None:
        finer = fitted.core.trees.residual.arrays()
        arrays |= {f"trees_residual.{name}": finer[name] for name in schema.RESIDUAL}
    if fitted.core.index is not None:
        arrays |= {f"index.{name}": array for name, array in fitted.core.index.arrays().items()}
    if fitted.named:
        arrays |= _packed("labels.names", fitted.classes)
    elif fitted.keyed:
        arrays["labels.keys"] = fitted.classes.astype(np.int64)
    arrays["labels.counts"] = fitted.label_counts.astype(np.int64)
    if fitted.slots is not None:
        arrays["merged.labels"] = fitted.slots.astype(np.int32)
        arrays["merged.counts"] = fitted.counts_of_slots.astype(np.int64)
    if fitted.rows is not None:
        arrays |= {f"rows.{name}": array for name, array in fitted.rows.to_arrays().items()}
    if fitted.feature_names is not None:
        arrays |= _packed("features.names", fitted.feature_names)
    strategy = fitted.strategy
    model = {
        "n_features": fitted.n_features,
        "n_labels": fitted.n_labels,
        "n_rows": fitted.n_rows,
        "classifiers": strategy.classifiers,
        "search": strategy.search,
        "loss": strategy.loss,
        "normalize": strategy.normalize,
        "path_weight": strategy.path_weight,
        "blend_weight": strategy.blend_weight,
        "logit_adjustment": strategy.logit_adjustment,
        "threshold": fitted.threshold,
        "id_base": fitted.id_base,
        "probes": None if fitted.probes is None else asdict(fitted.probes),
        "weights": weights,
        "prediction": {name: plain(prediction[name]) for name in OF_PREDICTION},
    }
    params = {"given": dict(fitted.given), "resolved": asdict(strategy)}
    metadata = {"model": model, "params": params, "provenance": asdict(fitted.provenance)}
    if fitted.text is not None:
        metadata["text"], terms = fitted.text.to_arrays()
        arrays |= {f"text.{name}": array for name, array in terms.items()}
    if fitted.calibration is not None:
        metadata["calibration"], maps = fitted.calibration.to_arrays()
        arrays |= {f"calibration.{name}": array for name, array in maps.items()}
    return arrays, {
        name: json.dumps(part, sort_keys=True, allow_nan=False) for name, part in metadata.items()
    }


def given_params(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Training parameters in the types of JSON; what a file cannot hold is only named."""
    given = {name: plain(params[name]) for name in OF_TRAINING if name not in ("representation", "tree")}
    own = not isinstance(params["representation"], str)
    tree = None if params["tree"] is None else "given"
    return given | {
        "representation": "custom" if own else params["representation"],
        "tree": tree,
        "random_state": seed,
    }


def _packed(name: str, texts: Array) -> dict[str, Array]:
    encoded = [str(text).encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return {name: np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_ptr": ends}


# --- from the file ---


def from_tensors(file: ModelFile) -> tuple[FittedModel, dict[str, Any]]:
    """The model and the parameters of prediction; a ValueError or the like if they are not consistent."""
    unknown = sorted(set(file.requires) - {*SECTIONS, _STRICT_BEAM, _SPARSE_INDEX})
    if unknown:
        raise FormatError(
            f"{file.source} was made by a newer bonsai-xmc: it needs {unknown[0]!r}, which this version "
            "does not know. Upgrade bonsai-xmc to use it"
        )
    model, params, provenance = (_object(file, name) for name in ("model", "params", "provenance"))
    n_features, n_labels = model["n_features"], model["n_labels"]
    schema.check_tensors(file.arrays, {"D": n_features, "L": n_labels})
    classes, counts = _classes(file.arrays, n_labels), np.array(file.arrays["labels.counts"])
    slots, slot_counts = _slots(file.arrays, n_labels)
    strategy = _strategy(params, model, file.requires)
    prediction = model["prediction"]
    for name in OF_PREDICTION:
        check(name, prediction[name])
    beam_size(prediction["beam_size"], strategy.n_trees, strategy.search)
    n_probe(prediction["n_probe"], strategy.search, 1, n_labels)
    fitted = FittedModel(
        core=_core_model(file, strategy, model, counts if slot_counts is None else slot_counts),
        classes=classes,
        label_counts=counts,
        n_rows=model["n_rows"],
        n_features=n_features,
        feature_names=_feature_names(file.arrays),
        id_base=model["id_base"],
        strategy=strategy,
        given=_given(params["given"]),
        threshold=float(model["threshold"]),
        provenance=_typed(Provenance, provenance),
        text=_text(file, n_features),
        calibration=_calibration(file),
        probes=_typed(Probes, model["probes"]) if model.get("probes") else None,
        rows=KeptRows.from_arrays(rows, n_features) if (rows := _section(file, "rows")) else None,
        slots=slots,
        slot_counts=slot_counts,
    )
    n_trees = 0 if fitted.core.trees is None else fitted.core.trees.n_trees
    if strategy.n_trees != n_trees:
        raise ValueError(f"n_trees is {strategy.n_trees} in params, but there are {n_trees} trees")
    return fitted, {name: prediction[name] for name in OF_PREDICTION}


def _text(file: ModelFile, n_features: int) -> FittedText | None:
    terms = {
        name.removeprefix("text."): np.array(array)  # a copy: the vocabulary is not mapped
        for name, array in file.arrays.items()
        if name.startswith("text.")
    }
    if not terms:
        return None
    text = FittedText.from_arrays(_object(file, "text"), terms)
    if text.core.n_features != n_features:
        raise ValueError(
            f"its texts give {text.core.n_features} features, but its classifiers have {n_features}"
        )
    return text


def _calibration(file: ModelFile) -> Calibration | None:
    maps = _section(file, "calibration")
    return Calibration.from_arrays(_object(file, "calibration"), maps) if maps else None


def _core_model(
    file: ModelFile, strategy: Strategy, model: dict[str, Any], label_counts: Array
) -> _core.Model:
    chosen = (strategy.classifiers, strategy.search)
    present = {
        section
        for section in ("trees", "one_vs_rest", "index")
        if any(name.startswith(f"{section}.") for name in file.arrays)
    }
    needed = STRATEGIES.get(chosen)
    if needed is None or present != set(needed):
        raise ValueError(f"classifiers {chosen[0]!r} and search {chosen[1]!r} do not fit its tensors")
    classifiers = [section for section in needed if section != "index"]
    for section in classifiers:
        if model["weights"][section] != "int8":
            raise FormatError(
                f"{file.source} was made by a newer bonsai-xmc: its weights are "
                f"{model['weights'][section]!r}, which this version does not read. Upgrade bonsai-xmc"
            )
    forests = {}
    n_features, n_labels = model["n_features"], len(label_counts)
    for section in classifiers:
        routing_only = section == "trees" and strategy.classifiers == "one_vs_rest"
        arrays, residual = _section(file, section), _section(file, f"{section}_residual")
        shape = (n_features, n_labels, routing_only)
        finer = _core.Forest(arrays | residual, *shape) if residual else None
        forests[section] = _core.Forest(arrays, *shape, finer)
    index = None
    if "index" in needed:
        n_classifiers = len(file.arrays["one_vs_rest.children"])
        index = _core.LabelIndex(_section(file, "index"), n_features, n_classifiers)
    return core_model(forests.get("trees"), forests.get("one_vs_rest"), index, strategy, label_counts)


def _section(file: ModelFile, section: str) -> dict[str, Array]:
    """The arrays of a section, by their names within it."""
    return {
        name.removeprefix(f"{section}."): array
        for name, array in file.arrays.items()
        if name.startswith(f"{section}.")
    }


def _classes(arrays: dict[str, Array], n_labels: int) -> Array:
    if "labels.names" in arrays:
        return _unpacked(arrays, "labels.names")
    return np.array(arrays["labels.keys"]) if "labels.keys" in arrays else np.arange(n_labels)


def _slots(arrays: dict[str, Array], n_labels: int) -> tuple[Array | None, Array | None]:
    """The label and the training rows of each slot; None where slots are labels."""
    if "merged.labels" not in arrays:
        return None, None
    labels, counts = np.array(arrays["merged.labels"]), np.array(arrays["merged.counts"])
    in_order = len(labels) and labels[0] == 0 and labels[-1] == n_labels - 1
    if not in_order or not np.isin(np.diff(labels), (0, 1)).all():
        raise ValueError("the tensor merged.labels does not hold all labels, in order")
    return labels, counts


def _feature_names(arrays: dict[str, Array]) -> Array | None:
    return _unpacked(arrays, "features.names") if "features.names" in arrays else None


def _unpacked(arrays: dict[str, Array], name: str) -> Array:
    ends, text = arrays[f"{name}_ptr"].tolist(), arrays[name].tobytes()
    texts = np.empty(len(ends) - 1, dtype=object)
    texts[:] = [text[a:b].decode() for a, b in pairwise(ends)]
    if len(set(texts)) < len(texts):
        raise ValueError(f"the tensor {name} holds a name twice")
    return texts


def _strategy(params: dict[str, Any], model: dict[str, Any], requires: tuple[str, ...]) -> Strategy:
    """As `params` has it; what prediction depends on comes from `model`."""
    strategy = _typed(Strategy, params["resolved"])
    for name in PARAMETERS.keys() & vars(strategy).keys():
        if getattr(strategy, name) != _UNUSED.get(name):
            check(name, getattr(strategy, name))
    if strategy.strict_beam != (_STRICT_BEAM in requires):
        raise ValueError("a strict beam must be required, and nothing else may require it")
    for name in _OF_PREDICTION:
        if getattr(strategy, name) != model[name]:
            raise ValueError(f"{name} is {model[name]!r} in model, but {getattr(strategy, name)!r} in params")
    return strategy


def _given(given: dict[str, Any]) -> dict[str, Any]:
    """Training parameters, with values that the estimator takes; those of newer versions are left out."""
    known = {name: given[name] for name in OF_TRAINING if name in given}
    for name, value in known.items():
        if name in PARAMETERS and not (name == "representation" and value == "custom"):
            check(name, value)
    if known.get("tree") not in (None, "given"):
        raise ValueError("the parameter tree is neither null nor given")
    return known


# --- objects of JSON ---


def _object(file: ModelFile, name: str) -> dict[str, Any]:
    if name not in file.metadata:
        raise ValueError(f"the metadata key {name!r} is missing")
    value: dict[str, Any] = json.loads(file.metadata[name])
    schema.check_key(name, value)
    return value


def _typed(kind: Any, values: Any) -> Any:
    """An instance of a dataclass whose fields have the types that it declares; other values are left out."""
    hints = typing.get_type_hints(kind)
    arguments = {}
    for field in fields(kind):
        if field.name not in values:
            continue  # the class has a default, or complains
        value = values[field.name]
        if type(value) is int and hints[field.name] in (float, str | float):
            value = float(value)
        if isinstance(value, bool) and hints[field.name] is not bool:
            raise ValueError(f"{field.name} is {value!r}")
        if not isinstance(value, hints[field.name]) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise ValueError(f"{field.name} is {value!r:.40}")
        arguments[field.name] = value
    return kind(**arguments)
