"""Frames of workers: rounds of words and of numbers in turn (docs/protocol.md, section 8)."""

import numpy as np

from tests.scenarios.ticket_frames import TicketFrames

__all__ = ["NumberFrames"]

# Opcode and dtype of a round, the same for all its workers.
_ROUNDS = (0x81, 0x82, 0x83, 0x01, 0xE1, 0x92, 0x41, 0x53, 0x42)


class NumberFrames(TicketFrames):
    """Frames as those of `TicketFrames`, in most of which numbers are summed or compared."""

    def _opcode_dtype(self, slot: int, round_: int) -> int:
        if self.generator.random() < 0.03:
            # Not of partial sums, which have blocks of other lengths.
            return self.generator.getrandbits(8) & 0xF7
        return _ROUNDS[(slot + round_) % len(_ROUNDS)]

    def _body(self, present: int) -> bytes:
        """Words, and blocks that doubles can hold in one dtype at least, or any bits."""
        numbers = np.random.default_rng(self.generator.getrandbits(32))
        count = present.bit_count()
        kind = self.generator.random()
        if kind < 0.3:
            return super()._body(present)
        if kind < 0.6:
            floats = numbers.integers(-100, 100, (count, 64)) * np.float32(2.0**-40)
        else:
            halves = numbers.integers(-100, 100, (count, 128)).astype(np.float16)
            halves[numbers.random((count, 128)) < 0.1] = numbers.choice([np.inf, np.nan, -0.0])
            floats = halves.view(np.float32)
        words = super()._body(0)
        return words + np.ascontiguousarray(floats, dtype=np.float32).tobytes()
