"""Explanations: why a row gets a label or does not, from integer products and margins to the score."""
