"""The ASGI application of a worker: its models, the handlers of requests, and their routes.

Handlers of Annif's REST interface, version 1, begin with ``annif``: each model is a project.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bonsai_xmc import __version__
from bonsai_xmc._explain.display import shown
from bonsai_xmc._explain.names import label_id
from bonsai_xmc._explain.row import NoClassifier
from bonsai_xmc._explain.verbs import explained_row
from bonsai_xmc._explain.why_not import why_not
from bonsai_xmc._model.thresholds import resolve, select
from bonsai_xmc._server import answers, fields, http
from bonsai_xmc._server.batching import Batcher, Overloaded
from bonsai_xmc._server.counters import Counters
from bonsai_xmc._server.guard import FAILED, Guard, Rates
from bonsai_xmc._server.http import Problem, answer
from bonsai_xmc._server.openapi import describe
from bonsai_xmc._server.routes import PAGE, PLACES, Place
from bonsai_xmc._server.served import Array, Ranked, Served, rows_of
from bonsai_xmc._server.settings import Settings

_LANGUAGE = "und"  # undetermined, as models do not store a language
_WAITING = 64  # calls that may wait for the thread of explanations; further requests get an error


class Service:
    """The models of one worker, and the handlers of its requests."""

    def __init__(self, models: dict[str, Served], settings: Settings, counters: Counters) -> None:
        self.settings, self.counters = settings, counters
        self.batchers = {name: Batcher(served, settings, counters) for name, served in models.items()}
        self.under_way = 0
        self.handlers = {place.handler: getattr(self, place.handler) for place in PLACES}
        self._reasons = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self._waiting = 0  # calls of `run`

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

    async def run(self, function: Any, *arguments: Any) -> Any:
        """Call a function in the thread of explanations; predictions have threads of their own."""
        if self._waiting >= _WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reasons, function, *arguments)
        finally:
            self._waiting -= 1

    def overload(self, reason: str) -> Problem:
        return Problem(503, f"the server is busy: {reason}", {"retry-after": str(self.settings.retry_after)})

    # --- handlers ---

    async def page(self, path: str) -> Response:
        """Send the page or one of its files."""
        name, kind = PAGE[path]
        body = resources.files("bonsai_xmc._server").joinpath("page", name).read_bytes()
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    async def health(self) -> answers.Status:
        """Return whether the server is running."""
        return {"status": "ok"}

    async def ready(self) -> answers.Ready:
        """Return whether the server can predict."""
        return {"status": "ready", "models": list(self.batchers)}

    async def metrics(self) -> str:
        """Return metrics for Prometheus."""
        return self.counters.text()

    async def openapi(self) -> dict[str, Any]:
        """Return this description."""
        return describe(self.settings, self.served, self.handlers)

    async def models(self) -> answers.Models:
        """List the models."""
        return {"models": [served.about for served in self.served]}

    async def predict(self, batcher: Batcher, given: dict[str, Any]) -> answers.Predictions:
        """Find labels for texts."""
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
                allowed = await self.run(served.allowed, *limits)
        except ValueError as error:
            raise Problem(404, str(error)[:500]) from None
        rows = await self.rank(batcher, texts, given["k"], given["threshold"], allowed)
        return {
            "model": served.name,
            "results": [[served.suggested(*found) for found in row] for row in rows],
        }

    async def explain(self, batcher: Batcher, given: dict[str, Any]) -> answers.Explained:
        """Explain why a text has its score for a label, or why it does not get the label."""
        most, served = self.settings.max_explained, batcher.served
        text = fields.document(given["text"], "text", served.fields)
        length = sum(map(len, text.values())) if isinstance(text, dict) else len(text)
        if length > most:
            raise Problem(400, f"text has {length:,} characters, but at most {most:,} can be explained")
        return await self.run(_explain, served, text, given["label"], given["features"], given["why_not"])

    async def labels(self, batcher: Batcher, given: dict[str, Any]) -> answers.Labels:
        """List the labels whose name or key holds a text, the most frequent first."""
        return await self.run(batcher.served.search, given["q"], given["offset"], given["limit"])

    async def tree(self, batcher: Batcher, given: dict[str, Any]) -> answers.Tree:
        """List the children of a node in a label tree."""
        return await self.run(_tree, batcher.served, given)

    async def annif_info(self) -> answers.ApiInfo:
        """Return name and version."""
        return {"title": "bonsai-xmc", "version": __version__}

    async def annif_projects(self) -> answers.Projects:
        """List the models as projects."""
        return {"projects": [_project(served) for served in self.served]}

    async def annif_project(self, batcher: Batcher, given: dict[str, Any]) -> answers.Project:
        """Return one model."""
        return _project(batcher.served)

    async def annif_vocabs(self) -> answers.Vocabularies:
        """List the labels of models as vocabularies."""
        return {"vocabs": [_vocabulary(served) for served in self.served]}

    async def annif_suggest(self, batcher: Batcher, given: dict[str, Any]) -> answers.Suggestions:
        """Find labels for one text."""
        rows = await self.rank(batcher, [given["text"]], given["limit"], given["threshold"])
        return {"results": _results(batcher.served, rows[0])}

    async def annif_suggest_batch(
        self, batcher: Batcher, given: dict[str, Any]
    ) -> list[answers.DocumentSuggestions]:
        """Find labels for texts."""
        documents = given["documents"]
        texts = [item["text"] for item in documents]
        rows = await self.rank(batcher, texts, given["limit"], given["threshold"])
        return [
            {"results": _results(batcher.served, row), "document_id": item.get("document_id")}
            for row, item in zip(rows, documents, strict=True)
        ]

    async def annif_learn(self, batcher: Batcher, given: dict[str, Any]) -> None:
        """Return an error, as learning is not supported."""
        raise Problem(403, "these models do not learn from feedback: train a new one")


def _explain(served: Served, text: Any, label: str, n: int, refused: bool) -> answers.Explained:
    row = explained_row(served.model, text)
    try:
        number = label_id(row.fitted, label)
    except ValueError as error:
        raise Problem(404, str(error)[:500]) from None
    try:
        explanation = None if refused else row.explain(number)
        found = why_not(row, number, 3) if refused else None
    except NoClassifier as error:
        raise Problem(404, str(error)[:500]) from None
    except (ValueError, NotImplementedError) as error:  # what this kind of model cannot explain
        raise Problem(400, f"the model {served.name!r:.100}: {error}"[:500]) from None
    return {"model": served.name, "explanation": shown(explanation, n), "why_not": shown(found, n)}


def _tree(served: Served, given: dict[str, Any]) -> answers.Tree:
    forest, tree, node = served.forest, given["tree"], given["node"]
    if forest is None:
        raise Problem(404, f"the model {served.name!r:.100} has no label trees")
    n_trees = len(forest.tree_ptr) - 1
    if tree >= n_trees:
        raise Problem(404, f"there is no tree {tree}; there are {n_trees}, counted from 0")
    root, end = forest.tree_ptr[tree : tree + 2].tolist()
    if node >= end - root:
        raise Problem(404, f"there is no node {node} in tree {tree}; it has {end - root:,}")
    at = root + node
    first, last = forest.child_ptr[at : at + 2].tolist()
    chosen = forest.children[first:last][given["offset"] :][: given["limit"]].tolist()
    leaf = bool(forest.is_leaf[at])
    above = [edge.node for edge in forest.way(at)]
    return {
        "model": served.name,
        "trees": n_trees,
        "tree": tree,
        "path": [served.cluster(root, one) for one in (*above, at)],
        "total": last - first,
        "children": [_leaf(served, c) if leaf else served.cluster(root, root + c) for c in chosen],
    }


def _leaf(served: Served, slot: int) -> answers.Node:
    label = int(served.model.fitted_.linear.label_of_slot[slot])
    return {"node": None, "name": served.titles[label], "labels": 1, "label": served.keys[label]}


def _results(served: Served, row: Ranked) -> list[answers.Suggestion]:
    return [
        {"uri": served.keys[label], "label": served.titles[label], "notation": None, "score": score}
        for label, score in row
    ]


def _project(served: Served) -> answers.Project:
    return {
        "project_id": served.name,
        "name": served.name,
        "language": _LANGUAGE,
        "backend": {"backend_id": "bonsai"},
        "vocab": _vocabulary(served),
        "vocab_language": _LANGUAGE,
        "is_trained": True,
        "modification_time": served.modified,
    }


def _vocabulary(served: Served) -> answers.Vocabulary:
    return {"vocab_id": served.name, "languages": [_LANGUAGE], "size": len(served.keys), "loaded": True}


def _endpoint(service: Service, place: Place) -> Callable[[Request], Any]:
    """Return the function that reads a request, calls the handler and writes the answer."""
    handler = service.handlers[place.handler]
    strict = not place.is_annifs

    async def endpoint(request: Request) -> Response:
        batcher = _batcher(service, request) if "project_id" in request.path_params else None
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


def _batcher(service: Service, request: Request) -> Batcher:
    name = request.path_params["project_id"]
    if name not in service.batchers:
        raise Problem(404, f"Project '{name}' not found")
    return service.batchers[name]


def _handler(problem: Callable[[Request, Any], Problem]) -> Callable[[Request, Exception], Any]:
    """Return an exception handler of Starlette that answers with the problem."""

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
        ClientDisconnect: lambda *_: Problem(400, "the client went away"),  # no one reads the answer
        Exception: lambda *_: FAILED,
    }
    handlers = {kind: _handler(problem) for kind, problem in problems.items()}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, service, named, rates or Rates(settings.rate))
