"""SipHash-2-4: a code of 64 bits over a message, under a key of 128 bits.

J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012. The
management protocol tags its packets with it, and enciphers values with what it draws from it.
Plain Python: it imports neither amaranth nor torch nor numpy.

Tested: `tests/hdl/test_management_contract.py`.
"""

import re

__all__ = ["KEY_BYTES", "KEY_FILE_BYTES", "key_of_content", "siphash"]

KEY_BYTES = 16
"""Bytes of a key."""

KEY_FILE_BYTES = 2 * KEY_BYTES + 8
"""As many bytes of a file are looked at for a key: its digits, and white space around them."""

_HALF = re.compile(rb"[0-9a-fA-F\s]+")
"""Half as many digits as there must be, most likely: 16 random bytes are never like that."""

_MASK = (1 << 64) - 1
_CONSTANTS = tuple(
    int.from_bytes(b"somepseudorandomlygeneratedbytes"[8 * n : 8 * n + 8], "big") for n in range(4)
)
_LAST_BLOCK_BYTES = 7


def key_of_content(content: bytes) -> bytes | None:
    """Return the key that a file has: its 16 bytes themselves, or 32 hexadecimal digits.

    The same for whoever builds a board and for whoever controls it, or they would not agree.

    Args:
        content: The file's first `KEY_FILE_BYTES`, or all of it.
    """
    # Raw bytes may begin or end with what looks like white space.
    if len(content) == KEY_BYTES and not _HALF.fullmatch(content):
        return content
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def siphash(key: bytes, message: bytes) -> int:
    """Return SipHash-2-4 of a message.

    Args:
        key: 16 bytes.
        message: Any number of bytes.

    Raises:
        ValueError: If the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a SipHash key has {KEY_BYTES} bytes, not {len(key)}")
    halves = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    state = [constant ^ halves[n % 2] for n, constant in enumerate(_CONSTANTS)]
    # The last block has the bytes that are left over, and the length in its uppermost byte.
    padding = bytes((_LAST_BLOCK_BYTES - len(message)) % 8) + bytes([len(message) & 0xFF])
    padded = message + padding
    for at in range(0, len(padded), 8):
        block = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= block
        _rounds(state, 2)
        state[0] ^= block
    state[2] ^= 0xFF
    _rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(state: list[int], number: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(number):
        v0 = (v0 + v1) & _MASK
        v2 = (v2 + v3) & _MASK
        v1 = (v1 << 13 & _MASK | v1 >> 51) ^ v0
        v3 = (v3 << 16 & _MASK | v3 >> 48) ^ v2
        v0 = v0 << 32 & _MASK | v0 >> 32
        v2 = (v2 + v1) & _MASK
        v0 = (v0 + v3) & _MASK
        v1 = (v1 << 17 & _MASK | v1 >> 47) ^ v2
        v3 = (v3 << 21 & _MASK | v3 >> 43) ^ v0
        v2 = v2 << 32 & _MASK | v2 >> 32
    state[:] = v0, v1, v2, v3
