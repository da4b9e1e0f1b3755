"""Reading requests and writing answers: bodies with limits, checked values, errors as problem details."""

import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from bonsai_xmc._server.settings import Settings

_TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 413: "Payload Too Large", 415: "Unsupported Media Type",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,999})(\.[0-9]{1,99})?([eE][+-]?[0-9]{1,3})?")


class Problem(Exception):
    """An error that the client is told about."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})

    def response(self) -> Response:
        title = _TITLES.get(self.status, "Error")
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return Response(json.dumps(body), self.status, self.headers, "application/problem+json")


def answer(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, media_type="application/json")


async def read_body(request: Request, settings: Settings) -> bytes:
    too_large = Problem(413, f"the body may have at most {settings.max_body:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > settings.max_body:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for chunk in request.stream():
                size += len(chunk)
                if size > settings.max_body:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {settings.body_timeout:g} seconds") from None
    return b"".join(chunks)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, settings: Settings) -> dict[str, Any]:
    """The body, which must be an object."""
    if _media_type(request) not in ("application/json", ""):
        raise Problem(415, "the body must be of type application/json")
    body = await read_body(request, settings)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object")
    return value


async def read_form(request: Request, settings: Settings) -> dict[str, str]:
    """The fields of a form."""
    if _media_type(request) not in ("application/x-www-form-urlencoded", ""):
        raise Problem(415, "the body must be of type application/x-www-form-urlencoded")
    body = await read_body(request, settings)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError as error:
        raise Problem(400, f"the body is not a form: {error}") from None
    return dict(pairs)


def check_keys(given: Iterable[str], known: Sequence[str], where: str, noun: str = "key") -> None:
    """Refuse keys that are not known: one that is misspelt would be without effect."""
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


def number(value: str | None) -> Any:
    """A number of a form or query, as JSON has it; what is none is given back as it is."""
    return json.loads(value) if value is not None and _NUMBER.fullmatch(value) else value


def integer(value: Any, name: str, default: int, most: int, least: int = 0) -> int:
    if value is None:
        return default
    whole = int(value) if isinstance(value, float) and value.is_integer() else value  # as JSON Schema has it
    if type(whole) is not int or not least <= whole:
        raise Problem(400, f"{name} is {value!r:.50}, but must be an integer of at least {least}")
    return min(whole, most)


def score(value: Any, name: str) -> float:
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise Problem(400, f"{name} is {value!r:.50}, but must be a number from 0 to 1")
    return float(value)


def threshold(value: Any) -> float | str:
    """A score, or "auto"."""
    return value if value == "auto" else score(value, "threshold")


def labels(value: Any, name: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise Problem(400, f"{name} must be a list of labels")
    return [text(label, f"{name}[{i}]") for i, label in enumerate(value)]


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Problem(400, f"{name} must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(400, f"{name} is not valid Unicode") from None
    return value


def document(value: Any, name: str, fields: tuple[str, ...]) -> Any:
    """A text, or for models with fields an object of texts."""
    if not isinstance(value, dict):
        return text(value, name)
    if not fields:
        raise Problem(400, f"{name} is an object, but this model takes strings")
    check_keys(value, fields, name, "field")
    known = {field: text(value[field], f"{name}.{field}") for field in fields if value.get(field) is not None}
    if not known:
        raise Problem(400, f"{name} has none of the fields {', '.join(fields)}")
    return known
