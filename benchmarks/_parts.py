"""Run one part of a benchmark that is a package: ``python -m benchmarks.scale memory …``."""

import importlib
import pkgutil
import sys


def run(package: str) -> None:
    """Run the main function of the module that the first argument names."""
    found = importlib.import_module(package)
    parts = {part.name: f"{package}.{part.name}" for part in pkgutil.iter_modules(found.__path__)}
    parts.pop("__main__", None)
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        lines = [f"  {name:<12}{importlib.import_module(module).__doc__}" for name, module in parts.items()]
        print(found.__doc__, *(line.partition("\n")[0] for line in lines), sep="\n")
        sys.exit(len(sys.argv) > 1 and sys.argv[1] not in ("-h", "--help"))
    sys.argv[:2] = [f"{package} {sys.argv[1]}"]
    importlib.import_module(parts[sys.argv[0].rpartition(" ")[2]]).main()
