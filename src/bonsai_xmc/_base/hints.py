"""The end of a message about a word that does not exist: those that are almost the same."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or nothing where no word is close."""
    close = difflib.get_close_matches(word, list(known), n=2)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
