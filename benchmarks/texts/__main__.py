from benchmarks import _parts

_parts.run("benchmarks.texts")
