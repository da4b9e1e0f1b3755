"""Choices on held-out rows: the default model, threshold, fields and label prior."""
