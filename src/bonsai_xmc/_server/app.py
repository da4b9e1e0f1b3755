"""The ASGI application of a worker: its models, the handlers of their requests, and the routes to these."""

from collections.abc import Callable
from importlib import resources
from operator import attrgetter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bonsai_xmc._model.thresholds import resolve, select
from bonsai_xmc._server import fields, http
from bonsai_xmc._server.annif_v1 import Annif
from bonsai_xmc._server.answers import Models, Predictions, Ready, Status
from bonsai_xmc._server.batching import Batcher, Overloaded
from bonsai_xmc._server.counters import Counters
from bonsai_xmc._server.guard import FAILED, Guard, Rates
from bonsai_xmc._server.http import Problem, answer
from bonsai_xmc._server.openapi import describe
from bonsai_xmc._server.reasons import Reasons
from bonsai_xmc._server.routes import PAGE, PLACES, Place
from bonsai_xmc._server.served import Array, Ranked, Served, rows_of
from bonsai_xmc._server.settings import Settings


class Service:
    """The models of one worker, and the handlers of its requests."""

    def __init__(self, models: dict[str, Served], settings: Settings, counters: Counters) -> None:
        self.settings, self.counters = settings, counters
        self.batchers = {name: Batcher(served, settings, counters) for name, served in models.items()}
        self.under_way = 0
        self.annif, self.reasons = Annif(self), Reasons(self)
        self.handlers = {place.handler: attrgetter(place.handler)(self) for place in PLACES}

    @property
    def served(self) -> list[Served]:
        return [batcher.served for batcher in self.batchers.values()]

    def batcher(self, name: str | None) -> Batcher:
        if name is None:
            return next(iter(self.batchers.values()))
        if name not in self.batchers:
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
        k = min(k, self.settings.max_labels)
        ids, scores = await batcher.rank(texts, k, self.under_way - 1, allowed)
        return rows_of(select(ids, scores, resolve(threshold, batcher.served.model)))

    def overload(self, reason: str) -> Problem:
        return Problem(503, f"the server is busy: {reason}", {"retry-after": str(self.settings.retry_after)})

    # --- handlers ---

    async def page(self, path: str) -> Response:
        """The page, and what belongs to it."""
        name, kind = PAGE[path]
        body = resources.files("bonsai_xmc._server").joinpath("page", name).read_bytes()
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    async def health(self) -> Status:
        """Whether the server runs."""
        return {"status": "ok"}

    async def ready(self) -> Ready:
        """Whether the server can predict."""
        return {"status": "ready", "models": list(self.batchers)}

    async def metrics(self) -> str:
        """Numbers for Prometheus."""
        return self.counters.text()

    async def openapi(self) -> dict[str, Any]:
        """This description."""
        return describe(self.settings, self.served, self.handlers)

    async def models(self) -> Models:
        """The models."""
        return {"models": [served.about for served in self.served]}

    async def predict(self, batcher: Batcher, given: dict[str, Any]) -> Predictions:
        """Labels for texts."""
        served, most = batcher.served, self.settings.max_texts
        values = [given["text"]] if given["texts"] is None else given["texts"]
        if len(values) > most:
            raise Problem(400, f"there are {len(values):,} texts, but at most {most:,} may be sent")
        texts = [fields.document(value, f"texts[{i}]", served.fields) for i, value in enumerate(values)]
        if given["restrict"] == []:
            raise Problem(400, "restrict is empty, but must hold one label at least")
        allowed, limits = None, (given["restrict"], given["exclude"])
        try:
            if limits != (None, None):
                allowed = await self.reasons.run(served.allowed, *limits)
        except ValueError as error:
            raise Problem(404, str(error)[:500]) from None
        rows = await self.rank(batcher, texts, given["k"], given["threshold"], allowed)
        return {
            "model": served.name,
            "results": [[served.suggested(*found) for found in row] for row in rows],
        }


def _endpoint(service: Service, place: Place) -> Callable[[Request], Any]:
    """Reads what a request holds, calls the handler, and writes its answer."""
    handler = service.handlers[place.handler]
    strict = not place.is_annifs

    async def endpoint(request: Request) -> Response:
        batcher = _project(service, request) if "project_id" in request.path_params else None
        given = fields.read(request.query_params, place.query, "the query", strict)
        if place.body:
            body = await http.read_object(request, service.settings, place.body_type)
            where = "the body" if place.body_type == http.JSON else "the form"
            given |= fields.read(body, place.body, where, strict)
            if place.one_of and sum(name in body for name in place.one_of) != 1:
                raise Problem(400, f"the body needs either {' or '.join(place.one_of)}")
        if place.is_of_model:
            batcher = batcher or service.batcher(given["model"])
            request.scope["bonsai.model"] = batcher.served.name  # for the log
            found = await handler(batcher, given)
        else:
            found = await (handler(place.path) if place.path in PAGE else handler())
        if isinstance(found, str):
            return Response(found, media_type="text/plain; version=0.0.4")
        return found if isinstance(found, Response) else answer(found)

    return endpoint


def _project(service: Service, request: Request) -> Batcher:
    name = request.path_params["project_id"]
    if name not in service.batchers:
        raise Problem(404, f"Project '{name}' not found")
    return service.batchers[name]


def _handler(problem: Callable[[Request, Any], Problem]) -> Callable[[Request, Exception], Any]:
    """Return what Starlette calls for an exception: the problem that the client is told about."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem(request, error).response()

    return handle


async def _preflight(request: Request) -> Response:
    headers = {
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "content-type, x-api-key, authorization",
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=headers)


def make_app(
    models: dict[str, Served],
    settings: Settings,
    counters: Counters | None = None,
    rates: Rates | None = None,
) -> Guard:
    """Return the application of one worker."""
    service = Service(models, settings, counters or Counters())
    named = [
        (Route(place.path, _endpoint(service, place), methods=[place.method]), place.counter)
        for place in PLACES
    ]
    routes = [
        *(route for route, _ in named),
        *(Route(place.path, _preflight, methods=["OPTIONS"]) for place in PLACES if place.is_annifs),
    ]

    problems: dict[Any, Callable[[Request, Any], Problem]] = {
        HTTPException: lambda request, error: Problem(
            error.status_code, f"{request.scope['path']}: {error.detail}", error.headers
        ),
        Problem: lambda _, error: error,
        Overloaded: lambda *_: service.overload("too many texts are waiting"),
        ClientDisconnect: lambda *_: Problem(400, "the client went away"),  # which nobody reads
        Exception: lambda *_: FAILED,
    }
    handlers = {kind: _handler(problem) for kind, problem in problems.items()}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, service, named, rates or Rates(settings.rate))
