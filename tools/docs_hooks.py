"""Hooks of `mkdocs`: links that lead out of docs/, for example to sources, become plain text."""

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests|reproduce|benchmarks|tools)/[^)]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    return _OUTSIDE.sub(r"\1", markdown)
