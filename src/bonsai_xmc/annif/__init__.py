"""The backend ``bonsai`` for Annif, registered without a change of Annif.

The command line of Annif loads the entry points of the group ``flask.commands``; `command` is one of them,
and importing this module registers the backend. Servers that start Annif without its command line take
``ANNIF_CONFIG=bonsai_xmc.annif.ProductionConfig``, which is Annif's own configuration.

Nothing heavy is imported here; the backend itself is imported when a project uses it.
"""

import sys
from typing import Any

NAME = "bonsai"
_CONFIGS = ("Config", "ProductionConfig", "DevelopmentConfig")


def register() -> None:
    """Add the backend to those of Annif."""
    import annif.backend

    annif.backend._backend_fns.setdefault(NAME, _backend)


def _backend() -> Any:
    from bonsai_xmc.annif._backend import BonsaiBackend

    return BonsaiBackend


def __getattr__(name: str) -> Any:
    if name == "command":
        return _command()
    if name in _CONFIGS:
        import annif.default_config

        register()
        return getattr(annif.default_config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _command() -> Any:
    """Return a hidden command ``annif bonsai``: entry points of Flask must be commands."""
    import click

    @click.command(hidden=True)
    def bonsai() -> None:
        """Print the version of the backend."""
        import bonsai_xmc

        click.echo(f"backend {NAME}: bonsai-xmc {bonsai_xmc.__version__}")

    return bonsai


if "annif.backend" in sys.modules:  # other programs with Flask also load entry points
    register()
