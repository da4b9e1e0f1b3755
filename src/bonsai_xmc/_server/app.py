"""The ASGI application: what is answered where."""

import asyncio
import hmac
import json
import logging
import time
from importlib import resources
from operator import attrgetter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bonsai_xmc._model.thresholds import resolve, select
from bonsai_xmc._server import annif_v1, http
from bonsai_xmc._server.batching import Batcher, Overloaded
from bonsai_xmc._server.connections import MAX_HEAD
from bonsai_xmc._server.counters import Counters
from bonsai_xmc._server.http import Problem, answer
from bonsai_xmc._server.openapi import describe
from bonsai_xmc._server.reasons import Reasons
from bonsai_xmc._server.routes import OPEN, OTHER, PAGE, PLACES, is_annifs
from bonsai_xmc._server.served import Array, Ranked, Served, rows_of
from bonsai_xmc._server.settings import Settings

LOG = logging.getLogger("bonsai_xmc.server")
_PREDICT_KEYS = ("texts", "text", "k", "threshold", "restrict", "exclude", "model")
_LABELS_KEYS = ("q", "model", "limit", "offset")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "server": "bonsai-xmc",
}


class Service:
    """The models of one worker, and the handlers of its requests."""

    def __init__(self, models: dict[str, Served], settings: Settings, counters: Counters) -> None:
        self.settings, self.counters = settings, counters
        self.batchers = {name: Batcher(served, settings, counters) for name, served in models.items()}
        self.under_way = 0
        self.annif, self.reasons = annif_v1.Annif(self), Reasons(self)
        self._page = {
            path: (resources.files("bonsai_xmc._server").joinpath("page", name).read_bytes(), kind)
            for path, (name, kind) in PAGE.items()
        }

    def batcher(self, name: Any) -> Batcher:
        if name is None:
            return next(iter(self.batchers.values()))
        if not isinstance(name, str) or name not in self.batchers:
            raise Problem(404, f"there is no model {name!r:.100}; there are {', '.join(self.batchers)}")
        return self.batchers[name]

    async def rank(
        self,
        batcher: Batcher,
        texts: list[Any],
        k: int,
        threshold: float | str = 0.0,
        allowed: Array | None = None,
    ) -> list[Ranked]:
        ids, scores = await batcher.rank(texts, k, self.under_way - 1, allowed)
        return rows_of(select(ids, scores, resolve(threshold, batcher.served.model)))

    # --- handlers ---

    async def busy(self, request: Request, error: Exception) -> Response:
        return self.overload("too many texts are waiting").response()

    def overload(self, reason: str) -> Problem:
        return Problem(503, f"the server is busy: {reason}", {"retry-after": str(self.settings.retry_after)})

    async def page(self, request: Request) -> Response:
        body, kind = self._page[request.url.path]
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    async def health(self, request: Request) -> Response:
        return answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        return answer({"status": "ready", "models": list(self.batchers)})

    async def metrics(self, request: Request) -> Response:
        return Response(self.counters.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return answer(describe(self.settings, [batcher.served for batcher in self.batchers.values()]))

    async def models(self, request: Request) -> Response:
        return answer(
            {
                "models": [
                    {
                        "name": name,
                        "labels": len(batcher.served.keys),
                        "fields": list(batcher.served.fields),
                        "trees": batcher.served.n_trees,
                        "modified": batcher.served.modified,
                    }
                    for name, batcher in self.batchers.items()
                ]
            }
        )

    async def labels(self, request: Request) -> Response:
        """Labels whose name or key holds a text, most frequent first."""
        query = request.query_params
        http.check_keys(query, _LABELS_KEYS, "the query")
        served = self.batcher(query.get("model")).served
        limit = http.integer(http.number(query.get("limit")), "limit", 50, 1000)
        offset = http.integer(http.number(query.get("offset")), "offset", 0, 2**31)
        wanted = http.text(query.get("q", ""), "q").casefold()
        fitted = served.model.fitted_
        counts = fitted.label_counts
        found = [
            i
            for i in (-counts).argsort(kind="stable").tolist()
            if wanted in served.titles[i].casefold() or wanted in served.keys[i].casefold()
        ]
        chosen = [
            {
                "label": served.keys[i],
                "name": served.titles[i],
                "rows": None if fitted.imported else int(counts[i]),
            }
            for i in found[offset : offset + limit]
        ]
        return answer({"total": len(found), "labels": chosen})

    async def predict(self, request: Request) -> Response:
        body = await http.read_json(request, self.settings)
        http.check_keys(request.query_params, (), "the query")
        http.check_keys(body, _PREDICT_KEYS, "the body")
        batcher = self.batcher(body.get("model"))
        served = batcher.served
        if ("texts" in body) == ("text" in body):
            raise Problem(400, "the body needs either texts, a list of strings, or text, one string")
        values = body["texts"] if "texts" in body else [body["text"]]
        if not isinstance(values, list):
            raise Problem(400, "texts must be a list of strings")
        if len(values) > self.settings.max_texts:
            raise Problem(
                400, f"there are {len(values):,} texts, but at most {self.settings.max_texts:,} may be sent"
            )
        texts = [http.document(value, f"texts[{i}]", served.fields) for i, value in enumerate(values)]
        k = http.integer(body.get("k"), "k", 5, self.settings.max_labels, 1)
        threshold = http.threshold(body.get("threshold"))
        rows = await self.rank(batcher, texts, k, threshold, _allowed(served, body))
        results = [
            [{"label": served.keys[i], "name": served.titles[i], "score": s} for i, s in row] for row in rows
        ]
        return answer({"model": served.name, "results": results})


def _allowed(served: Served, body: dict[str, Any]) -> Array | None:
    """The labels that a request allows."""
    restrict, exclude = (http.labels(body.get(name), name) for name in ("restrict", "exclude"))
    if restrict == []:
        raise Problem(400, "restrict is empty, but must hold one label at least")
    try:
        return served.allowed(restrict, exclude)
    except ValueError as error:
        raise Problem(404, str(error)[:500]) from None


class Guard:
    """Around everything: limits, the key, time, headers, counting and the log."""

    def __init__(self, app: Any, service: Service, routes: list[tuple[Any, str]]) -> None:
        self._app, self._service, self._settings = app, service, service.settings
        self._routes = routes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        sent = {"status": 0}
        extra = _HEADERS | ({"access-control-allow-origin": "*"} if is_annifs(scope["path"]) else {})
        unread = _has_long_body(scope["headers"])

        async def read() -> Any:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                last = {"connection": "close"} if unread else {}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in (extra | last).items()),
                ]
            await send(message)

        service = self._service
        service.under_way += 1
        service.counters.under_way(1)
        try:
            await self._checked(scope, read, watch, sent)
        finally:
            service.under_way -= 1
            service.counters.under_way(-1)
            seconds = time.perf_counter() - begin
            status = sent["status"] or 499
            service.counters.request(self._route(scope), status, seconds)
            line = {"method": scope["method"], "path": scope["path"], "status": status}
            LOG.info("request", extra={"fields": line | {"ms": round(1e3 * seconds, 2)}})

    async def _checked(self, scope: Any, receive: Any, send: Any, sent: dict[str, int]) -> None:
        settings, service = self._settings, self._service
        try:
            self._check(scope)
            async with asyncio.timeout(settings.timeout):
                await self._app(scope, receive, send)
            return
        except Problem as error:
            problem = error
        except TimeoutError:
            problem = service.overload("it took too long")
        except Exception:
            LOG.exception("error", extra={"fields": {"path": scope["path"]}})
            problem = Problem(500, "the server failed; its log says why")
        if not sent["status"]:
            await problem.response()(scope, receive, send)

    def _check(self, scope: Any) -> None:
        settings, headers = self._settings, scope["headers"]
        hosts = sum(name == b"host" for name, _ in headers)
        if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):
            raise Problem(400, f"there are {hosts} headers Host, but must be one")
        if scope["path"] in ("/health", "/ready", "/metrics"):
            pass  # answered even by a busy server
        elif self._service.under_way > settings.max_requests:
            raise self._service.overload("too many requests are under way")
        if settings.api_key is None or scope["path"] in OPEN or scope["method"] == "OPTIONS":
            return
        if not hmac.compare_digest(_key_of(headers), settings.api_key.encode()):
            raise Problem(
                401,
                "an API key is needed: send it as the header X-API-Key, or as Authorization: Bearer",
                {"www-authenticate": "Bearer"},
            )

    def _route(self, scope: Any) -> str:
        for route, name in self._routes:
            match, _ = route.matches(scope)
            if match.value:
                return name
        return OTHER


def _key_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The key that a client sends; empty if there is none."""
    given = [(name, value.strip()) for name, value in headers if name in (b"x-api-key", b"authorization")]
    if len(given) > 1:
        raise Problem(400, "there are several keys: send one header X-API-Key or Authorization")
    for name, value in given:
        if name == b"x-api-key":
            return value
        scheme, _, key = value.partition(b" ")
        if scheme.lower() == b"bearer":
            return key.strip()
    return b""


def _has_long_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a body, if nobody wants it, is too long to be read just to use its connection again."""
    found = dict(headers)
    length = int(found.get(b"content-length", b"0"))
    return length > MAX_HEAD or b"transfer-encoding" in found or b"expect" in found


async def _wrong_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.url.path}: {error.detail}"
    return Problem(error.status_code, detail, error.headers).response()


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _failed(request: Request, error: Exception) -> Response:
    return Problem(500, "the server failed; its log says why").response()


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # which nobody reads


async def _preflight(request: Request) -> Response:
    headers = {
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "content-type, x-api-key, authorization",
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=headers)


def make_app(models: dict[str, Served], settings: Settings, counters: Counters | None = None) -> Guard:
    """The application of one worker."""
    service = Service(models, settings, counters or Counters())
    named = [
        (Route(place.path, attrgetter(place.handler)(service), methods=[place.method]), place.counter)
        for place in PLACES
    ]
    routes = [
        *(route for route, _ in named),
        *(Route(path, _preflight, methods=["OPTIONS"]) for path in ("/v1", "/v1/{rest:path}")),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: _wrong_path, Problem: _problem, Overloaded: service.busy, ClientDisconnect: _gone,
        Exception: _failed,
    }  # fmt: skip
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, service, named)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
