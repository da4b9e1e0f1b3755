"""The description of the interface: OpenAPI 3.1."""

from typing import Any

from bonsai_xmc import __version__
from bonsai_xmc._server.routes import PLACES
from bonsai_xmc._server.served import Served
from bonsai_xmc._server.settings import ANNIF_BATCH, Settings

_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0, "default": 0}


def describe(settings: Settings, models: list[Served]) -> dict[str, Any]:
    operations = _own(settings, models) | _annif(models)
    paths: dict[str, Any] = {}
    for place in PLACES:
        if place.is_described:
            operation = operations[place.handler]
            if settings.api_key is not None and place.is_open:
                operation["security"] = []
            elif settings.api_key is not None:
                operation["responses"]["401"] = _problem("a key is needed")
            paths.setdefault(place.path, {})[place.method.lower()] = operation
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "bonsai-xmc",
            "version": __version__,
            "description": "Labels for texts. Paths under /v1 are Annif's REST interface.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }
    if settings.api_key is not None:
        key = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["components"]["securitySchemes"] = {"key": key}
        document["security"] = [{"key": []}]
    return document


def _text(models: list[Served], longest: dict[str, int]) -> dict[str, Any]:
    """A string; for models with fields also an object with one of these at least."""
    kinds: list[dict[str, Any]] = [{**_STRING, **longest}]
    for fields in dict.fromkeys(served.fields for served in models if served.fields):
        one = [{"required": [f], "properties": {f: {**_STRING, **longest}}} for f in fields]
        known = {f: {"type": ["string", "null"]} for f in fields}
        kinds.append({"type": "object", "properties": known, "additionalProperties": False, "anyOf": one})
    return {"anyOf": kinds, "description": "a string, or for models with fields an object of strings"}


def _model(models: list[Served]) -> dict[str, Any]:
    names = [served.name for served in models]
    text = "name of a model; the first one if left out"
    return {"type": ["string", "null"], "examples": names, "description": text}


def _own(settings: Settings, models: list[Served]) -> dict[str, Any]:
    text = _text(models, {})
    some = {"type": "array", "maxItems": settings.max_texts, "items": text}
    k = {"type": ["integer", "null"], "minimum": 1, "default": 5, "description": "labels for each text"}
    threshold = {
        "anyOf": [_SCORE, {"const": "auto"}, {"type": "null"}],
        "default": 0,
        "description": "lowest score; auto: the threshold of the model",
    }
    labels = {**_STRING, "examples": [key for served in models for key in served.keys[:1]]}
    some_labels = {"type": ["array", "null"], "items": labels}
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "texts": some,
            "text": text,
            "k": k,
            "threshold": threshold,
            "restrict": {**some_labels, "minItems": 1, "description": "find these labels alone"},
            "exclude": {**some_labels, "description": "labels that are not found"},
            "model": _model(models),
        },
        "oneOf": [{"required": ["texts"]}, {"required": ["text"]}],
    }
    return {
        "predict": _operation("labels for texts", "Predictions", body={"application/json": body}),
        "reasons.explain": _operation(
            "why a text has its score for a label, or why not",
            "Explained",
            body={"application/json": _explain_body(settings, models)},
        ),
        "reasons.tree": _operation(
            "the children of a node of a label tree",
            "Tree",
            parameters=[
                _query("model", _STRING, "name of a model"),
                _query("tree", _COUNT, "number of the tree"),
                _query("node", _COUNT, "number of the node; 0 is the root"),
                _query("limit", {"type": "integer", "minimum": 0, "default": 100}, "most children"),
                _query("offset", _COUNT, "children to skip"),
            ],
        ),
        "models": _operation("the models", "Models"),
        "labels": _operation(
            "labels by name, the most frequent first",
            "Labels",
            parameters=[
                _query("q", _STRING, "part of a name or key"),
                _query("model", _STRING, "name of a model"),
                _query("limit", {"type": "integer", "minimum": 0, "default": 50}, "most labels"),
                _query("offset", {"type": "integer", "minimum": 0, "default": 0}, "labels to skip"),
            ],
        ),
        "health": _operation("whether the server runs", "Status"),
        "ready": _operation("whether the server can predict", "Status"),
        "metrics": {
            "summary": "numbers for Prometheus",
            "responses": {"200": {"description": "ok", "content": {"text/plain": {"schema": _STRING}}}},
        },
    }


def _explain_body(settings: Settings, models: list[Served]) -> dict[str, Any]:
    labels = [key for served in models for key in served.keys[:1]]
    features = {"type": ["integer", "null"], "minimum": 0, "default": 20, "description": "most of each part"}
    return {
        "type": "object",
        "required": ["text", "label"],
        "additionalProperties": False,
        "properties": {
            "text": _text(models, {"maxLength": settings.max_explained}),
            "label": {**_STRING, "examples": labels, "description": "a label, or its name"},
            "why_not": {"type": "boolean", "default": False, "description": "why the label is not ahead"},
            "features": features,
            "model": _model(models),
        },
    }


def _annif(models: list[Served]) -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 0, "default": 10}
    names = {**_STRING, "examples": [served.name for served in models]}
    project = {"name": "project_id", "in": "path", "required": True, "schema": names}
    form = {
        "type": "object",
        "required": ["text"],
        "properties": {
            "text": _STRING,
            "limit": limit,
            "threshold": {**_SCORE, "default": 0},
            "language": _STRING,
        },
    }
    document = {
        "type": "object",
        "required": ["text"],
        "properties": {"text": _STRING, "document_id": {"type": ["string", "null"]}},
    }
    documents = {
        "type": "object",
        "required": ["documents"],
        "properties": {"documents": {"type": "array", "maxItems": ANNIF_BATCH, "items": document}},
    }
    options = [
        _query("limit", limit, "most results"),
        _query("threshold", {**_SCORE, "default": 0}, "lowest score"),
    ]
    options.append(_query("language", _STRING, "ignored"))
    learn = _operation("not supported", "Status", parameters=[project], body={"application/json": {}})
    learn["responses"] = {"403": _problem("not supported"), **_ERRORS}
    return {
        "annif.info": _operation("name and version", "ApiInfo"),
        "annif.projects": _operation("models as projects", "Projects"),
        "annif.vocabs": _operation("their labels as vocabularies", "Vocabularies"),
        "annif.project": _operation("one model", "Project", parameters=[project]),
        "annif.suggest": _operation(
            "labels for one text",
            "Suggestions",
            parameters=[project],
            body={"application/x-www-form-urlencoded": form},
        ),
        "annif.suggest_batch": _operation(
            "labels for texts",
            "SuggestionBatch",
            parameters=[project, *options],
            body={"application/json": documents},
        ),
        "annif.learn": learn,
    }


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _problem(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


_SCORE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_ERRORS = {
    "400": _problem("something is wrong with the request"),
    "404": _problem("there is no such model"),
    "408": _problem("the body came too slowly"),
    "413": _problem("too much at once"),
    "415": _problem("the body is of another type"),
    "503": _problem("busy; the header Retry-After says when to try again"),
}


def _operation(
    summary: str, schema: str, parameters: list[Any] | None = None, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "ok", "content": content}, **_ERRORS},
    }
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {"required": True, "content": {k: {"schema": v} for k, v in body.items()}}
    return operation


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_INTEGER = {"type": "integer"}
_ROWS = {"type": ["integer", "null"]}  # null: unknown
_NUMBER = {"type": "number"}
_BOOLEAN = {"type": "boolean"}
_OR_NONE = ["integer", "null"]


def _or_none(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [schema, {"type": "null"}]}


_SHOWN = {"name": _STRING, "kind": _STRING, "where": _STRING, "effect": _NUMBER}
_EXPLAINED = {
    "Explained": _object(
        model=_STRING, explanation=_or_none(_ref("Explanation")), why_not=_or_none(_ref("WhyNot"))
    ),
    "Explanation": _object(
        label=_STRING,
        name=_STRING,
        score=_SCORE,
        rank={"type": _OR_NONE},
        margin=_NUMBER,
        found=_BOOLEAN,
        notes=_list(_STRING),
        steps=_list(_object(text=_STRING, value=_NUMBER)),
        lines=_list(_object(**_SHOWN, share=_NUMBER)),
        more=_INTEGER,
        texts=_list(
            _object(
                field=_STRING,
                text=_STRING,
                segments=_list(_object(begin=_INTEGER, end=_INTEGER, effect=_NUMBER, kind=_STRING)),
            )
        ),
        one_vs_rest=_or_none(_ref("Decision")),
        paths=_list(
            _object(
                tree=_INTEGER,
                score=_NUMBER,
                counts=_BOOLEAN,
                dropped=_or_none({"type": "object"}),
                decisions=_list(_ref("Decision")),
            )
        ),
    ),
    "Decision": _object(
        about=_STRING,
        integer_margin=_INTEGER,
        unit=_NUMBER,
        scale=_NUMBER,
        bias=_NUMBER,
        margin=_NUMBER,
        score=_NUMBER,
        contributions=_list(_object(name=_STRING, product=_INTEGER, effect=_NUMBER)),
        others=_INTEGER,
    ),
    "WhyNot": _object(
        label=_STRING,
        name=_STRING,
        reason=_STRING,
        sentences=_list(_STRING),
        rank={"type": _OR_NONE},
        ranked=_INTEGER,
        score=_SCORE,
        ahead=_list(
            _object(
                label=_STRING,
                name=_STRING,
                rank=_INTEGER,
                score=_SCORE,
                lines=_list(_object(**_SHOWN, other=_NUMBER)),
            )
        ),
        explanation=_or_none(_ref("Explanation")),
    ),
    "Node": _object(
        node={"type": _OR_NONE}, name=_STRING, labels=_INTEGER, label={"type": ["string", "null"]}
    ),
    "Tree": _object(
        model=_STRING,
        trees=_INTEGER,
        tree=_INTEGER,
        path=_list(_ref("Node")),
        total=_INTEGER,
        children=_list(_ref("Node")),
    ),
}
_SCHEMAS = {
    **_EXPLAINED,
    "Problem": _object(type=_STRING, title=_STRING, status=_INTEGER, detail=_STRING),
    "Predictions": _object(
        model=_STRING, results=_list(_list(_object(label=_STRING, name=_STRING, score=_SCORE)))
    ),
    "Models": _object(
        models=_list(
            _object(name=_STRING, labels=_INTEGER, fields=_list(_STRING), trees=_INTEGER, modified=_STRING)
        )
    ),
    "Labels": _object(total=_INTEGER, labels=_list(_object(label=_STRING, name=_STRING, rows=_ROWS))),
    "Status": _object(status=_STRING),
    "ApiInfo": _object(title=_STRING, version=_STRING),
    "Vocabulary": _object(
        vocab_id=_STRING, languages=_list(_STRING), size=_INTEGER, loaded={"type": "boolean"}
    ),
    "Vocabularies": _object(vocabs=_list(_ref("Vocabulary"))),
    "Project": _object(
        project_id=_STRING,
        name=_STRING,
        language=_STRING,
        backend=_object(backend_id=_STRING),
        vocab=_ref("Vocabulary"),
        vocab_language=_STRING,
        is_trained={"type": "boolean"},
        modification_time=_STRING,
    ),
    "Projects": _object(projects=_list(_ref("Project"))),
    "Suggestions": _object(
        results=_list(
            _object(uri=_STRING, label=_STRING, notation={"type": ["string", "null"]}, score=_SCORE)
        )
    ),
    "SuggestionBatch": _list(
        {
            "type": "object",
            "required": ["results"],
            "properties": {
                "document_id": {"type": ["string", "null"]},
                "results": _list(
                    _object(uri=_STRING, label=_STRING, notation={"type": ["string", "null"]}, score=_SCORE)
                ),
            },
        }
    ),
}
