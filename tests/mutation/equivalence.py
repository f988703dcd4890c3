"""Proves of survivors that they do the same: `python -m tests.mutation.equivalence`.

Reads `build/mutation.json` and the netlists beside it, and marks there who is proved.

::

    engine ─┐
            ├─► cut at registers and memories ─► miter ─► what is alike merges ─► SAT
    mutant ─┘

Registers and memories are taken out: what they give is an input that both share, what they are
given is an output that both must agree about. So the proof holds for all that they may hold, and
for all inputs. It does not know which states can be reached: a mutant without proof may still do
the same.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from tests.support.checkout import BUILD
from tests.support.yosys import YosysError, run_script

__all__ = ["Prover", "cut"]

_TIMEOUT_S = 60
_REGISTER, _MEMORY = "$dff", "$mem_v2"
_CELL = re.compile(r"^  cell (\S+) (\S+)$(.*?)^  end\n", re.M | re.S)
_CONNECT = re.compile(r"^    connect \\(\S+) (.*)$", re.M)
_PARAMETER = re.compile(r"^    parameter (?:signed )?\\(\S+) (\d+)$", re.M)
_PORT = re.compile(r"^  wire .*?(?:input|output) (\d+) ", re.M)


class Prover:
    """Compares mutants with the engine whose netlist lies in a folder.

    Args:
        folder: Holds `netlist.il`, with one module.

    Raises:
        YosysError: If the netlist cannot be prepared.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prepare("gold")

    def same(self, command: str) -> bool:
        """Return whether it is proved that the mutant which `command` makes does the same."""
        try:
            self._prepare("gate", command)
            run_script(
                self._folder,
                "prove",
                "read_rtlil gold.il",
                "read_rtlil gate.il",
                "miter -equiv -flatten gold gate miter",
                "delete gold gate",
                "hierarchy -top miter",
                # What both compute alike from the same inputs becomes one.
                *("opt_clean", "opt_expr", "opt_merge -share_all") * 3,
                "opt_clean",
                f"sat -verify -timeout {_TIMEOUT_S} -prove trigger 0 miter",
            )
        except YosysError:
            return False
        return True

    def _prepare(self, name: str, *mutation: str) -> None:
        run_script(
            self._folder,
            f"prepare_{name}",
            "read_rtlil netlist.il",
            *mutation,
            # Registers without enable and reset: what is not taken in does not matter.
            "dffunmap",
            f"write_rtlil {name}.il",
        )
        path = self._folder / f"{name}.il"
        path.write_text(cut(path.read_text(encoding="utf-8"), name), encoding="utf-8")


def cut(text: str, name: str) -> str:
    """Return a module of RTLIL without its registers and memories, whose ends are its ports.

    Args:
        text: A flat module. Its registers have neither enable nor reset.
        name: What the module is called then.

    Raises:
        ValueError: If there is another cell with a state.
    """
    text = re.sub(r"^ *attribute .*\n", "", text, flags=re.M)
    number = max(map(int, _PORT.findall(text)), default=0)
    wires: list[str] = []

    def port(direction: str, width: int, cell: str, end: str) -> str:
        nonlocal number
        number += 1
        wire = f"\\{direction}:{cell.removeprefix(chr(92))}:{end}"
        wires.append(f"  wire width {width} {direction} {number} {wire}\n")
        return wire

    def replaced(found: re.Match[str]) -> str:
        kind, cell, body = found.groups()
        connected = dict(_CONNECT.findall(body))
        size = {key: int(value) for key, value in _PARAMETER.findall(body)}
        if kind == _REGISTER:
            width = size["WIDTH"]
            return (
                f"  connect {port('output', width, cell, 'D')} {connected['D']}\n"
                f"  connect {connected['Q']} {port('input', width, cell, 'Q')}\n"
            )
        if kind == _MEMORY:
            reads, writes, width = (size[key] for key in ("RD_PORTS", "WR_PORTS", "WIDTH"))
            ends = {
                "RD_ADDR": reads * size["ABITS"],
                "RD_EN": reads,
                "RD_ARST": reads,
                "RD_SRST": reads,
                "WR_ADDR": writes * size["ABITS"],
                "WR_EN": writes * width,
            }
            lines = [f"  connect {port('output', ends[e], cell, e)} {connected[e]}\n" for e in ends]
            bits = writes * width
            written = port("output", bits, cell, "WR_DATA")
            given = port("input", reads * width, cell, "RD_DATA")
            # What is not written does not matter.
            lines.append(
                f"  cell $and $and:{cell.removeprefix(chr(92))}\n"
                "    parameter \\A_SIGNED 0\n    parameter \\B_SIGNED 0\n"
                f"    parameter \\A_WIDTH {bits}\n    parameter \\B_WIDTH {bits}\n"
                f"    parameter \\Y_WIDTH {bits}\n    connect \\A {connected['WR_DATA']}\n"
                f"    connect \\B {connected['WR_EN']}\n    connect \\Y {written}\n  end\n"
                f"  connect {connected['RD_DATA']} {given}\n"
            )
            return "".join(lines)
        if re.search("dff|mem|latch|fsm", kind, re.I):
            raise ValueError(f"what to do with a {kind} is not known")
        return found[0]

    text = _CELL.sub(replaced, text)
    return re.sub(
        r"^module \S+\n", lambda _: f"module \\{name}\n" + "".join(wires), text, flags=re.M
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.equivalence")
    parser.add_argument("report", type=Path, nargs="?", default=BUILD / "mutation.json")
    path = parser.parse_args(arguments).report
    report = json.loads(path.read_text(encoding="utf-8"))
    provers: dict[str, Prover] = {}
    for entry in report["survivors"]:
        folder = f"{'node' if entry['subject'] == 'node' else ''}{entry['bus_bits']}"
        if folder not in provers:
            provers[folder] = Prover(BUILD / "mutation" / folder)
        entry["proved_same"] = provers[folder].same(entry["command"])
        print(f"{folder}, {entry['number']}: {entry['proved_same']}", flush=True)
    report["proved_same"] = sum(entry["proved_same"] for entry in report["survivors"])
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{report['proved_same']} of {len(report['survivors'])} survivors do the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
