"""Annif's REST interface, version 1: each model is a project."""

from typing import TYPE_CHECKING, Any

from bonsai_xmc import __version__
from bonsai_xmc._server.answers import (
    ApiInfo,
    DocumentSuggestions,
    Project,
    Projects,
    Suggestion,
    Suggestions,
    Vocabularies,
    Vocabulary,
)
from bonsai_xmc._server.batching import Batcher
from bonsai_xmc._server.http import Problem
from bonsai_xmc._server.served import Ranked, Served

if TYPE_CHECKING:
    from bonsai_xmc._server.app import Service

LANGUAGE = "und"  # as models do not know theirs


class Annif:
    def __init__(self, service: "Service") -> None:
        self._service = service

    async def info(self) -> ApiInfo:
        """Name and version."""
        return {"title": "bonsai-xmc", "version": __version__}

    async def projects(self) -> Projects:
        """Models as projects."""
        return {"projects": [_project(served) for served in self._service.served]}

    async def project(self, batcher: Batcher, given: dict[str, Any]) -> Project:
        """One model."""
        return _project(batcher.served)

    async def vocabs(self) -> Vocabularies:
        """The labels of models as vocabularies."""
        return {"vocabs": [_vocabulary(served) for served in self._service.served]}

    async def suggest(self, batcher: Batcher, given: dict[str, Any]) -> Suggestions:
        """Labels for one text."""
        rows = await self._service.rank(batcher, [given["text"]], given["limit"], given["threshold"])
        return {"results": _results(batcher.served, rows[0])}

    async def suggest_batch(self, batcher: Batcher, given: dict[str, Any]) -> list[DocumentSuggestions]:
        """Labels for texts."""
        documents = given["documents"]
        texts = [item["text"] for item in documents]
        rows = await self._service.rank(batcher, texts, given["limit"], given["threshold"])
        return [
            {"results": _results(batcher.served, row), "document_id": item.get("document_id")}
            for row, item in zip(rows, documents, strict=True)
        ]

    async def learn(self, batcher: Batcher, given: dict[str, Any]) -> None:
        """Not supported."""
        raise Problem(403, "these models do not learn from feedback: train a new one")


def _results(served: Served, row: Ranked) -> list[Suggestion]:
    return [
        {"uri": served.keys[label], "label": served.titles[label], "notation": None, "score": score}
        for label, score in row
    ]


def _project(served: Served) -> Project:
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


def _vocabulary(served: Served) -> Vocabulary:
    return {"vocab_id": served.name, "languages": [LANGUAGE], "size": len(served.keys), "loaded": True}
