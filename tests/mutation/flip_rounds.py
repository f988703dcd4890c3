"""Rounds of an engine whose bits flip, and the frames of it that a host's kernel takes."""

import random
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from afflux_hdl.contract.registers import Command, address_of
from afflux_sim.golden.frames import (
    PARTIAL_DTYPES,
    look_ahead,
    ones_complement_sum,
    udp_sum,
)
from afflux_sim.golden.merge import block_of_elements
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["FlipRounds", "Kind", "as_received", "is_not_summed", "misleads"]


EDGES = (
    0,
    1,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
    # Numbers whose digits add up to 15, or to a multiple of it.
    0x0000_000F,
    0xF000_0000,
    0x0F0F_0F0F,
    # And two whose residues add up to it.
    0x1234_5678,
    0xEDCB_A987,
)
"""Numbers whose sums wrap, or whose residues have two forms."""


NAMES = {1: "float32", 2: "float16", 3: "bfloat16"} | {
    dtype: name for dtype, (name, _) in PARTIAL_DTYPES.items()
}
"""Formats of numbers, by dtype."""

EXPONENTS = {"float32": 130, "float16": 17, "bfloat16": 130}
"""Greatest exponent fields of blocks."""


_HEADERS_BYTES, _SEAL_BYTES = 128, 4
"""Of a result, before and after its blocks."""

NOT_SUMMED = b"\xff" * 256
"""A block that is not summed."""

FIRST_SUM = 0x80
"""Opcodes and dtypes of sums of numbers are at least that."""


class Kind(NamedTuple):
    """A kind of round.

    Attributes:
        opcode: Of its packets.
        blocks: So many of the first lanes have one.
        dtype: Of its packets; 0 if they have integers.
    """

    opcode: int
    blocks: int
    dtype: int = 0


class FlipRounds:
    """Rounds of a job of two workers, of each operation, which it has played without a flip.

    Args:
        engine: That is configured for them.
        build: Its sizes.
        choose: Draws the numbers.
        lanes: Lanes of the job, so many look-ahead words are not 0.
        kinds: Of each round.
        slots: Slots of the job.
        edges: Half of the integers are of those that arithmetic treats as special.

    Attributes:
        frames: The workers' frames.
        expected: Every answer that the golden model gives.
        cycles: Of the rounds alone, without what it takes until the last result has left.
    """

    def __init__(
        self,
        engine: VerilatedEngine,
        build: Build,
        choose: random.Random,
        *,
        lanes: int = 2,
        kinds: Sequence[Kind],
        slots: int = 2,
        edges: bool = False,
    ) -> None:
        director = Director(**build)
        self._job = job = Job(workers=2, lanes=lanes, slots=slots)

        def number() -> int:
            if edges and choose.random() < 0.5:
                return choose.choice(EDGES)
            return choose.getrandbits(32)

        perform(engine, director.configure())
        perform(engine, director.create(job))
        self.frames = []
        for step, (kind, following) in enumerate(zip(kinds, [*kinds[1:], Kind(0, 0)], strict=True)):
            exponent = EXPONENTS.get(NAMES.get(following.dtype, ""))
            for slot in range(slots):
                for worker in range(2):
                    block = [draw_numbers(choose, kind.dtype) for _ in range(kind.blocks)]
                    if kind.dtype == 0:
                        block = [[number() for _ in range(64)] for _ in range(kind.blocks)]
                    # Both planes of partial sums, one behind the other.
                    parts = [part[n : n + 64] for part in block for n in range(0, len(part), 64)]
                    words = [
                        number() if exponent is None else look_ahead(step, exponent)
                        for _ in range(lanes)
                    ]
                    self.frames.append(
                        job.data(
                            worker,
                            slot,
                            step,
                            dict(enumerate(parts)),
                            words,
                            opcode=kind.opcode,
                            dtype=kind.dtype,
                            present=(1 << kind.blocks) - 1,
                        )
                    )
        self.expected = {
            answer for frame in self.frames for answer in director.golden.receive(frame)
        }
        before = engine.cycles
        assert set(engine.play(self.frames)) == self.expected
        self.cycles = engine.cycles - before

    def renew(self, engine: VerilatedEngine) -> None:
        """Create the job anew, whatever its slots hold.

        Raises:
            SimulationError: The command does not end.
        """
        for name, value in self._job.registers().items():
            engine.write(address_of(name), value)
        engine.write(address_of("job_command"), Command.CREATE)
        for _ in range(2000):
            if not engine.read(address_of("job_busy")):
                break
        else:
            raise SimulationError("the command does not end")
        engine.play(self._job.joins())


def draw_numbers(choose: random.Random, dtype: int) -> list[int]:
    """Return the words of a block: of numbers near the greatest, or of partial sums."""
    if dtype == 0:
        return []
    if dtype in PARTIAL_DTYPES:
        width = PARTIAL_DTYPES[dtype][1]
        least = -(2 ** (width - 1))
        elements = [
            # Some mean something else than a sum.
            least + choose.randrange(1, 5)
            if choose.random() < 0.05
            else choose.randrange(least >> 6, -least >> 6)
            for _ in range(4096 // width)
        ]
        return [int(word) for word in block_of_elements(elements, dtype)]
    of = FORMATS[NAMES[dtype]]
    bits = 1 + of.exponent_bits + of.fraction_bits

    def element() -> int:
        if choose.random() < 0.04:
            return choose.choice((0, of.sign, of.infinity, of.infinity | of.sign, of.nan))
        field = EXPONENTS[NAMES[dtype]] - choose.randrange(6)
        return (
            choose.getrandbits(1) * of.sign
            | field << of.fraction_bits
            | choose.getrandbits(of.fraction_bits)
        )

    return [sum(element() << at for at in range(0, 32, bits)) for _ in range(64)]


def misleads(frame: bytes, expected: set[bytes]) -> bool:
    """Return whether a worker that waits for this round takes what is not its result.

    Words, present lanes and blocks; it looks at the rest of the header, and whether the length is
    what `present` asks for (section 6). A block of numbers that is not summed does not mislead: the
    workers bring it again.
    """
    return any(
        one[48:50] + one[64:128] != frame[48:50] + frame[64:128]
        or any(
            got != block and (got != NOT_SUMMED or frame[43] < FIRST_SUM)
            for block, got in _blocks_of(one, frame)
        )
        for one in expected
        if _round_of(one) == _round_of(frame) and _is_as_long(frame, one)
    )


def is_not_summed(frame: bytes, expected: set[bytes]) -> bool:
    """Return whether a result has a block that is not summed, and should be."""
    return any(
        got != block
        for one in expected
        if _round_of(one) == _round_of(frame)
        for block, got in _blocks_of(one, frame)
    )


def _round_of(frame: bytes) -> bytes:
    return frame[42:48] + frame[50:64]


def _is_as_long(frame: bytes, one: bytes) -> bool:
    """Return whether a frame has as many bytes for each present lane as this one of its round."""
    lanes, lanes_of_one = (int.from_bytes(each[48:50]).bit_count() for each in (frame, one))
    without = _HEADERS_BYTES + _SEAL_BYTES
    return (len(frame) - without) * lanes_of_one == (len(one) - without) * lanes


def _blocks_of(*frames: bytes) -> Iterator[tuple[bytes, ...]]:
    """Return the blocks of frames, without their seals, side by side."""
    size = len(NOT_SUMMED)
    cut = [
        [one[n : n + size] for n in range(_HEADERS_BYTES, len(one) - _SEAL_BYTES, size)]
        for one in frames
    ]
    return zip_longest(*cut, fillvalue=b"")


def as_received(frame: bytes) -> bytes | None:
    """Return what a kernel makes of a frame: without padding, or None if it drops it."""
    if len(frame) < 64 or frame[12:15] != b"\x08\x00\x45":
        return None
    length = 14 + int.from_bytes(frame[16:18], "big")
    frame = frame[:length]
    if len(frame) < max(length, 64) or length % 2 or ones_complement_sum(frame[14:34]) != 0xFFFF:
        return None
    if int.from_bytes(frame[38:40], "big") != length - 34:
        return None
    if frame[40:42] != b"\0\0" and udp_sum(frame) != 0xFFFF:
        return None
    return frame
