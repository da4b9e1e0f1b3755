"""Interfaces of other libraries over `Bonsai`, for existing programs."""

from bonsai_xmc.compat import omikuji

__all__ = ["omikuji"]
