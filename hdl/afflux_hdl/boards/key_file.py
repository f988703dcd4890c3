"""The file with a board's key: 32 hexadecimal digits, or 16 bytes, for its owner's eyes alone.

Tested: `tests/hdl/test_boards_settings.py`.
"""

import os
import secrets
import stat
from pathlib import Path

from afflux_hdl.contract.siphash import KEY_BYTES, KEY_FILE_BYTES, key_of_content

__all__ = ["new_key", "read_key", "write_private"]


def read_key(path: Path) -> bytes:
    """Return the key in a file.

    Raises:
        ValueError: If the file is not there, if others than its owner may read it, or if it has no
            key.
    """
    try:
        # A FIFO would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = file.read(KEY_FILE_BYTES) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        raise ValueError(f"cannot read the key file {path}: {error.strerror}") from None
    if data is None:
        raise ValueError(f"the key file {path} is not a regular file")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ValueError(f"others may read the key file {path}, mode {mode:03o}: chmod 600 {path}")
    key = key_of_content(data)
    if key is None:
        raise ValueError(
            f"the key file {path} must have {2 * KEY_BYTES} hexadecimal digits or {KEY_BYTES}"
            f" bytes (openssl rand -hex {KEY_BYTES} makes a good one)"
        )
    return key


def new_key(path: Path) -> bytes:
    """Make a key at random and write it into a new file of mode 600.

    Raises:
        FileExistsError: If there is such a file: no key is ever overwritten.
    """
    key = secrets.token_bytes(KEY_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{key.hex()}\n")
    except BaseException:
        # Half a key, as of a full disk, would be found the next time.
        path.unlink()
        raise
    return key


def write_private(path: Path, data: bytes) -> None:
    """Write a file that has a key in it: mode 600 from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
