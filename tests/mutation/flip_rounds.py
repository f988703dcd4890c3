"""Rounds of an engine whose bits flip, and the frames of it that a host's kernel takes."""

import random
from collections.abc import Sequence

from afflux_hdl.contract.registers import Command, address_of
from afflux_sim.golden.frames import ones_complement_sum, udp_sum
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["FlipRounds", "as_received", "misleads"]


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


class FlipRounds:
    """Rounds of a job of two workers, of each operation, which it has played without a flip.

    Args:
        engine: That is configured for them.
        build: Its sizes.
        choose: Draws the numbers.
        lanes: Lanes of the job, so many look-ahead words are not 0.
        kinds: Of each round the opcode, and how many of the first lanes have a block.
        slots: Slots of the job.
        edges: Half of the numbers are of those that arithmetic treats as special.

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
        kinds: Sequence[tuple[int, int]] = ((0, 2), (1, 2), (2, 2), (3, 2)),
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
        self.frames = [
            job.data(
                worker,
                slot,
                step,
                {lane: [number() for _ in range(64)] for lane in range(count)},
                [number() for _ in range(lanes)],
                opcode=opcode,
            )
            for step, (opcode, count) in enumerate(kinds)
            for slot in range(slots)
            for worker in range(2)
        ]
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


def misleads(frame: bytes, expected: set[bytes]) -> bool:
    """Return whether a worker that waits for this round takes what is not its result.

    Words, present lanes and blocks; it looks at the rest of the header (section 6).
    """
    packet = frame[42:48] + frame[50:64]
    results = [one for one in expected if one[42:48] + one[50:64] == packet]
    return any(one[48:50] + one[64:-4] != frame[48:50] + frame[64:-4] for one in results)


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
