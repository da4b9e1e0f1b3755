"""Other libraries' interfaces over `Bonsai`, for programs that were written for them."""

from bonsai_xmc.compat import omikuji

__all__ = ["omikuji"]
