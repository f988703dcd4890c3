"""Durations as tables show them."""

__all__ = ["duration"]


def duration(seconds: float) -> str:
    """Return milliseconds or microseconds, with about three digits."""
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.{1 if seconds >= 1e-2 else 2}f} ms"
    return f"{seconds * 1e6:.{0 if seconds >= 1e-4 else 1}f} µs"
