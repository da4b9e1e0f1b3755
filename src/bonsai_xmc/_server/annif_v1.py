"""Annif's REST interface, version 1: each model is a project."""

import json
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from bonsai_xmc import __version__
from bonsai_xmc._server import http
from bonsai_xmc._server.batching import Batcher
from bonsai_xmc._server.http import Problem, answer
from bonsai_xmc._server.served import Ranked, Served
from bonsai_xmc._server.settings import ANNIF_BATCH

if TYPE_CHECKING:
    from bonsai_xmc._server.app import Service

LANGUAGE = "und"  # as models do not know theirs


class Annif:
    def __init__(self, service: "Service") -> None:
        self._service = service

    async def info(self, request: Request) -> Response:
        return answer({"title": "bonsai-xmc", "version": __version__})

    async def projects(self, request: Request) -> Response:
        return answer({"projects": [_project(b.served) for b in self._service.batchers.values()]})

    async def project(self, request: Request) -> Response:
        return answer(_project(self._find(request).served))

    async def vocabs(self, request: Request) -> Response:
        return answer({"vocabs": [_vocabulary(b.served) for b in self._service.batchers.values()]})

    async def suggest(self, request: Request) -> Response:
        batcher = self._find(request)
        form = await http.read_form(request, self._service.settings)
        if "text" not in form:
            raise Problem(400, "the form needs the field text")
        limit, threshold = self._options(form)
        rows = await self._service.rank(batcher, [http.text(form["text"], "text")], limit, threshold)
        return answer({"results": _results(batcher.served, rows[0])})

    async def suggest_batch(self, request: Request) -> Response:
        batcher = self._find(request)
        limit, threshold = self._options(request.query_params)
        body = await http.read_json(request, self._service.settings)
        documents = body.get("documents")
        if not isinstance(documents, list) or not all(isinstance(item, dict) for item in documents):
            raise Problem(400, "the body needs documents, a list of objects with text")
        if len(documents) > ANNIF_BATCH:
            raise Problem(400, f"there are {len(documents)} documents, but at most {ANNIF_BATCH} may be sent")
        texts = [http.text(item.get("text"), f"documents[{i}].text") for i, item in enumerate(documents)]
        for i, item in enumerate(documents):
            if item.get("document_id") is not None:
                http.text(item["document_id"], f"documents[{i}].document_id")
        rows = await self._service.rank(batcher, texts, limit, threshold)
        return answer(
            [
                {"results": _results(batcher.served, row), "document_id": item.get("document_id")}
                for row, item in zip(rows, documents, strict=True)
            ]
        )

    async def learn(self, request: Request) -> Response:
        self._find(request)
        body = await http.read_body(request, self._service.settings)
        try:
            json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Problem(400, f"the body is not JSON: {error}") from None
        raise Problem(403, "these models do not learn from feedback: train a new one")

    def _find(self, request: Request) -> Batcher:
        name = request.path_params["project_id"]
        batcher = self._service.batchers.get(name)
        if batcher is None:
            raise Problem(404, f"Project '{name}' not found")
        return batcher

    def _options(self, values: Any) -> tuple[int, float]:
        most = self._service.settings.max_labels
        limit = http.integer(http.number(values.get("limit")), "limit", 10, most)
        return limit, http.score(http.number(values.get("threshold")), "threshold")


def _results(served: Served, row: Ranked) -> list[dict[str, Any]]:
    return [
        {"uri": served.keys[label], "label": served.titles[label], "notation": None, "score": score}
        for label, score in row
    ]


def _project(served: Served) -> dict[str, Any]:
    return {
        "project_id": served.name,
        "name": served.name,
        "language": LANGUAGE,
        "backend": {"backend_id": "bonsai"},
        "vocab": _vocabulary(served),
        "vocab_language": LANGUAGE,
        "is_trained": True,
        "modification_time": served.modified,
    }


def _vocabulary(served: Served) -> dict[str, Any]:
    return {"vocab_id": served.name, "languages": [LANGUAGE], "size": len(served.keys), "loaded": True}
