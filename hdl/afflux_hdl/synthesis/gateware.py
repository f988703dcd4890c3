"""The name of a gateware, so that a figure can say which one it is of."""

import hashlib

__all__ = ["name_of"]


def name_of(verilog: str) -> str:
    """Return the name of what this Verilog is: the first 12 digits of its SHA-256.

    It does not change with comments, names in Python, or moved functions; nor with what tells a
    build, as long as that is left out.
    """
    return hashlib.sha256(verilog.encode()).hexdigest()[:12]
