"""NCCL's plugin needs OpenSSL's libcrypto where it forms a communicator: without it tests skip."""

import ctypes

import pytest

NAMES = ("libcrypto.so.3", "libcrypto.so.1.1")


@pytest.fixture(scope="session", autouse=True)
def libcrypto() -> None:
    """Skip where the library cannot be opened."""
    for name in NAMES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return
    pytest.skip(f"this machine has none of {', '.join(NAMES)}: install OpenSSL's library")
