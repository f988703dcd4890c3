"""The key that a controller and an appliance share: 128 bits, in a file."""

import re

from afflux_drivers.control.secret import private_bytes
from afflux_hdl.contract.siphash import KEY_BYTES

__all__ = ["KEY_BYTES", "key_of_file"]

_HALF = re.compile(rb"[0-9a-fA-F\s]+")
"""Half as many digits as there must be, most likely: 16 random bytes are never like that."""


def key_of_file(path: str) -> bytes:
    """Return the key that a file has: its 16 bytes themselves, or 32 hexadecimal digits.

    Raises:
        ValueError: If the file cannot be read, may be read by others, or has no key in it. The
            message names the file, and does not show what is in it.
    """
    # Raw bytes may begin or end with what looks like white space.
    content = private_bytes(path, 2 * KEY_BYTES + 8)
    if len(content) == KEY_BYTES and not _HALF.fullmatch(content):
        return content
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"{path} has no key: it must have {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal "
            f"digits (openssl rand -hex {KEY_BYTES} makes a good one)"
        )
    return key
