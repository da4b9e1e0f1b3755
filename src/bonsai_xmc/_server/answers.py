"""Types of the answers, from which the description of the interface is derived."""

# ruff: noqa: UP013 (as a table, a line for each)

from typing import Annotated, Any, TypedDict

from bonsai_xmc._explain.objects import Explanation, FusedExplanation, SystemExplanation, WhyNot

Score = Annotated[float, {"minimum": 0, "maximum": 1}]

Problem = TypedDict("Problem", {"type": str, "title": str, "status": int, "detail": str})
Status = TypedDict("Status", {"status": str})
Ready = TypedDict("Ready", {"status": str, "models": list[str]})
# predicted: whether the score reaches the threshold of the model
Suggested = TypedDict("Suggested", {"label": str, "name": str, "score": Score, "predicted": bool})
Predictions = TypedDict("Predictions", {"model": str, "results": list[list[Suggested]]})
Model = TypedDict(
    "Model",
    {
        "name": str,
        "kind": str,
        "system": str,
        "labels": int,
        "named": bool,  # whether its labels have names
        "threshold": Score,
        "fields": list[str],
        "trees": int,
        "modified": str,
    },
)
Models = TypedDict("Models", {"models": list[Model]})
Label = TypedDict("Label", {"label": str, "name": str, "rows": int | None})  # None: unknown
Labels = TypedDict("Labels", {"total": int, "labels": list[Label]})
Node = TypedDict("Node", {"node": int | None, "name": str, "labels": int, "label": str | None})
Explained = TypedDict(
    "Explained",
    {
        "model": str,
        "explanation": Explanation | SystemExplanation | FusedExplanation | None,
        "why_not": WhyNot | None,
    },
)
Tree = TypedDict(
    "Tree",
    {
        "model": str,
        "trees": int,
        "tree": int,
        "path": list[Node],
        "total": int,
        "children": list[Node],
    },
)

# Annif's interface
ApiInfo = TypedDict("ApiInfo", {"title": str, "version": str})
Vocabulary = TypedDict("Vocabulary", {"vocab_id": str, "languages": list[str], "size": int, "loaded": bool})
Vocabularies = TypedDict("Vocabularies", {"vocabs": list[Vocabulary]})
Project = TypedDict(
    "Project",
    {
        "project_id": str,
        "name": str,
        "language": str,
        "backend": dict[str, Any],
        "vocab": Vocabulary,
        "vocab_language": str,
        "is_trained": bool,
        "modification_time": str,
    },
)
Projects = TypedDict("Projects", {"projects": list[Project]})
Suggestion = TypedDict("Suggestion", {"uri": str, "label": str, "notation": str | None, "score": Score})
Suggestions = TypedDict("Suggestions", {"results": list[Suggestion]})
DocumentSuggestions = TypedDict(
    "DocumentSuggestions", {"results": list[Suggestion], "document_id": str | None}
)
