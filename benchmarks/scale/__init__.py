"""Time, memory and size as data grow: ``python -m benchmarks.scale PART --help``."""
