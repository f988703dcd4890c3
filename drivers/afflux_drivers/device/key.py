"""The key that a controller and an appliance share: 128 bits, in a file."""

from afflux_drivers.control.secret import private_bytes
from afflux_hdl.contract.siphash import KEY_BYTES, KEY_FILE_BYTES, key_of_content

__all__ = ["KEY_BYTES", "key_of_file"]


def key_of_file(path: str) -> bytes:
    """Return the key that a file has: its 16 bytes themselves, or 32 hexadecimal digits.

    Raises:
        ValueError: If the file cannot be read, may be read by others, or has no key in it. The
            message names the file, and does not show what is in it.
    """
    key = key_of_content(private_bytes(path, KEY_FILE_BYTES))
    if key is None:
        raise ValueError(
            f"{path} has no key: it must have {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal "
            f"digits (openssl rand -hex {KEY_BYTES} makes a good one)"
        )
    return key
