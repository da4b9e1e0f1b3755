"""``bonsai serve``: models of texts over HTTP."""

import argparse
import os
import sys
from dataclasses import fields

OPTIONS = ("host", "port", "workers", "max_body", "max_texts", "max_requests", "timeout", "rate")
KEY = "BONSAI_API_KEY"


def run(args: argparse.Namespace) -> None:
    try:
        from bonsai_xmc._server.settings import Settings
        from bonsai_xmc._server.supervisor import Supervisor
    except ImportError as error:
        raise ImportError(f"bonsai serve needs {error.name}: pip install 'bonsai-xmc[serve]'") from error
    known = {field.name for field in fields(Settings)}
    chosen = {
        name: getattr(args, name) for name in (*OPTIONS, "n_jobs") if getattr(args, name, None) is not None
    }
    assert chosen.keys() <= known
    for name, value in chosen.items():
        least = 0.01 if name in ("rate", "timeout") else 1
        if name not in ("host", "port") and not least <= value < 2**53:  # which NaN is not
            raise ValueError(f"--{name.replace('_', '-')} is {value}, but must be at least {least}")
    supervisor = Supervisor(args.models, Settings(**chosen, api_key=_key(args.api_key_file)))
    host, port = supervisor.address
    if not args.quiet:
        print(f"http://{host}:{port}/", flush=True)
    sys.exit(supervisor.run())


def _key(path: str | None) -> str | None:
    """The key from a file or from the environment: options are seen by all users of a machine."""
    if path is None:
        return os.environ.get(KEY) or None
    with open(path, encoding="utf-8") as file:
        key = file.read().strip()
    if not key:
        raise ValueError(f"{path} is empty, but must hold the API key")
    return key
