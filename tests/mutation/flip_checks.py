"""Flips of bits while mutants are judged: what protects sums has nothing to do without them.

A mutated engine has them as well (`tests.mutation.mutants`): a bit of what is read from the receive
buffer or from slot memory is wrong in one cycle. Whatever comes of it, nobody may take it for a
result.
"""

import random
import re

from afflux_hdl.contract.registers import Command, address_of
from afflux_sim.golden.frames import ones_complement_sum, udp_sum
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.mutation.flips import flip_command
from tests.mutation.mutants import SELECTOR, Mutant, Netlist
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["as_received", "check_flips", "draw_flips", "misleads"]

_READ = r"receive\.buffer|slot_memory\."
FLIPS_FLAG = 1 << 31
"""In what is written to the selector: not a mutant, but a flip."""


def draw_flips(netlist: Netlist, text: str, first: int = 1) -> list[Mutant]:
    """Draw bits of what the memories of data give, some of each word and of its residue."""
    choose = random.Random(7)
    drawn: list[Mutant] = []
    for name, body in re.findall(r"^  cell \$mem\w* (\S+)$(.*?)^  end$", text, re.M | re.S):
        if not re.search(_READ, name):
            continue
        width = re.search(r"parameter \\WIDTH (\d+)", body)
        assert width, name
        bits = int(width[1])
        for bit in sorted(choose.sample(range(bits), min(bits, max(24, bits // 6)))):
            drawn.append(netlist.mutant(first + len(drawn), "inv", name, "\\RD_DATA", bit))
    assert drawn, "no memory of data"
    return drawn


def check_flips(engine: VerilatedEngine, build: Build, flips: int, times: int = 2) -> None:
    """Flip each bit in some cycles, and see what leaves.

    Args:
        engine: With its flips.
        build: What it is built for.
        flips: How many it has.
        times: Cycles for each.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=2, slots=2)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    choose = random.Random(8)
    frames = [
        job.data(
            worker,
            slot,
            step,
            {lane: [choose.getrandbits(32) for _ in range(64)] for lane in range(2)},
            [choose.getrandbits(32) for _ in range(2)],
            opcode=step,
        )
        for step in range(4)
        for slot in range(2)
        for worker in range(2)
    ]
    expected = {answer for frame in frames for answer in director.golden.receive(frame)}
    before = engine.cycles
    assert set(engine.play(frames)) == expected
    # The rounds alone, without what it takes until the last result has left.
    cycles = engine.cycles - before
    for number in range(1, flips + 1):
        for _ in range(times):
            _renew(engine, job)
            delay = choose.randrange(2, cycles)
            engine.write(SELECTOR, FLIPS_FLAG | flip_command(number, delay))
            out = engine.play(frames)
            engine.write(SELECTOR, FLIPS_FLAG)
            taken = [frame for frame in map(as_received, out) if frame is not None]
            wrong = [frame for frame in taken if misleads(frame, expected)]
            assert not wrong, f"taken after flip {number} in cycle {delay}: {wrong[0].hex()}"


def _renew(engine: VerilatedEngine, job: Job) -> None:
    """Create the job anew, whatever its slots hold."""
    for name, value in job.registers().items():
        engine.write(address_of(name), value)
    engine.write(address_of("job_command"), Command.CREATE)
    for _ in range(2000):
        if not engine.read(address_of("job_busy")):
            break
    else:
        raise AssertionError("the command does not end")
    engine.play(job.joins())


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
