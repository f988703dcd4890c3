"""SipHash-2-4 for the golden model of the management, step by step as its paper has it.

J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", sections 2.1 to 2.4. It
shares no code with the one of the contract.

Tested: `tests/sim/test_golden_management.py`, by the vectors of the paper's authors.
"""

__all__ = ["siphash_2_4"]


class _Word:
    """64 bits with the three operations of the paper."""

    def __init__(self, value: int) -> None:
        self.value = value & 0xFFFF_FFFF_FFFF_FFFF

    def __add__(self, other: "_Word") -> "_Word":
        return _Word(self.value + other.value)

    def __xor__(self, other: "_Word") -> "_Word":
        return _Word(self.value ^ other.value)

    def rotated(self, by: int) -> "_Word":
        return _Word((self.value << by) | (self.value >> (64 - by)))


def siphash_2_4(key: bytes, message: bytes) -> bytes:
    """Return the 8 bytes of SipHash-2-4 of a message under 16 bytes of key, little-endian."""
    k0, k1 = (_Word(int.from_bytes(half, "little")) for half in (key[:8], key[8:]))
    v0 = k0 ^ _Word(0x736F6D6570736575)
    v1 = k1 ^ _Word(0x646F72616E646F6D)
    v2 = k0 ^ _Word(0x6C7967656E657261)
    v3 = k1 ^ _Word(0x7465646279746573)
    words = len(message) // 8 + 1
    last = message[8 * (words - 1) :].ljust(7, b"\0") + bytes([len(message) % 256])
    for block in [*(message[8 * n : 8 * n + 8] for n in range(words - 1)), last]:
        m = _Word(int.from_bytes(block, "little"))
        v3 ^= m
        for _ in range(2):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= m
    v2 ^= _Word(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return (v0 ^ v1 ^ v2 ^ v3).value.to_bytes(8, "little")


def _round(v0: _Word, v1: _Word, v2: _Word, v3: _Word) -> tuple[_Word, _Word, _Word, _Word]:
    """Return the state after one SipRound, figure 2.1."""
    v0 += v1
    v1 = v1.rotated(13)
    v1 ^= v0
    v0 = v0.rotated(32)
    v2 += v3
    v3 = v3.rotated(16)
    v3 ^= v2
    v0 += v3
    v3 = v3.rotated(21)
    v3 ^= v0
    v2 += v1
    v1 = v1.rotated(17)
    v1 ^= v2
    v2 = v2.rotated(32)
    return v0, v1, v2, v3
