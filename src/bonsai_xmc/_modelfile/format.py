"""Fitted models ↔ the tensors and metadata of a model file: format 3 (docs/internals/format.md)."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.files import PathLike
from bonsai_xmc._base.params import (
    OF_PREDICTION,
    OF_TRAINING,
    PARAMETERS,
    PREDICTION,
    RUN,
    Parameter,
    check,
    plain,
)
from bonsai_xmc._model.calibration import Calibration
from bonsai_xmc._model.fitted import FittedModel, LabelTable, Provenance, class_array
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.linear import LinearRanker, NewerFormatError, section_of, typed
from bonsai_xmc._model.ranker import BONSAI, FUSION, Ranker, estimator_class
from bonsai_xmc._modelfile import container, schema
from bonsai_xmc._modelfile.container import FormatError, ModelFile
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._text.reader import EncodedText, FusedText, TextReader

# Sections without which a model cannot be used, and further requirements.
_NEEDED = {*schema.TENSORS, "ranker"} - {"rows", "features"}
_STRICT_BEAM, _SPARSE_INDEX = "strict_beam", "sparse_index"
# Tensors of rankers other than that of `Bonsai`, whose tensors are in sections of their own.
_RANKER = "ranker"
# Names of labels in addition to their keys: of a text model, and of any other.
_NAMES = ("text.label_names", "labels.titles")
_DEEPEST = 4  # a fusion may have members that are fusions, and so on


def save(path: PathLike, fitted: FittedModel, prediction: Mapping[str, Any]) -> None:
    """Write a model file, which `load` must accept before it replaces the file at `path`."""
    arrays, metadata = to_tensors(fitted, prediction)
    requires = _required(fitted, arrays)
    container.write(path, arrays, metadata, requires, check=_read_back)


def _required(fitted: FittedModel, arrays: Mapping[str, Array]) -> list[str]:
    """Return the sections and features that a reader needs for a model."""
    requires = sorted({name.partition(".")[0] for name in arrays} & _NEEDED)
    if isinstance(fitted.ranker, LinearRanker) and fitted.ranker.strategy.strict_beam:
        requires.append(_STRICT_BEAM)
    if "index.features" in arrays:
        requires.append(_SPARSE_INDEX)
    return requires


def load(path: PathLike, mmap: bool | str, verify: bool) -> tuple[FittedModel, dict[str, Any]]:
    """Read a model, and the parameters of prediction that were saved with it."""
    file = container.read(path, mmap=mmap)
    if verify:
        container.verify(file)
    try:
        fitted, prediction = from_tensors(file)
        if verify:
            _verify(fitted)
        return fitted, prediction
    except FormatError:
        raise
    except NewerFormatError as error:
        raise FormatError(
            f"{os.fspath(path)} was made by a newer bonsai-xmc: {error}. Upgrade bonsai-xmc to use it"
        ) from error
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        what = str(error).removeprefix("the model is inconsistent: ")  # the core's message may begin with it
        raise FormatError(f"{os.fspath(path)}: the model is inconsistent: {what}") from error


def _verify(fitted: FittedModel) -> None:
    if isinstance(fitted.ranker, LinearRanker):
        fitted.ranker.verify()
    for member in fitted.ranker.members if isinstance(fitted.ranker, FusionRanker) else ():
        _verify(member.model)


def _read_back(path: str) -> None:
    try:
        load(path, mmap=True, verify=False)
    except FormatError as error:
        what = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"this model cannot be saved: {what}") from error


# --- to the file ---


def to_tensors(fitted: FittedModel, prediction: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors and the metadata of a model."""
    facts, arrays = fitted.ranker.to_arrays()
    model: dict[str, Any] = {
        "n_features": fitted.n_features,
        "n_labels": fitted.n_labels,
        "n_rows": fitted.n_rows,
        "threshold": fitted.threshold,
        "id_base": fitted.id_base,
        "prediction": {name: plain(value) for name, value in prediction.items()},
    }
    params: dict[str, Any] = {"given": dict(fitted.given)}
    metadata: dict[str, Any] = {"provenance": asdict(fitted.provenance)}
    if fitted.ranker.kind == BONSAI:
        model |= facts["model"]
        params["resolved"] = facts["resolved"]
    else:
        if isinstance(fitted.ranker, FusionRanker):
            for i, member in enumerate(fitted.ranker.members):
                own, described = to_tensors(member.model, member.prediction)
                arrays |= {f"members.{i}.{name}": array for name, array in own.items()}
                facts["members"][i]["metadata"] = {key: json.loads(text) for key, text in described.items()}
                facts["members"][i]["requires"] = _required(member.model, own)
        arrays = {f"{_RANKER}.{name}": array for name, array in arrays.items()}
        metadata[_RANKER] = {"kind": fitted.ranker.kind, "facts": facts}
    metadata |= {"model": model, "params": params}
    labels = fitted.labels
    if labels.named:
        arrays |= pack_names("labels.names", labels.classes)
    elif labels.keyed:
        arrays["labels.keys"] = labels.classes.astype(np.int64)
    arrays["labels.counts"] = labels.counts.astype(np.int64)
    if labels.thresholds is not None:
        arrays["labels.thresholds"] = labels.thresholds
    if fitted.rows is not None:
        arrays |= {f"rows.{name}": array for name, array in fitted.rows.to_arrays().items()}
    if fitted.feature_names is not None:
        arrays |= pack_names("features.names", fitted.feature_names)
    of_words = isinstance(fitted.text, FittedText)
    names = pack_names(_NAMES[0] if of_words else _NAMES[1], labels.names) if labels.names else {}
    if isinstance(fitted.text, FittedText | EncodedText):
        section = "text" if of_words else "encoder"
        metadata[section], own = fitted.text.to_arrays()
        arrays |= {f"{section}.{name}": array for name, array in own.items()}
    arrays |= names
    if fitted.calibration is not None:
        metadata["calibration"], maps = fitted.calibration.to_arrays()
        arrays |= {f"calibration.{name}": array for name, array in maps.items()}
    return arrays, {
        name: json.dumps(part, sort_keys=True, allow_nan=False) for name, part in metadata.items()
    }


def given_params(
    params: Mapping[str, Any], seed: int, table: Mapping[str, Parameter] = PARAMETERS
) -> dict[str, Any]:
    """Return the training parameters of a table in the types of JSON; label vectors are only named."""
    names = [name for name, one in table.items() if one.group not in (PREDICTION, RUN)]
    given = {name: plain(params[name]) for name in names}
    own = {} if isinstance(params.get("representation", ""), str) else {"representation": "custom"}
    return given | own | {"random_state": seed}


def pack_names(name: str, texts: Iterable[Any]) -> dict[str, Array]:
    """Return texts as one tensor of bytes, and another one of the places where they end."""
    encoded = [str(text).encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return {name: np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_ptr": ends}


# --- from the file ---


def from_tensors(file: ModelFile, depth: int = 0) -> tuple[FittedModel, dict[str, Any]]:
    """Return the model and the parameters of prediction; a ValueError or the like if they do not fit.

    `depth`: the number of fusions that it is a part of.
    """
    unknown = sorted(set(file.requires) - {*_NEEDED, "features", _STRICT_BEAM, _SPARSE_INDEX})
    if unknown:
        raise NewerFormatError(f"it needs {unknown[0]!r}, which this version does not read")
    model, params, provenance = (_object(file, name) for name in ("model", "params", "provenance"))
    n_features, n_labels = model["n_features"], model["n_labels"]
    schema.check_tensors(file.arrays, {"D": n_features, "L": n_labels})
    ranker = _ranker(file, model, params, depth)
    prediction = _prediction(ranker, model["prediction"])
    names = next((unpack_names(file.arrays, name) for name in _NAMES if name in file.arrays), [])
    maps, rows = (section_of(file.arrays, section) for section in ("calibration", "rows"))
    fitted = FittedModel(
        ranker=ranker,
        labels=LabelTable(
            _classes(file.arrays, n_labels),
            np.array(file.arrays["labels.counts"]),
            tuple(names),
            np.array(own) if (own := file.arrays.get("labels.thresholds")) is not None else None,
        ),
        n_rows=model["n_rows"],
        n_features=n_features,
        feature_names=_distinct(file.arrays, "features.names") if "features.names" in file.arrays else None,
        id_base=model["id_base"],
        given=_given(params["given"]) if ranker.kind == BONSAI else params["given"],
        threshold=float(model["threshold"]),
        provenance=typed(Provenance, provenance),
        text=_text(file, n_features, ranker),
        calibration=Calibration.from_arrays(_object(file, "calibration"), maps) if maps else None,
        rows=KeptRows.from_arrays(rows, n_features) if rows else None,
    )
    return fitted, prediction


def _ranker(file: ModelFile, model: dict[str, Any], params: dict[str, Any], depth: int) -> Ranker:
    shape = (model["n_features"], model["n_labels"])
    if _RANKER in file.metadata:
        described = _object(file, _RANKER)
        try:
            fusion = described["kind"] == FUSION
            kind = FusionRanker if fusion else estimator_class(described["kind"]).ranker
        except KeyError as error:
            raise NewerFormatError(
                f"it is of the kind {described['kind']!r}, which this version does not read"
            ) from error
        facts, arrays = described["facts"], section_of(file.arrays, _RANKER)
        more = [_members(file, facts, arrays, depth)] if fusion else []
        found: Ranker = kind.from_arrays(facts, arrays, *shape, *more)
        return found
    schema.check_key("bonsai", model)
    if "resolved" not in params:
        raise ValueError("params has no key 'resolved'")
    ranker = LinearRanker.from_arrays({"model": model, "resolved": params["resolved"]}, file.arrays, *shape)
    if ranker.strategy.strict_beam != (_STRICT_BEAM in file.requires):
        raise ValueError("a strict beam must be required, and nothing else may require it")
    return ranker


def _members(
    file: ModelFile, facts: Mapping[str, Any], arrays: Mapping[str, Array], depth: int
) -> list[tuple[FittedModel, dict[str, Any]]]:
    """Return the models of a fusion: each as a file of its own would hold it."""
    if depth >= _DEEPEST:
        raise ValueError(f"it is a fusion of fusions, more than {_DEEPEST} deep")
    models = []
    for i, one in enumerate(facts["members"]):
        metadata = {key: json.dumps(value) for key, value in one["metadata"].items()}
        own = replace(
            file,
            arrays=section_of(arrays, f"members.{i}"),
            metadata=metadata,
            requires=tuple(map(str, one["requires"])),
        )
        models.append(from_tensors(own, depth + 1))
    return models


def _prediction(ranker: Ranker, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of prediction, checked for a `Bonsai`; other estimators check theirs."""
    if not isinstance(ranker, LinearRanker):
        return stored
    known = {name: stored[name] for name in OF_PREDICTION}
    if known["beam_size"] == "auto":  # as unreleased versions named the default
        known["beam_size"] = PARAMETERS["beam_size"].default
    for name, value in known.items():
        check(name, value)
    ranker.check_search(beam_size=known["beam_size"], n_probe=known["n_probe"])
    return known


def _text(file: ModelFile, n_features: int, ranker: Ranker) -> TextReader | None:
    if isinstance(ranker, FusionRanker):
        return None if ranker.shared else FusedText.of([member.model.text for member in ranker.members])
    if numbers := section_of(file.arrays, "encoder"):
        return EncodedText.from_arrays(_object(file, "encoder"), numbers)
    terms = {
        name.removeprefix("text."): np.array(array)  # a copy: the vocabulary is not mapped
        for name, array in file.arrays.items()
        if name.startswith("text.") and not name.startswith("text.label_names")
    }
    if not terms:
        return None
    text = FittedText.from_arrays(_object(file, "text"), terms)
    if text.core.n_features != n_features:
        raise ValueError(
            f"its texts give {text.core.n_features} features, but its classifiers have {n_features}"
        )
    return text


def _classes(arrays: dict[str, Array], n_labels: int) -> Array:
    if "labels.names" in arrays:
        return _distinct(arrays, "labels.names")
    return np.array(arrays["labels.keys"]) if "labels.keys" in arrays else np.arange(n_labels)


def unpack_names(arrays: Mapping[str, Array], name: str) -> list[str]:
    """Return the texts that `pack_names` has packed."""
    ends, text = arrays[f"{name}_ptr"].tolist(), arrays[name].tobytes()
    return [text[a:b].decode() for a, b in pairwise(ends)]


def _distinct(arrays: Mapping[str, Array], name: str) -> Array:
    found = unpack_names(arrays, name)
    if len(set(found)) < len(found):
        raise ValueError(f"the tensor {name} holds a name twice")
    return class_array(found)


def _given(given: dict[str, Any]) -> dict[str, Any]:
    """Return training parameters with values that the estimator takes, without those of newer versions."""
    known = {name: plain(given[name]) for name in OF_TRAINING if name in given}
    if known.get("n_trees") == "auto":  # as unreleased versions named the default
        del known["n_trees"]
    if known.get("search") == "beam":
        del known["search"]
    for name, value in known.items():
        if name in PARAMETERS and not (name == "representation" and value == "custom"):
            check(name, value)
    return known


# --- objects of JSON ---


def _object(file: ModelFile, name: str) -> dict[str, Any]:
    if name not in file.metadata:
        raise ValueError(f"the metadata key {name!r} is missing")
    value: dict[str, Any] = json.loads(file.metadata[name])
    schema.check_key(name, value)
    return value
