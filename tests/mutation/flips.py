"""Bit flips: one Verilog text in which a register chooses a bit, and the cycle in which it flips.

Made as mutants are (`tests.mutation.mutants`), but a flip lasts for a single cycle: of a register
it is the bit that is being stored, of a memory a bit of the word that is being written or read.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import SELECTOR, Mutant, Netlist
from tests.support.yosys import run_script

__all__ = [
    "DELAY_BITS",
    "PLACES",
    "Place",
    "flip_command",
    "flipping_verilog",
    "flips_of",
    "read_netlist",
]

DELAY_BITS = 16


@dataclass(frozen=True)
class Place:
    """Registers and memories in which bits flip.

    Attributes:
        name: Its name in the table.
        pattern: Matches the name of a register in the flat netlist, or of a memory's cell.
        port: `D` of registers, `WR_DATA` or `RD_DATA` of memories.
    """

    name: str
    pattern: str
    port: str


PLACES = (
    Place("receive buffer, written", r"receive\.buffer", "WR_DATA"),
    Place("receive buffer, read", r"receive\.buffer", "RD_DATA"),
    Place("merge, words and held numbers", r"merge\.(blocks\.)?(held|arriving|lower_\d)\w*", "D"),
    Place("merge, exponents and losses", r"merge\.blocks\.(before|write_note__data)", "D"),
    Place("numbers: aligned", r"merge\.blocks\.word_\d+\.align\.", "D"),
    Place("numbers: partial sums that arrive", r"merge\.blocks\.word_\d+\.partial\.", "D"),
    Place("numbers: added", r"merge\.blocks\.word_\d+\.accumulate\.", "D"),
    Place("numbers: greatest and least", r"merge\.blocks\.word_\d+\.extremes\.", "D"),
    Place("integers: lane ALU", r"merge\.blocks\.word_\d+\.integers\.", "D"),
    Place("slot memory, written", r"slot_memory\.", "WR_DATA"),
    Place("slot memory, read", r"slot_memory\.", "RD_DATA"),
    Place("block notes, written", r"block_notes\.", "WR_DATA"),
    Place("block notes, read", r"block_notes\.", "RD_DATA"),
    Place("numbers: rounded", r"transmit\.send_\d+\.round\.", "D"),
    Place("transmit, beat from memory", r"transmit\.beat2", "D"),
    Place("seal, beats, sums and checks", r"seal\.(beat1|partial1_\d+|sum[23]|wrong\d)", "D"),
    Place("output queue, written", r"seal\.output", "WR_DATA"),
    Place("output queue, read", r"seal\.output", "RD_DATA"),
    Place("sums' queue", r"seal\.sums", "WR_DATA"),
    Place("slot state, written", r"slot_state\.states", "WR_DATA"),
)
"""The data path, and the state of slots."""


def flips_of(netlist: Netlist, text: str, each: int, seed: int) -> list[tuple[Place, Mutant]]:
    """Draw up to `each` bits of each place, from the netlist's RTLIL."""
    choose = random.Random(seed)
    found: dict[Place, list[tuple[str, int]]] = {place: [] for place in PLACES}
    for kind, name, body in re.findall(
        r"^  cell \$(\w+) (\S+)$(.*?)^  end$", text, re.MULTILINE | re.DOTALL
    ):
        of_memory = kind.startswith("mem")
        if not of_memory and "ff" not in kind:
            continue
        output = re.search(r"connect \\Q (.*)", body)
        names = (output[1] if output else "") if not of_memory else name
        for place in PLACES:
            if (place.port == "D") == of_memory or not re.search(place.pattern, names):
                continue
            width = re.search(r"parameter \\WIDTH (\d+)", body)
            if width is not None:
                found[place] += [(name, bit) for bit in range(int(width[1]))]
    drawn: list[tuple[Place, Mutant]] = []
    for place, bits in found.items():
        for name, bit in choose.sample(bits, min(each, len(bits))):
            mutant = netlist.mutant(len(drawn) + 1, "inv", name, f"\\{place.port}", bit)
            drawn.append((place, mutant))
    return drawn


def flip_command(number: int, delay: int, planted: bool = False) -> int:
    """Return what to write to :data:`SELECTOR`: this flip, in so many cycles."""
    return planted << 31 | number << DELAY_BITS | delay


def flipping_verilog(
    folder: Path, netlist: Netlist, flips: Sequence[Mutant], unchecked: Mutant
) -> str:
    """Return the engine that flips one of these bits when :data:`SELECTOR` says so.

    `unchecked` is a planted bug, there while the uppermost bit of the selector is set.
    """
    width = len(flips).bit_length()
    run_script(
        folder,
        "flips",
        "read_rtlil netlist.il",
        *(f"{one.command} -ctrl flip {width} {one.number}" for one in flips),
        f"{unchecked.command} -ctrl planted 1 1",
        "opt_clean",
        "write_verilog -norename -noattr flips.v",
    )
    inner = (folder / "flips.v").read_text(encoding="utf-8")
    state = f"""
  reg [{DELAY_BITS - 1}:0] delay = 0;
  reg [{width - 1}:0] number = 0;
  reg planted = 0;
  wire [{width - 1}:0] flip = delay == 1 ? number : 0;
  always @(posedge clk) begin
    if (delay != 0) delay <= delay - 1;
    if (reg_write && reg_address == {SELECTOR})
      {{planted, number, delay}} <=
        {{reg_write_data[31], reg_write_data[{DELAY_BITS + width - 1}:0]}};
  end
"""
    return inner + netlist.wrapper(state, ("flip", "planted"))


def read_netlist(folder: Path) -> str:
    """Return the flat netlist as RTLIL."""
    return (folder / "netlist.il").read_text(encoding="utf-8")
