"""Texts become feature vectors."""
