"""Flips of bits while mutants are judged: what protects sums has nothing to do without them.

A mutated engine has them as well (`tests.mutation.mutants`): a bit of what is read from the receive
buffer or from slot memory is wrong in one cycle. Whatever comes of it, nobody may take it for a
result.
"""

import random
import re

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.mutation.flip_rounds import FlipRounds, as_received, misleads
from tests.mutation.flips import flip_command
from tests.mutation.mutants import SELECTOR, Mutant, Netlist
from tests.scenarios.director import Build

__all__ = ["check_flips", "draw_flips"]

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
    choose = random.Random(8)
    rounds = FlipRounds(engine, build, choose)
    for number in range(1, flips + 1):
        for _ in range(times):
            rounds.renew(engine)
            delay = choose.randrange(2, rounds.cycles)
            engine.write(SELECTOR, FLIPS_FLAG | flip_command(number, delay))
            out = engine.play(rounds.frames)
            engine.write(SELECTOR, FLIPS_FLAG)
            taken = [frame for frame in map(as_received, out) if frame is not None]
            wrong = [frame for frame in taken if misleads(frame, rounds.expected)]
            assert not wrong, f"taken after flip {number} in cycle {delay}: {wrong[0].hex()}"
