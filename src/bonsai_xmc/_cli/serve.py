"""``bonsai serve``: text models over HTTP."""

import argparse
import json
import os
import sys

from .parser import add_parameter, add_table

SUMMARY = "serve text models over HTTP, with a page to try them"
EXAMPLES = (
    "bonsai serve model.bonsai",
    "bonsai serve model.bonsai other.bonsai --port 8080 --workers 2",
)
MORE = """\
requests, which GET /openapi.json describes:
  GET /                 a page to try the models
  POST /predict         labels of a text: {"text": "…"}, or {"texts": […]}, with k, threshold, model, …
  POST /explain         why a text gets a label, or not: {"text": "…", "label": "…"}
  GET /models           the models; GET /labels?q=… and GET /tree?node=… their labels and label trees
  GET /health           whether the server runs; GET /ready, and GET /metrics for Prometheus
  /v1/…                 Annif's REST interface: each model is a project

  curl --json '{"text": "Thermal insulation of old houses"}' http://127.0.0.1:8000/predict
"""

_KEY = "BONSAI_API_KEY"
_SETTINGS = ("host", "port", "workers", "max_body", "max_texts", "max_requests", "timeout", "rate", "n_jobs")


def _port(text: str) -> int:
    if not 0 <= int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text} is not a port; ports are from 0 to 65535")
    return int(text)


_port.__name__ = "port"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_table(
        parser,
        f"""
models MODEL  model files of texts; each is served under its file name
--host HOST  address to listen on (default: 127.0.0.1, only this machine)
--port N  port; 0: any free one (default: 8000)
--workers N  processes, which share the models (default: 1)
--api-key-file FILE  file with a key that clients must send (default: {_KEY})
--max-body N  maximum size of a request in bytes (default: 10000000)
--max-texts N  maximum number of texts in a request (default: 1000)
--max-requests N  requests in progress in a process (default: 512)
--timeout X  time limit of a request in seconds (default: 30)
--rate X  requests a second of each client (default: no limit)
""",
        models={"nargs": "+"},
        port=_port,
        timeout=float,
        rate=float,
        **dict.fromkeys(("workers", "max_body", "max_texts", "max_requests"), int),
    )
    add_parameter(parser, "n_jobs", "all, shared by the processes")


def run(args: argparse.Namespace) -> None:
    try:
        from bonsai_xmc._server.settings import Settings
        from bonsai_xmc._server.supervisor import Supervisor
    except ImportError as error:
        raise ImportError(f"bonsai serve needs {error.name}: pip install 'bonsai-xmc[serve]'") from error
    chosen = {name: getattr(args, name) for name in _SETTINGS if getattr(args, name, None) is not None}
    for name, value in chosen.items():
        least = 0.01 if name in ("rate", "timeout") else 1
        if name not in ("host", "port") and not least <= value < 2**53:  # which NaN is not
            raise ValueError(f"--{name.replace('_', '-')} is {value}, but must be at least {least}")
    supervisor = Supervisor(args.models, Settings(**chosen, api_key=_key(args.api_key_file)))
    host, port = supervisor.address
    if not args.quiet:
        url = f"http://{host}:{port}/"
        print(json.dumps({"url": url}) if args.json else url, flush=True)
    sys.exit(supervisor.run())


def _key(path: str | None) -> str | None:
    """Return the API key from a file or the environment, as all users of a machine can see options."""
    if path is None:
        return os.environ.get(_KEY) or None
    with open(path, encoding="utf-8") as file:
        key = file.read().strip()
    if not key:
        raise ValueError(f"{path} is empty, but must hold the API key")
    return key
