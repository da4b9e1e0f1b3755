"""Two checkouts of this repository side by side: ``python -m benchmarks.before_after PART --help``."""
