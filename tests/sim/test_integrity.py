"""Bits flip in the netlist, and no wrong result is taken by a receiver that looks at checksums.

A flip is of one bit of the data path, in one cycle, while whole rounds go through the engine. The
output is taken as a host's kernel takes it: by lengths, IPv4 and UDP checksum. The golden model
says which results there may be.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from afflux_hdl.contract.registers import counter_address
from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.mutation.flip_rounds import FlipRounds, Kind, as_received, is_not_summed, misleads
from tests.mutation.flips import (
    PLACES,
    Place,
    flip_command,
    flipping_verilog,
    flips_of,
    read_netlist,
)
from tests.mutation.mutants import SELECTOR, Mutant, Netlist
from tests.scenarios.director import Build, Director
from tests.scenarios.performer import perform

pytestmark = pytest.mark.usefixtures("compiled_yosys")

BUS_BITS = 32
BUILT: Build = {"workers": 2, "lanes": 2, "jobs": 1, "slots": 2}
KINDS = (
    # Integers: SUM, MAX.
    Kind(0, 2),
    Kind(1, 2),
    # Numbers: SUM of float32 and bfloat16, an average of float16, SUM of partial sums, MAX.
    Kind(0x8, 2, 1),
    Kind(0x8, 2, 3),
    Kind(0x9, 2, 2),
    Kind(0x8, 1, 13),
    Kind(0x4, 2, 1),
)
EACH = [4, pytest.param(10, marks=pytest.mark.long)]
"""Bits of each place; each flips in some cycles."""
TIMES = 2
RARELY_WRITTEN = {"sums' queue": 8, "slot state, written": 8}
"""The table of docs/hardware.md, section 13, is of a run with 5 and 30."""


class Flipping:
    """The engine with its flips, and the rounds that it is given."""

    def __init__(self, library: Path, drawn: list[tuple[Place, Mutant]]) -> None:
        self.drawn = drawn
        self._errors = 0
        self._library = library
        self.engine = VerilatedEngine.from_library(library)
        self.rounds = FlipRounds(self.engine, BUILT, random.Random(1), kinds=KINDS)

    def outcome(self, number: int, delay: int, planted: bool = False) -> str:
        """Return what became of a flip.

        `masked`: nothing differs. `counted`: results are missing, and the engine has counted it.
        `dropped`: results are missing, as their checksum is wrong. `not summed`: a block comes back
        as one that the workers bring again. `stopped`: the engine broke a rule of its ports.
        `taken`: a wrong result has a right checksum.
        """
        try:
            self.rounds.renew(self.engine)
            self.engine.write(SELECTOR, flip_command(number, delay, planted))
            out = self.engine.play(self.rounds.frames)
            taken = [frame for frame in map(as_received, out) if frame is not None]
            errors = sum(
                self.engine.read(counter_address(name)) for name in ("data_errors", "state_errors")
            )
        except SimulationError:
            self.engine.close()
            self.engine = VerilatedEngine.from_library(self._library)
            perform(self.engine, Director(**BUILT).configure())
            self._errors = 0
            return "stopped"
        finally:
            self.engine.write(SELECTOR, 0)
        counted, self._errors = errors > self._errors, errors
        if any(misleads(frame, self.rounds.expected) for frame in taken):
            return "taken"
        if any(is_not_summed(frame, self.rounds.expected) for frame in taken):
            return "not summed"
        if self.rounds.expected <= set(taken):
            return "masked"
        return "counted" if counted else "dropped"


@pytest.fixture(scope="module", params=EACH)
def flipping(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Flipping]:
    folder = tmp_path_factory.mktemp("flips")
    netlist = Netlist(folder, Parameters(bus_bits=BUS_BITS, **BUILT))
    text = read_netlist(folder)
    drawn = flips_of(netlist, text, request.param, seed=3)
    assert {place for place, _ in drawn} == set(PLACES)
    flips = [mutant for _, mutant in drawn]
    verilog = flipping_verilog(folder, netlist, flips, unchecked(netlist, text))
    library = build_library(find_toolchain(), default_folder(), verilog, BUS_BITS)
    made = Flipping(library, drawn)
    yield made
    made.engine.close()


def unchecked(netlist: Netlist, text: str) -> Mutant:
    """Return the bug that what does not fit its residue spoils nothing."""
    before = text.partition("connect \\Q \\engine.transmit.seal.wrong3")[0]
    name = before[before.rindex("\n  cell ") :].split()[2]
    return netlist.mutant(1, "const0", name, "\\D", 0)


def test_no_flipped_result_is_taken(flipping: Flipping) -> None:
    choose = random.Random(5)
    table: dict[str, Counter[str]] = {place.name: Counter() for place in PLACES}
    taken = []
    for place, mutant in flipping.drawn:
        # Where little is written, a flip must be tried more often to hit anything.
        for _ in range(RARELY_WRITTEN.get(place.name, TIMES)):
            delay = choose.randrange(2, flipping.rounds.cycles)
            outcome = flipping.outcome(mutant.number, delay)
            table[place.name][outcome] += 1
            if outcome == "taken":
                taken.append(f"{mutant} in cycle {delay}")
    for name, counts in table.items():
        print(f"{name:32}", dict(counts))
    assert not taken, taken
    # Or else nothing much has flipped.
    noticed = sum(counts["counted"] for counts in table.values())
    assert noticed > flipping_share(table)


def flipping_share(table: dict[str, Counter[str]]) -> int:
    return sum(counts.total() for counts in table.values()) // 10


def test_without_the_check_flipped_results_are_taken(flipping: Flipping) -> None:
    choose = random.Random(6)
    outcomes: Counter[str] = Counter()
    for place, mutant in flipping.drawn:
        if place.name.startswith("slot memory"):
            for _ in range(2 * TIMES):
                delay = choose.randrange(2, flipping.rounds.cycles)
                outcomes[flipping.outcome(mutant.number, delay, planted=True)] += 1
    assert outcomes["taken"] > 3
