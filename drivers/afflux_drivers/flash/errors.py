"""Errors of loading a board. Messages name board, file and what to do."""

from afflux_drivers.errors import AffluxError

__all__ = ["FlashFailed", "FlashRefused"]


class FlashRefused(AffluxError):
    """The request could harm the board, or cannot be right; nothing was touched."""


class FlashFailed(AffluxError):
    """A board could not be loaded, or is not what it should be afterwards."""
