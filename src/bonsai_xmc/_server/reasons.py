"""Explanations, labels by name and label trees over HTTP: what a thread of its own computes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bonsai_xmc._explain.display import shown
from bonsai_xmc._explain.names import label_id
from bonsai_xmc._explain.row import NoClassifier
from bonsai_xmc._explain.verbs import explained_row
from bonsai_xmc._explain.why_not import why_not
from bonsai_xmc._server import fields
from bonsai_xmc._server.answers import Explained, Labels, Node, Tree
from bonsai_xmc._server.batching import Batcher, Overloaded
from bonsai_xmc._server.http import Problem
from bonsai_xmc._server.served import Served

if TYPE_CHECKING:
    from bonsai_xmc._server.app import Service

_WAITING = 64  # calls that wait in a worker; beyond, requests are refused


class Reasons:
    """The handlers. They work one after the other, in a thread beside that of predictions."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self._waiting = 0

    async def explain(self, batcher: Batcher, given: dict[str, Any]) -> Explained:
        """Why a text has its score for a label, or why not."""
        most, served = self._service.settings.max_explained, batcher.served
        text = fields.document(given["text"], "text", served.fields)
        length = sum(map(len, text.values())) if isinstance(text, dict) else len(text)
        if length > most:
            raise Problem(400, f"text has {length:,} characters, but at most {most:,} can be explained")
        return await self.run(_explain, served, text, given["label"], given["features"], given["why_not"])

    async def labels(self, batcher: Batcher, given: dict[str, Any]) -> Labels:
        """Labels whose name or key holds a text, the most frequent first."""
        return await self.run(batcher.served.search, given["q"], given["offset"], given["limit"])

    async def tree(self, batcher: Batcher, given: dict[str, Any]) -> Tree:
        """The children of a node of a label tree."""
        return await self.run(_tree, batcher.served, given)

    async def run(self, function: Any, *arguments: Any) -> Any:
        if self._waiting >= _WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        finally:
            self._waiting -= 1


def _explain(served: Served, text: Any, label: str, n: int, refused: bool) -> Explained:
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


def _tree(served: Served, given: dict[str, Any]) -> Tree:
    forest, tree, node = served.forest, given["tree"], given["node"]
    if forest is None:
        raise Problem(404, f"the model {served.name!r:.100} has no trees")
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


def _leaf(served: Served, slot: int) -> Node:
    label = int(served.model.fitted_.linear.label_of_slot[slot])
    return {"node": None, "name": served.titles[label], "labels": 1, "label": served.keys[label]}
