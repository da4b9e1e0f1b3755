"""Experiments of the paper on any data set."""
