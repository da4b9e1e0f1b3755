"""Values of requests: one object checks each and describes it as JSON Schema."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bonsai_xmc._base import rules
from bonsai_xmc._server.http import Problem
from bonsai_xmc._server.served import Served
from bonsai_xmc._server.settings import ANNIF_BATCH, Settings

Schema = dict[str, Any]
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,999})(\.[0-9]{1,99})?([eE][+-]?[0-9]{1,3})?")
_STRING: Schema = {"type": "string"}


@dataclass(frozen=True)
class Field:
    """A named value: `check(value, name)` returns the value or raises Problem."""

    check: Callable[[Any, str], Any]
    schema: Schema | Callable[[Settings, Sequence[Served]], Schema]
    text: str = ""
    default: Any = None
    required: bool = False
    nullable: bool = True  # in a body, null means the default
    is_number: bool = False

    def described(self, settings: Settings, models: Sequence[Served], in_body: bool) -> Schema:
        schema = self.schema(settings, models) if callable(self.schema) else self.schema
        if in_body and self.nullable and not self.required:
            if "type" in schema:
                schema = schema | {"type": [schema["type"], "null"]}
            else:
                schema = {"anyOf": [*schema["anyOf"], {"type": "null"}]}
        added = {"default": self.default, "description": self.text}
        return schema | {key: value for key, value in added.items() if value is not None}


Fields = Mapping[str, Field]


def read(given: Mapping[str, Any], fields: Fields, where: str, strict: bool) -> dict[str, Any]:
    """Return the checked values of a request, with defaults; unknown keys are ignored unless strict."""
    if strict:
        check_keys(given, list(fields), where)
    missing = [name for name, field in fields.items() if field.required and name not in given]
    if missing:
        raise Problem(400, f"{where} needs {' and '.join(missing)}")
    found = {}
    for name, field in fields.items():
        value = given.get(name)
        if field.is_number and isinstance(value, str) and _NUMBER.fullmatch(value) and where != "the body":
            value = json.loads(value)
        absent = name not in given or (value is None and field.nullable and not field.required)
        found[name] = field.default if absent else field.check(value, name)
    return found


def check_keys(given: Iterable[str], known: Sequence[str], where: str, noun: str = "key") -> None:
    """Refuse unknown keys: a misspelt one would have no effect."""
    unknown = [key for key in given if key not in known]
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0][:100], known, 1)
    raise Problem(
        400,
        f"{where} has the unknown {noun}{'s' if len(unknown) > 1 else ''} "
        + ", ".join(f"{key!r:.100}" for key in unknown[:5])
        + (f"; did you mean {close[0]!r}? " if close else "; ")
        + (f"known are {', '.join(known)}" if known else "there are none"),
    )


# --- checks ---


def _by_rule(rule: rules.Rule, most: int | None = None) -> Callable[[Any, str], Any]:
    def check(value: Any, name: str) -> Any:
        # 3.0 is an integer in JSON Schema
        whole = int(value) if most is not None and type(value) is float and value.is_integer() else value
        if not rule.allows(whole):
            raise Problem(400, f"{name} is {value!r:.50}, but must be {rule.text}")
        return whole if most is None else min(whole, most)

    return check


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Problem(400, f"{name} must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(400, f"{name} is not valid Unicode") from None
    return value


def _strings(value: Any, name: str) -> list[str]:
    if not isinstance(value, list):
        raise Problem(400, f"{name} must be a list of labels")
    return [text(label, f"{name}[{i}]") for i, label in enumerate(value)]


def _list(value: Any, name: str) -> Any:
    if not isinstance(value, list):
        raise Problem(400, f"{name} must be a list of strings")
    return value


def _documents(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Problem(400, "the body needs documents, a list of objects with text")
    if len(value) > ANNIF_BATCH:
        raise Problem(400, f"there are {len(value)} documents, but at most {ANNIF_BATCH} may be sent")
    for i, item in enumerate(value):
        text(item.get("text"), f"{name}[{i}].text")
        if item.get("document_id") is not None:
            text(item["document_id"], f"{name}[{i}].document_id")
    return value


def document(value: Any, name: str, fields: tuple[str, ...]) -> Any:
    """Return a text or, for models with fields, an object of texts."""
    if not isinstance(value, dict):
        return text(value, name)
    if not fields:
        raise Problem(400, f"{name} is an object, but this model takes strings")
    check_keys(value, fields, name, "field")
    known = {field: text(value[field], f"{name}.{field}") for field in fields if value.get(field) is not None}
    if not known:
        raise Problem(400, f"{name} has none of the fields {', '.join(fields)}")
    return known


# --- kinds of fields ---


def count(default: int | None, most: int, about: str, least: int = 0) -> Field:
    """Describe an integer; values beyond `most` count as `most`."""
    rule = rules.integer(least)
    schema = {"type": "integer", "minimum": least, "maximum": 2**31 - 1}
    return Field(_by_rule(rule, most), schema, about, default, is_number=True)


def score(about: str, *words: str) -> Field:
    number: Schema = {"type": "number", "minimum": 0, "maximum": 1}
    schema = {"anyOf": [number, *({"const": word} for word in words)]} if words else number
    return Field(_by_rule(rules.number_between(0, 1, *words)), schema, about, 0.0, is_number=True)


def flag(about: str) -> Field:
    return Field(_by_rule(rules.flag()), {"type": "boolean"}, about, False, nullable=False)


def string(about: str, default: str | None = None, required: bool = False) -> Field:
    return Field(text, _STRING, about, default, required)


def labels(about: str, at_least: int) -> Field:
    def schema(settings: Settings, models: Sequence[Served]) -> Schema:
        return {"type": "array", "items": _label(settings, models), "minItems": at_least}

    return Field(_strings, schema, about)


def _label(settings: Settings, models: Sequence[Served]) -> Schema:
    return {**_STRING, "examples": [key for served in models for key in served.keys[:1]]}


def _model(settings: Settings, models: Sequence[Served]) -> Schema:
    return {**_STRING, "examples": [served.name for served in models]}


def _text(settings: Settings, models: Sequence[Served], **longest: int) -> Schema:
    """Describe a string or, for models with fields, an object with at least one of them."""
    kinds: list[Schema] = [{**_STRING, **longest}]
    for fields in dict.fromkeys(served.fields for served in models if served.fields):
        one = [{"required": [f], "properties": {f: {**_STRING, **longest}}} for f in fields]
        known = {f: {"type": ["string", "null"]} for f in fields}
        kinds.append({"type": "object", "properties": known, "additionalProperties": False, "anyOf": one})
    return {"anyOf": kinds}


def _texts(settings: Settings, models: Sequence[Served]) -> Schema:
    return {"type": "array", "maxItems": settings.max_texts, "items": _text(settings, models)}


def _explained(settings: Settings, models: Sequence[Served]) -> Schema:
    return _text(settings, models, maxLength=settings.max_explained)


_DOCUMENTS: Schema = {
    "type": "array",
    "maxItems": ANNIF_BATCH,
    "items": {
        "type": "object",
        "required": ["text"],
        "properties": {"text": _STRING, "document_id": {"type": ["string", "null"]}},
    },
}
_KEPT = lambda value, name: value  # checked by the handler, as the rule depends on the model
_OFFSET = count(0, 2**31, "number of entries to skip")

MODEL = Field(text, _model, "name of a model; the first one if left out")
PREDICT: Fields = {
    "texts": Field(_list, _texts, "strings, or for models with fields objects of strings", nullable=False),
    "text": Field(_KEPT, _text, "a single text", nullable=False),
    "k": count(5, 2**31, "labels for each text", least=1),
    "threshold": score("lowest score; auto: the threshold of the model", "auto"),
    "restrict": labels("find only these labels", at_least=1),
    "exclude": labels("do not find these labels", at_least=0),
    "model": MODEL,
}
EXPLAIN: Fields = {
    "text": Field(_KEPT, _explained, "a string, or for models with fields an object", required=True),
    "label": Field(text, _label, "a label, or its name", required=True),
    "why_not": flag("explain why the label does not rank higher"),
    "features": count(20, 1000, "maximum number of features of each part"),
    "model": MODEL,
}
TREE: Fields = {
    "model": MODEL,
    "tree": count(0, 2**31, "number of the tree"),
    "node": count(0, 2**31, "number of the node; 0 is the root"),
    "limit": count(100, 1000, "maximum number of children"),
    "offset": _OFFSET,
}
LABELS: Fields = {
    "q": string("part of a name or key", ""),
    "model": MODEL,
    "limit": count(50, 1000, "maximum number of labels"),
    "offset": _OFFSET,
}
SUGGEST: Fields = {
    "text": string("the text", required=True),
    "limit": count(10, 2**31, "maximum number of results"),
    "threshold": score("lowest score"),
    "language": string("ignored"),
}
SUGGEST_BATCH: Fields = {name: field for name, field in SUGGEST.items() if name != "text"}
DOCUMENTS: Fields = {"documents": Field(_documents, _DOCUMENTS, required=True)}
