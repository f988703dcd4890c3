"""The secret that both ends of a control channel know: its file, and its form."""

import os
import secrets
import stat
from pathlib import Path

__all__ = [
    "LEAST_BYTES",
    "find_secret",
    "new_secret",
    "private_bytes",
    "secret_of_file",
    "secret_of_text",
]

LEAST_BYTES = 16
"""An attacker that has seen a connection may try secrets against it at home; 128 random bits
withstand that."""

_MOST_BYTES = 1024


def new_secret() -> str:
    """Return a random secret, as a text."""
    return secrets.token_hex(32)


def find_secret(file: str | None, text: str | None) -> bytes | None:
    """Return the secret that a file has or a text is, or None if neither is given.

    Args:
        file: Name of a file, as AFFLUX_SECRET_FILE has it.
        text: The secret itself, as AFFLUX_SECRET has it.

    Raises:
        ValueError: If both are given, or what is given cannot be a secret. The message does not
            show it.
    """
    if file is not None and text is not None:
        raise ValueError("AFFLUX_SECRET and AFFLUX_SECRET_FILE are both set: unset one of them")
    if file is not None:
        return secret_of_file(file)
    return None if text is None else secret_of_text(text)


def secret_of_text(text: str) -> bytes:
    """Return the secret that a text is; white space around it does not count.

    Raises:
        ValueError: If it is too short, or too long.
    """
    return _checked(text.encode(), "a secret")


def secret_of_file(path: str) -> bytes:
    """Return the secret that a file has; white space around it does not count.

    Raises:
        ValueError: If the file cannot be read, may be read by others, or has no secret in it. The
            message names the file, and its mode or owner.
    """
    return _checked(private_bytes(path, _MOST_BYTES + 2), path)


def private_bytes(path: str, most: int) -> bytes:
    """Return what a file begins with that only its owner may use.

    Args:
        path: Name of the file.
        most: Bytes that are read.

    Raises:
        ValueError: If the file cannot be read, or may be read by others. The message names the
            file, and its mode or owner.
    """
    try:
        # A FIFO would wait for its writer.
        number = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except RuntimeError as error:
        # There is no home that ~ could stand for.
        raise ValueError(f"{path}: {error}") from None
    try:
        # Of the file that is open, whatever has its name by now.
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise ValueError(
                f"{path} has mode {mode:04o}, so others than its owner may use it: chmod 600 {path}"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}")
        return os.read(number, most)
    finally:
        os.close(number)


def _checked(secret: bytes, what: str) -> bytes:
    secret = secret.strip()
    if not LEAST_BYTES <= len(secret) <= _MOST_BYTES:
        raise ValueError(
            f"{what} must have {LEAST_BYTES} to {_MOST_BYTES} bytes, not {len(secret)}: "
            "openssl rand -hex 32 makes a good one"
        )
    return secret
