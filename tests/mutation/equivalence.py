"""Proves of survivors that they do the same: `python -m tests.mutation.equivalence`.

Reads `build/mutation.json` and the netlists beside it, and marks there who is proved.

Registers and memories are cut out of the netlist with all mutants; the rest is combinational, and
becomes one and-inverter graph with the selector as an input (`tests.mutation.aig`). First comes
what registers can hold at all (`tests.mutation.reachable`), then for each survivor the registers
that always agree with the engine's, and the outputs (`tests.mutation.correspondence`). So a proof
is for runs of any length from power-up, with any input in any cycle.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.mutation.aig import read_aiger
from tests.mutation.correspondence import Machine, Outcome, Search
from tests.mutation.mutants import SELECTOR_NAME, controlled
from tests.mutation.reachable import Invariants, constants
from tests.mutation.recoding import compare_recoded
from tests.mutation.state_names import StateNames, memory_shapes, zeroed_memories
from tests.support.checkout import BUILD
from tests.support.rtlil_text import Ends, cut
from tests.support.yosys import run_script

__all__ = ["STATES", "Prover"]

_BOUNDS = (*range(1, 18), 24, 31, 32, 33, 34, 40, 47, 48, 58, 62, 63, 64, 127, 128, 255, 256, 511)
"""Numbers that a register may never exceed: those of jobs, lanes, workers, slots and of queues."""

_BEHIND_REGISTER = re.compile(r"-cell (\S+) -port \\?Q -portbit (\d+)")


class Prover:
    """Compares mutants with the engine whose netlist lies in a folder.

    Args:
        folder: Holds `netlist.il`, with one module.
        commands: Yosys' commands that make the mutants, the first of them number 1.
        of_engine: Whether the invariants are to be about registers of the node's engine too.

    Attributes:
        invariants: Those that are proved.

    Raises:
        YosysError: If the netlist cannot be prepared.
        ValueError: If it has registers that have got lost in that.
    """

    def __init__(self, folder: Path, commands: Sequence[str], of_engine: bool = True) -> None:
        width = len(commands).bit_length()
        self._commands = commands
        run_script(
            folder,
            "prepare_proof",
            "read_rtlil netlist.il",
            *(
                line
                for number, command in enumerate(commands, 1)
                for line in controlled(command, SELECTOR_NAME, width, number)
            ),
            # Registers without enable and reset: what is not taken in does not matter.
            "dffunmap",
            "write_rtlil whole.il",
        )
        # A mutant behind a register separates it from its name, and that from its initial value.
        run_script(folder, "plain", "read_rtlil netlist.il", "dffunmap", "write_rtlil plain.il")
        text = (folder / "whole.il").read_text(encoding="utf-8")
        (folder / "cut.il").write_text(cut(text, "whole", STATES), encoding="utf-8")
        run_script(
            folder,
            "proof",
            "read_rtlil cut.il",
            # As it is simulated: of what is undefined, zeros are made.
            "setundef -zero",
            "techmap",
            "simplemap",
            "opt_clean",
            "aigmap",
            "write_aiger -symbols whole.aig",
        )
        machine = Machine(read_aiger(folder / "whole.aig"), SELECTOR_NAME, memory_shapes(text))
        names = StateNames((folder / "plain.il").read_text(encoding="utf-8"))
        named = {bit for bits in names.named.values() for bit in bits.values()}
        self._initial = names.initial
        if unknown := named - set(machine.registers):
            raise ValueError(f"registers without their ends: {sorted(unknown)[:9]}")
        fixed = constants(machine, names, zeroed_memories(text))
        self._search = Search(machine, fixed)
        invariants = Invariants(self._search, names)
        about = [name for name in names.named if of_engine or ".engine." not in name]
        invariants.propose_bounds(about, _BOUNDS)
        invariants.propose_values(about)
        self.invariants = list(invariants.prove())

    def compare(self, number: int) -> Outcome:
        """Return whether it is proved that the mutant does the same."""
        behind = _BEHIND_REGISTER.search(self._commands[number - 1])
        if behind is None:
            return self._search.compare(number)
        key = behind[1].removeprefix("\\"), int(behind[2])
        return compare_recoded(self._search, number, key, self._initial)


def _memory(size: Mapping[str, int]) -> Ends:
    reads, writes, width = (size[key] for key in ("RD_PORTS", "WR_PORTS", "WIDTH"))
    given = {"RD_ADDR": reads * size["ABITS"], "RD_EN": reads, "RD_ARST": reads, "RD_SRST": reads}
    given |= {"WR_ADDR": writes * size["ABITS"], "WR_EN": writes * width}
    return Ends(given, {"RD_DATA": reads * width}, written="WR_DATA", enable="WR_EN")


STATES: Mapping[str, Callable[[Mapping[str, int]], Ends]] = {
    "$dff": lambda size: Ends({"D": size["WIDTH"]}, {"Q": size["WIDTH"]}),
    "$mem_v2": _memory,
}
"""What is cut out of a netlist: its registers have neither enable nor reset."""


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.equivalence")
    parser.add_argument("report", type=Path, nargs="?", default=BUILD / "mutation.json")
    path = parser.parse_args(arguments).report
    report = json.loads(path.read_text(encoding="utf-8"))
    provers: dict[str, Prover] = {}
    for entry in report["survivors"]:
        subject = "" if entry["subject"] == "engine" else entry["subject"]
        folder = f"{subject}{entry['bus_bits']}"
        if folder not in provers:
            begun = time.monotonic()
            drawn = json.loads((BUILD / "mutation" / folder / "drawn.json").read_text("utf-8"))
            provers[folder] = Prover(
                BUILD / "mutation" / folder, drawn, of_engine=entry["subject"] != "node"
            )
            proved = len(provers[folder].invariants)
            print(f"{folder}: {proved} invariants, {time.monotonic() - begun:.0f} s", flush=True)
        outcome = provers[folder].compare(entry["number"])
        entry["proved_same"] = outcome.same
        entry["differs_at"] = outcome.seen_at
        print(f"{folder}, {entry['number']}: {outcome}", flush=True)
    report["proved_same"] = sum(entry["proved_same"] for entry in report["survivors"])
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{report['proved_same']} of {len(report['survivors'])} survivors do the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
