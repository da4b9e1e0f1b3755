"""``python -m bonsai_xmc`` is the command ``bonsai``."""

import sys

from bonsai_xmc._cli import main

if __name__ == "__main__":
    sys.exit(main())
