"""All paths of the server, from which the application, its description and its counters are derived."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bonsai_xmc._server import fields
from bonsai_xmc._server.fields import Fields
from bonsai_xmc._server.http import FORM, JSON

PAGE = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/files.js": ("files.js", "text/javascript"),
    "/why.js": ("why.js", "text/javascript"),
    "/labels.js": ("labels.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_NONE: Mapping[str, fields.Field] = MappingProxyType({})
_PROJECT = "/v1/projects/{project_id}"


class Place(NamedTuple):
    """A path. Docstring and type of its handler describe the answer, the fields describe the request."""

    method: str
    path: str
    handler: str  # method of the service
    query: Fields = _NONE
    body: Fields = _NONE
    body_type: str = JSON
    one_of: tuple[str, ...] = ()  # keys of the body of which exactly one is needed
    is_open: bool = False  # answered without an API key and without a limit of the rate
    is_described: bool = True
    counted: str | None = None  # as another path

    @property
    def counter(self) -> str:
        return self.counted or self.path

    @property
    def is_annifs(self) -> bool:
        return is_annifs(self.path)

    @property
    def is_of_model(self) -> bool:
        return "{project_id}" in self.path or "model" in self.query or "model" in self.body


PLACES = (
    *(Place("GET", path, "page", is_open=True, is_described=False, counted="/") for path in PAGE),
    Place("GET", "/openapi.json", "openapi", is_open=True, is_described=False),
    Place("POST", "/predict", "predict", body=fields.PREDICT, one_of=("texts", "text")),
    Place("POST", "/explain", "explain", body=fields.EXPLAIN),
    Place("GET", "/tree", "tree", query=fields.TREE),
    Place("GET", "/models", "models"),
    Place("GET", "/labels", "labels", query=fields.LABELS),
    Place("GET", "/health", "health", is_open=True),
    Place("GET", "/ready", "ready", is_open=True),
    Place("GET", "/metrics", "metrics"),
    Place("GET", "/v1", "annif_info", is_described=False),
    Place("GET", "/v1/", "annif_info", counted="/v1"),
    Place("GET", "/v1/projects", "annif_projects"),
    Place("GET", "/v1/vocabs", "annif_vocabs"),
    Place("GET", _PROJECT, "annif_project"),
    Place("POST", f"{_PROJECT}/suggest", "annif_suggest", body=fields.SUGGEST, body_type=FORM),
    Place(
        "POST",
        f"{_PROJECT}/suggest-batch",
        "annif_suggest_batch",
        query=fields.SUGGEST_BATCH,
        body=fields.DOCUMENTS,
    ),
    Place("POST", f"{_PROJECT}/learn", "annif_learn"),
)
OPEN = frozenset(place.path for place in PLACES if place.is_open)
OTHER = "other"  # the counter of all other paths
COUNTERS = (*dict.fromkeys(place.counter for place in PLACES), OTHER)


def is_annifs(path: str) -> bool:
    """Return whether a path belongs to Annif's interface, which is open to pages of any origin."""
    return path == "/v1" or path.startswith("/v1/")
