"""Reading requests and writing answers: bodies with limits, errors as problem details."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from bonsai_xmc._server.settings import Settings

FORM, JSON = "application/x-www-form-urlencoded", "application/json"


class Problem(Exception):
    """An error that is sent to the client."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})

    def response(self) -> Response:
        title = HTTPStatus(self.status).phrase
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return Response(json.dumps(body), self.status, self.headers, "application/problem+json")


def answer(value: Any) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), media_type=JSON)


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


async def read_object(request: Request, settings: Settings, kind: str) -> dict[str, Any]:
    """Return the body, a JSON object or a form, by its keys."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (kind, ""):
        raise Problem(415, f"the body must be of type {kind}")
    body = await read_body(request, settings)
    try:
        if kind == FORM:
            return dict(parse_qsl(body.decode("ascii"), True, errors="strict", max_num_fields=1000))
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not {'a form' if kind == FORM else 'JSON'}: {error}") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object")
    return value
