"""The OpenAPI 3.1 description, derived from routes, types of answers and docstrings of handlers."""

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from bonsai_xmc import __version__
from bonsai_xmc._explain.display import SHOWN
from bonsai_xmc._server import answers
from bonsai_xmc._server.fields import Schema
from bonsai_xmc._server.routes import PLACES, Place
from bonsai_xmc._server.served import Served
from bonsai_xmc._server.settings import Settings

_TYPES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null",
}  # fmt: skip
_ERRORS = {
    400: "the request is invalid",
    404: "there is no such model or label",
    408: "the body arrived too slowly",
    413: "the body is too large",
    415: "the body is of another type",
    429: "too many requests of this client; the header Retry-After has the seconds to wait",
    503: "busy; the header Retry-After has the seconds to wait",
}


def describe(
    settings: Settings, models: Sequence[Served], handlers: Mapping[str, Callable[..., Any]]
) -> dict[str, Any]:
    """Return the document; `handlers` are the functions of the routes by their names."""
    schemas: dict[str, Schema] = {}
    paths: dict[str, Any] = {}
    problem = _schema(answers.Problem, schemas)

    def error(text: str) -> dict[str, Any]:
        return {"description": text, "content": {"application/problem+json": {"schema": problem}}}

    for place in PLACES:
        if not place.is_described:
            continue
        operation = _operation(place, handlers[place.handler], schemas, settings, models)
        operation["responses"] |= {str(status): error(text) for status, text in _ERRORS.items()}
        if place.handler == "annif_learn":
            operation["responses"]["403"] = error("not supported")
        if settings.api_key is not None and place.is_open:
            operation["security"] = []
        elif settings.api_key is not None:
            operation["responses"]["401"] = error("a key is needed")
        paths.setdefault(place.path, {})[place.method.lower()] = operation
    about = "Labels for texts. Paths under /v1 are Annif's REST interface."
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "bonsai-xmc", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if settings.api_key is not None:
        key = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["components"]["securitySchemes"] = {"key": key}
        document["security"] = [{"key": []}]
    return document


def _operation(
    place: Place,
    handler: Callable[..., Any],
    schemas: dict[str, Schema],
    settings: Settings,
    models: Sequence[Served],
) -> dict[str, Any]:
    answer = get_type_hints(handler, include_extras=True)["return"]
    operation: dict[str, Any] = {
        "summary": (handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": {},
    }
    if answer is not NoneType:  # otherwise the handler only raises
        kind = "text/plain" if answer is str else "application/json"
        content = {kind: {"schema": _schema(answer, schemas)}}
        operation["responses"]["200"] = {"description": "ok", "content": content}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": field.described(settings, models, in_body=False)}
        for name, field in place.query.items()
    ]
    if "{project_id}" in place.path:
        names = {"type": "string", "examples": [served.name for served in models]}
        parameters.append({"name": "project_id", "in": "path", "required": True, "schema": names})
    if parameters:
        operation["parameters"] = parameters
    if place.body:
        in_json = place.body_type == "application/json"
        known = {name: f.described(settings, models, in_json) for name, f in place.body.items()}
        body: Schema = {"type": "object", "properties": known}
        body["required"] = [name for name, field in place.body.items() if field.required]
        if not place.is_annifs:
            body["additionalProperties"] = False
        if place.one_of:
            body["oneOf"] = [{"required": [name]} for name in place.one_of]
        operation["requestBody"] = {"required": True, "content": {place.body_type: {"schema": body}}}
    return operation


def _schema(kind: Any, schemas: dict[str, Schema]) -> Schema:
    """Return a type as JSON Schema; objects are added to `schemas` by their names."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _schema(inner[0], schemas) | inner[1]
    if kind is Any:
        return {}
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(one, schemas) for one in inner]}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(inner[0], schemas)}
    if origin is dict:
        return {"type": "object"}
    name = kind.__name__
    if name not in schemas:
        hints = get_type_hints(kind, include_extras=True) | SHOWN.get(kind, {})
        properties = {key: _schema(of, schemas) for key, of in hints.items() if of is not None}
        schemas[name] = {"type": "object", "required": list(properties), "properties": properties}
    return {"$ref": f"#/components/schemas/{name}"}
