"""Texts become feature vectors."""

from bonsai_xmc._text.vectorizer import TextVectorizer

__all__ = ["TextVectorizer"]
