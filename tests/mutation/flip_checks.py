"""Flips of bits while mutants are judged: what protects sums has nothing to do without them.

A mutated engine has them as well (`tests.mutation.mutants`): a bit of what is read from the receive
buffer or from slot memory is wrong in one cycle. Whatever comes of it, nobody may take it for a
result.
"""

import random
import re
from collections.abc import Iterable, Sequence

from afflux_hdl.contract.registers import counter_address
from afflux_hdl.lib.residue import RESIDUE_BITS, WORD_BITS
from afflux_hdl.numbers.formats import Fixed
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.mutation.flip_rounds import FlipRounds, Kind, as_received, misleads
from tests.mutation.flips import flip_command
from tests.mutation.mutants import SELECTOR, Mutant, Netlist
from tests.scenarios.director import Build

__all__ = ["check_flips", "draw_flips"]

_READ = r"receive\.buffer|slot_memory\."
FLIPS_FLAG = 1 << 31
"""In what is written to the selector: not a mutant, but a flip."""
_BLOCKS = "slot_memory.block"
SLOT_WORD = Fixed().slot()
SLOTS = {512: 6, 32: 2}
"""By width: so many that no round of short frames is over before the last one's result has left."""
SWEEP = 50
"""Of so many cycles, or a few more, it is seen whether a flip then does anything."""
HITS = 16
"""Of those in which it does, so many are drawn for the other bits."""
LEAST = 24
"""At least so many bits of a memory's port flip."""


def draw_flips(netlist: Netlist, text: str, first: int = 1) -> list[Mutant]:
    """Draw bits of what the memories of data give, some of each word and of its residue."""
    choose = random.Random(7)
    drawn: list[Mutant] = []
    for name, body in re.findall(r"^  cell \$mem\w* (\S+)$(.*?)^  end$", text, re.M | re.S):
        if not re.search(_READ, name):
            continue
        width = re.search(r"parameter \\WIDTH (\d+)", body)
        assert width, name
        bits = [bit for bit in range(int(width[1])) if _matters(name, bit)]
        for bit in sorted(choose.sample(bits, min(len(bits), max(24, len(bits) // 6)))):
            drawn.append(netlist.mutant(first + len(drawn), "inv", name, "\\RD_DATA", bit))
    assert drawn, "no memory of data"
    return drawn


def check_flips(
    engine: VerilatedEngine, build: Build, bus_bits: int, flips: Sequence[Mutant]
) -> None:
    """Flip bits in some cycles, and see what leaves, and what is counted.

    A word is protected whichever of its bits flips. So in any one cycle all bits of a memory's port
    must have the same said of them: nothing, or that so many frames are spoilt.

    Args:
        engine: With its flips.
        build: Its sizes.
        bus_bits: Its width.
        flips: The bits that it can flip, in the order of their numbers.

    Raises:
        AssertionError: A wrong result is taken, a spoilt frame is not counted, or a bit of some
            word is not watched over as others are.
    """
    choose = random.Random(8)
    rounds = FlipRounds(
        engine,
        build,
        choose,
        lanes=build["lanes"],
        kinds=_kinds(build["lanes"]),
        slots=SLOTS[bus_bits],
        edges=True,
    )
    for cell in dict.fromkeys(flip.cell for flip in flips):
        bits = _of_all_words((flip for flip in flips if flip.cell == cell), bus_bits)
        swept = {
            delay: _spoilt(engine, rounds, bits[0], delay)
            for delay in range(2, rounds.cycles, max(1, rounds.cycles // SWEEP))
        }
        hits = [delay for delay, spoilt in swept.items() if spoilt]
        others = [delay for delay, spoilt in swept.items() if not spoilt]
        assert hits, f"no flip of {cell} does anything"
        drawn = choose.sample(hits, min(HITS, len(hits))) + choose.sample(others, 2)
        for flip in bits[1:]:
            for delay in drawn:
                spoilt = _spoilt(engine, rounds, flip, delay)
                assert spoilt == swept[delay], (
                    f"{spoilt} frames are spoilt by flip {flip} in cycle {delay}, "
                    f"but {swept[delay]} by {bits[0]}"
                )


def _kinds(lanes: int) -> list[Kind]:
    """Return the kinds of rounds: with a block in each memory of lanes, and without blocks.

    Without blocks, look-ahead words are all that flips.
    """
    first_of_last = lanes & (lanes - 1)
    return [Kind(opcode, blocks) for opcode in range(4) for blocks in (first_of_last + 1, 0)]


def _matters(cell: str, bit: int) -> bool:
    """Return whether a bit of a memory counts for integers: of a slot's word not all do."""
    if _BLOCKS not in cell:
        return True
    place, flags = bit % SLOT_WORD.size, SLOT_WORD["special"].offset
    return place < WORD_BITS + RESIDUE_BITS or flags <= place < SLOT_WORD["residue"].offset


def _part_of(flip: Mutant, bus_bits: int) -> tuple[int, int]:
    """Return the number of the word whose bit flips, and whether it is the word, or beside it."""
    if _BLOCKS in flip.cell:
        word, place = divmod(flip.bit, SLOT_WORD.size)
        return word, (place >= WORD_BITS) + (place >= WORD_BITS + RESIDUE_BITS)
    if flip.bit < bus_bits:
        return flip.bit // WORD_BITS, 0
    return (flip.bit - bus_bits) // RESIDUE_BITS, 1


def _of_all_words(flips: Iterable[Mutant], bus_bits: int) -> list[Mutant]:
    """Return flips in each word and each residue: one of each, and more where there are few."""
    parts: dict[tuple[int, int], list[Mutant]] = {}
    for flip in flips:
        parts.setdefault(_part_of(flip, bus_bits), []).append(flip)
    most = max(1, LEAST // len(parts))
    return [flip for part in parts.values() for flip in part[:most]]


def _spoilt(engine: VerilatedEngine, rounds: FlipRounds, flip: Mutant, delay: int) -> int:
    """Return how many frames leave with a wrong checksum if a bit flips in so many cycles."""
    rounds.renew(engine)
    before = _errors(engine)
    engine.write(SELECTOR, FLIPS_FLAG | flip_command(flip.number, delay))
    out = engine.play(rounds.frames)
    engine.write(SELECTOR, FLIPS_FLAG)
    received = [as_received(frame) for frame in out]
    wrong = [frame for frame in received if frame and misleads(frame, rounds.expected)]
    assert not wrong, f"taken after flip {flip} in cycle {delay}: {wrong[0].hex()}"
    spoilt = received.count(None)
    counted = (_errors(engine) - before) % (1 << 32)
    assert counted == spoilt, f"{counted} of {spoilt} counted, flip {flip} in cycle {delay}"
    return spoilt


def _errors(engine: VerilatedEngine) -> int:
    return engine.read(counter_address("data_errors"))
