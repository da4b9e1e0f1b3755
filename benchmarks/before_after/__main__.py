import os
import sys

from benchmarks import _parts

if sys.argv[1:2] == ["settings"]:
    os.environ.setdefault("BONSAI_ISA", "portable")  # which the core reads when it is imported
_parts.run("benchmarks.before_after")
