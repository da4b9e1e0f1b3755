"""Rows, label sets and label trees, checked and in the form that the core takes."""
