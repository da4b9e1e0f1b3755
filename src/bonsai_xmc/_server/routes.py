"""All paths that are answered. The application, its description and its counters follow from this list."""

from typing import NamedTuple

PAGE = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/why.js": ("why.js", "text/javascript"),
    "/tree.js": ("tree.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Place(NamedTuple):
    method: str
    path: str
    handler: str  # attribute of the service, and key of the description of the operation
    is_open: bool = False  # answered without a key
    is_described: bool = True
    counted: str | None = None  # as another path

    @property
    def counter(self) -> str:
        return self.counted or self.path


PLACES = (
    *(Place("GET", path, "page", is_open=True, is_described=False, counted="/") for path in PAGE),
    Place("GET", "/openapi.json", "openapi", is_open=True, is_described=False),
    Place("POST", "/predict", "predict"),
    Place("POST", "/explain", "reasons.explain"),
    Place("GET", "/tree", "reasons.tree"),
    Place("GET", "/models", "models"),
    Place("GET", "/labels", "labels"),
    Place("GET", "/health", "health", is_open=True),
    Place("GET", "/ready", "ready", is_open=True),
    Place("GET", "/metrics", "metrics"),
    Place("GET", "/v1", "annif.info", is_described=False),
    Place("GET", "/v1/", "annif.info", counted="/v1"),
    Place("GET", "/v1/projects", "annif.projects"),
    Place("GET", "/v1/vocabs", "annif.vocabs"),
    Place("GET", "/v1/projects/{project_id}", "annif.project"),
    Place("POST", "/v1/projects/{project_id}/suggest", "annif.suggest"),
    Place("POST", "/v1/projects/{project_id}/suggest-batch", "annif.suggest_batch"),
    Place("POST", "/v1/projects/{project_id}/learn", "annif.learn"),
)
OPEN = frozenset(place.path for place in PLACES if place.is_open)
OTHER = "other"  # the counter of all other paths
COUNTERS = (*dict.fromkeys(place.counter for place in PLACES), OTHER)


def is_annifs(path: str) -> bool:
    """Whether a path belongs to Annif's interface, which is open to pages of any origin."""
    return path == "/v1" or path.startswith("/v1/")
