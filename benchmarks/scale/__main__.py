from benchmarks import _parts

_parts.run("benchmarks.scale")
