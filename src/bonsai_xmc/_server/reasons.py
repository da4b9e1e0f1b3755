"""Explanations and label trees over HTTP."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from bonsai_xmc._explain.display import lines_of
from bonsai_xmc._explain.names import label_id
from bonsai_xmc._explain.objects import Decision, Effect, Explanation, WhyNot, plain
from bonsai_xmc._explain.row import ExplainedRow, NoClassifier
from bonsai_xmc._explain.why_not import why_not
from bonsai_xmc._server import http
from bonsai_xmc._server.batching import Overloaded
from bonsai_xmc._server.http import Problem, answer
from bonsai_xmc._server.served import Served
from bonsai_xmc._server.trees import BrowsedTrees

if TYPE_CHECKING:
    from bonsai_xmc._server.app import Service

_MOST_FEATURES = 1000  # of a decision, in one answer
_EXPLAIN_KEYS = ("text", "label", "why_not", "features", "model")
_TREE_KEYS = ("model", "tree", "node", "limit", "offset")
_WAITING = 64  # explanations that wait in a worker; beyond, requests are refused


class Reasons:
    """The handlers. Explanations are made one after the other, in a thread beside that of predictions."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self._waiting = 0
        self._trees: dict[str, BrowsedTrees] = {}  # made when they are first asked for

    async def explain(self, request: Request) -> Response:
        settings = self._service.settings
        body = await http.read_json(request, settings)
        http.check_keys(request.query_params, (), "the query")
        http.check_keys(body, _EXPLAIN_KEYS, "the body")
        served = self._service.batcher(body.get("model")).served
        if "text" not in body or "label" not in body:
            raise Problem(400, "the body needs text, a string, and label")
        text = http.document(body["text"], "text", served.fields)
        length = sum(map(len, text.values())) if isinstance(text, dict) else len(text)
        if length > settings.max_explained:
            raise Problem(
                400,
                f"text has {length:,} characters, but at most {settings.max_explained:,} can be explained",
            )
        label = http.text(body["label"], "label")
        n = http.integer(body.get("features"), "features", 20, _MOST_FEATURES)
        refused = body.get("why_not", False)
        if not isinstance(refused, bool):
            raise Problem(400, f"why_not is {refused!r:.50}, but must be true or false")
        return answer(await self._run(_explain, served, text, label, n, refused))

    async def tree(self, request: Request) -> Response:
        query = request.query_params
        http.check_keys(query, _TREE_KEYS, "the query")
        served = self._service.batcher(query.get("model")).served
        core = served.model.fitted_.core.trees
        if core is None:
            raise Problem(404, f"the model {served.name!r:.100} has no trees")
        tree = http.integer(http.number(query.get("tree")), "tree", 0, 2**31)
        node = http.integer(http.number(query.get("node")), "node", 0, 2**31)
        limit = http.integer(http.number(query.get("limit")), "limit", 100, 1000)
        offset = http.integer(http.number(query.get("offset")), "offset", 0, 2**31)
        trees = await self._run(self._browsed, served)
        return answer({"model": served.name, **trees.node(tree, node, offset, limit)})

    def _browsed(self, served: Served) -> BrowsedTrees:
        if served.name not in self._trees:  # only one thread comes here
            self._trees[served.name] = BrowsedTrees(served)
        return self._trees[served.name]

    async def _run(self, function: Any, *arguments: Any) -> Any:
        if self._waiting >= _WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        finally:
            self._waiting -= 1


def _explain(served: Served, text: Any, label: str, n: int, refused: bool) -> dict[str, Any]:
    row = ExplainedRow(served.model, [text])
    try:
        number = label_id(row.fitted, label)
    except ValueError as error:
        raise Problem(404, str(error)[:500]) from None
    found: dict[str, Any] = {"model": served.name, "explanation": None, "why_not": None}
    if refused:
        found["why_not"] = _why_not(why_not(row, number, 3), n)
        return found
    try:
        found["explanation"] = _explanation(row.explain(number), n)
    except NoClassifier as error:
        raise Problem(404, str(error)[:500]) from None
    return found


def _explanation(why: Explanation, n: int) -> dict[str, Any]:
    """The n largest features of each part."""
    lines = _lines(why.effects)
    return {
        "label": str(why.label),
        "name": why.name,
        "score": min(1.0, max(0.0, why.score)),
        "rank": why.rank,
        "margin": why.margin,
        "found": why.found,
        "notes": list(why.notes),
        "steps": plain(why.steps),
        "lines": lines[:n],
        "more": max(0, len(lines) - n),
        "texts": plain(why.texts),
        "one_vs_rest": None if why.one_vs_rest is None else _decision(why.one_vs_rest, n),
        "paths": [
            {
                "tree": path.tree,
                "score": path.score,
                "counts": path.counts,
                "dropped": plain(path.dropped),
                "decisions": [_decision(decision, n) for decision in path.decisions],
            }
            for path in why.paths
        ],
    }


def _lines(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    lines = lines_of(effects) if effects else []
    return [
        {"name": x.name, "kind": x.kind, "where": x.where, "effect": x.effect, "share": x.share}
        for x in lines
    ]


def _decision(decision: Decision, n: int) -> dict[str, Any]:
    """With the sum of the products that are left out, so that all add up to the integer margin."""
    shown, rest = decision.contributions[:n], decision.contributions[n:]
    names = ("about", "integer_margin", "unit", "scale", "bias", "margin", "score")
    return {
        **{name: getattr(decision, name) for name in names},
        "contributions": plain(shown),
        "others": sum(contribution.product for contribution in rest),
    }


def _why_not(refusal: WhyNot, n: int) -> dict[str, Any]:
    return {
        "label": str(refusal.label),
        "name": refusal.name,
        "reason": refusal.reason,
        "sentences": list(refusal.sentences),
        "rank": refusal.rank,
        "ranked": refusal.n_ranked,
        "score": min(1.0, max(0.0, refusal.score)),
        "ahead": [
            {
                "label": str(ahead.label),
                "name": ahead.name,
                "rank": ahead.rank,
                "score": min(1.0, max(0.0, ahead.score)),
                "lines": [
                    {"name": x.name, "kind": x.kind, "where": x.where, "effect": x.effect, "other": x.other}
                    for x in (lines_of(ahead.differences) if ahead.differences else [])[:n]
                ],
            }
            for ahead in refusal.ahead
        ],
        "explanation": None if refusal.explanation is None else _explanation(refusal.explanation, n),
    }
