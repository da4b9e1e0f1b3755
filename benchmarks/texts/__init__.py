"""Accuracy on texts, and labels that change: ``python -m benchmarks.texts PART --help``."""
