"""Pages of HTML that load nothing from elsewhere and run no script."""

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version


def page(title: str, style: str, body: str) -> str:
    """Return a whole page; the title is escaped, style and body are taken as they are."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def facts(about: Mapping[str, str]) -> str:
    """Return names with their values as a list of definitions."""
    items = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in about.items())
    return f"<dl>{''.join(items)}</dl>"


def made() -> str:
    """Return when and by which version a page was made."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by bonsai-xmc {version('bonsai-xmc')}"
