"""`python -m tests.formal.same_netlist OLD.v NEW.v`: are two texts the same circuit?

::

    OLD.v ─► flat netlist ─┐
                           ├─► pair registers, memories ─► cut there ─► miter ─► SAT
    NEW.v ─► flat netlist ─┘

For changes of wiring that are meant to change nothing: other names, other modules, other ways to
write the same logic. Registers and memories of the two are paired; each pair starts with the same
value and, proves yosys, is given the same value in each cycle as long as all pairs hold the same.
So both do the same for ever, for all inputs. How the pairs are found does not matter to that: a
wrong pair makes the proof fail, not pass.

Ends with 1 and says what differs if it is not proved. Logic that is moved across a register, or
encoded in another way, is not proved even if it does the same.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.checkout import BUILD
from tests.support.rtlil_text import Ends, cut
from tests.support.yosys import YosysError, run_script

__all__ = ["Difference", "prove_same"]

_REGISTER, _READ, _WRITE = "$dff", "$memrd", "$memwr_v2"
_INITIAL = "$meminit_v2"
_ENDS = {_REGISTER: (("D",), "Q"), _READ: (("ADDR",), "DATA"), _WRITE: (("ADDR", "DATA", "EN"), "")}
"""Of each kind of state: the ports that it is given something by, and the one that it drives."""

_CUT: Mapping[str, Callable[[Mapping[str, int]], Ends | None]] = {
    _REGISTER: lambda size: Ends({"D": size["WIDTH"]}, {"Q": size["WIDTH"]}),
    _READ: lambda size: Ends({"ADDR": size["ABITS"]}, {"DATA": size["WIDTH"]}),
    _WRITE: lambda size: Ends(
        {"ADDR": size["ABITS"], "EN": size["WIDTH"]}, written="DATA", enable="EN"
    ),
    _INITIAL: lambda size: None,
}
_TIMEOUT_S = 600

Bit = int | str
"""Number of a net, or one of the constants 0, 1 and x."""

Keys = tuple[Mapping[str, Set[object]], ...]
"""The keys by which states of the old netlist, and of the new one, may be paired."""


class Difference(AssertionError):
    """The netlists differ, or yosys could not prove that they do not."""


@dataclass
class State:
    """A register, or a port of a memory.

    Attributes:
        cell: Its name in the netlist.
        kind: The properties that its partner must have too: type, sizes, initial content.
        names: Of the signal that it drives, or of the memory that it writes.
        inputs: The inputs of its next content.
        outputs: Its outputs.
        memory: The memory, if it is a port of one.
    """

    cell: str
    kind: tuple[object, ...]
    names: frozenset[str]
    inputs: tuple[Bit, ...]
    outputs: tuple[Bit, ...]
    memory: str

    def __str__(self) -> str:
        return min(self.names, key=lambda name: (len(name), name), default=self.cell)


class Netlist:
    """A flat netlist, as yosys writes it as JSON.

    Attributes:
        states: Its registers and the ports of its memories.
        stated: Names of all cells with a state, the initial contents of memories too.
    """

    def __init__(self, text: str) -> None:
        modules = json.loads(text)["modules"]
        ((self._name, self._module),) = modules.items()
        self._cells: dict[str, Any] = self._module["cells"]
        self._drivers = {
            bit: (cell, port, n)
            for cell, description in self._cells.items()
            for port, bits in description["connections"].items()
            if description["port_directions"].get(port) == "output"
            for n, bit in enumerate(bits)
        }
        self._inputs = {
            bit: ("input", port, n)
            for port, description in self._module["ports"].items()
            if description["direction"] == "input"
            for n, bit in enumerate(description["bits"])
        }
        self.states = self._find_states()

    def _find_states(self) -> list[State]:
        names: dict[tuple[Bit, ...], set[str]] = {}
        initial: dict[Bit, str] = {}
        for name, net in self._module["netnames"].items():
            names.setdefault(tuple(net["bits"]), set()).add(name)
            value = net.get("attributes", {}).get("init")
            if value is not None:
                initial |= dict(zip(net["bits"], reversed(value), strict=True))
        contents: dict[str, list[tuple[str, ...]]] = {}
        for description in self._of_type(_INITIAL).values():
            word = {
                end: "".join(map(str, description["connections"][end]))
                for end in ("ADDR", "DATA", "EN")
            }
            contents.setdefault(_memory_of(description), []).append(tuple(word.values()))
        states, clocks = [], set()
        for kind, (inputs, output) in _ENDS.items():
            for cell, description in self._of_type(kind).items():
                ports, memory = description["connections"], ""
                parameters = {k: v for k, v in description["parameters"].items() if k != "MEMID"}
                what: list[object] = [kind, tuple(sorted(parameters.items()))]
                outputs = tuple(ports[output]) if output else ()
                own_names = names.get(outputs, set()) if output else set()
                if kind == _REGISTER:
                    what.append("".join(initial.get(bit, "x") for bit in outputs))
                else:
                    memory = _memory_of(description)
                    sizes = {
                        k: v
                        for k, v in self._module["memories"][memory].items()
                        if k in ("width", "size", "start_offset")
                    }
                    what += [tuple(sorted(sizes.items())), tuple(sorted(contents.get(memory, [])))]
                if kind == _WRITE:
                    own_names = {memory}
                if kind != _READ:
                    clocks |= set(ports["CLK"])
                elif parameters["CLK_ENABLE"].strip("0"):
                    raise Difference(f"{cell}: reads with a clock are not known")
                given = tuple(bit for end in inputs for bit in ports[end])
                states.append(
                    State(cell, tuple(what), frozenset(own_names), given, outputs, memory)
                )
        if len(clocks) > 1:
            raise Difference(f"more than one clock: {clocks}")
        self.stated = {state.cell for state in states} | set(self._of_type(_INITIAL))
        return states

    def _of_type(self, kind: str) -> dict[str, Any]:
        return {name: each for name, each in self._cells.items() if each["type"] == kind}

    def shapes(self, marks: Mapping[str, int]) -> dict[str, int]:
        """Return a number for each state that says what its next content is computed from.

        Args:
            marks: A number for each state. Those of one kind with equal marks are not told apart.
        """
        found: dict[Bit, int] = {bit: hash(("constant", bit)) for bit in ("0", "1", "x", "z")}
        found |= {bit: hash(name) for bit, name in self._inputs.items()}
        for state in self.states:
            found |= {bit: hash((marks[state.cell], n)) for n, bit in enumerate(state.outputs)}
        for cell in self._in_order(found):
            description = self._cells[cell]
            directions, ports = description["port_directions"], description["connections"]
            inputs = tuple(
                (port, tuple(found[bit] for bit in bits))
                for port, bits in sorted(ports.items())
                if directions[port] == "input"
            )
            parameters = tuple(sorted(description["parameters"].items()))
            whole = hash((description["type"], parameters, inputs))
            for port, bits in ports.items():
                if directions[port] == "output":
                    found |= {bit: hash((whole, port, n)) for n, bit in enumerate(bits)}
        own = {
            state.cell: hash((marks[state.cell], tuple(found[bit] for bit in state.inputs)))
            for state in self.states
        }
        # Reads of a memory also depend on its writes.
        writers: dict[str, list[int]] = {}
        for state in self.states:
            if state.memory and not state.outputs:
                writers.setdefault(state.memory, []).append(own[state.cell])
        return {
            state.cell: hash((own[state.cell], tuple(sorted(writers.get(state.memory, [])))))
            for state in self.states
        }

    def _in_order(self, known: Mapping[Bit, int]) -> Iterator[str]:
        """Go through the cells without state, each after those that drive it."""
        done = set(self.stated)
        for start in self._cells:
            stack = [start]
            while stack:
                cell = stack[-1]
                if cell in done:
                    stack.pop()
                    continue
                description = self._cells[cell]
                before = {
                    self._drivers[bit][0]
                    for port, bits in description["connections"].items()
                    if description["port_directions"][port] == "input"
                    for bit in bits
                    if bit not in known and bit in self._drivers
                } - done
                if before:
                    stack += before
                else:
                    done.add(cell)
                    stack.pop()
                    yield cell


def pair(old: Netlist, new: Netlist) -> list[tuple[State, State]]:
    """Find each state's partner: by a name, or by what it is computed from.

    Raises:
        Difference: If one has none.
    """
    rest = [list(old.states), list(new.states)]
    pairs: list[tuple[State, State]] = []

    def match(keys: Keys, *, alike: bool = False) -> bool:
        """Pair those that alone on their side have a key; or, if all are `alike`, any that do."""
        holders: tuple[dict[object, list[State]], dict[object, list[State]]] = ({}, {})
        for holder, own, states in zip(holders, keys, rest, strict=True):
            for state in states:
                for key in own[state.cell]:
                    holder.setdefault((state.kind, key), []).append(state)
        votes: Counter[tuple[str, str]] = Counter()
        for key, few in holders[0].items():
            others = holders[1].get(key, [])
            if len(few) == len(others) == 1 or (alike and len(few) == len(others)):
                votes.update((a.cell, b.cell) for a, b in zip(few, others, strict=True))
        by_cell = [{state.cell: state for state in states} for states in rest]
        count = len(pairs)
        for (one, other), _ in votes.most_common():
            if one in by_cell[0] and other in by_cell[1]:
                pairs.append((by_cell[0].pop(one), by_cell[1].pop(other)))
        rest[:] = [list(cells.values()) for cells in by_cell]
        return len(pairs) > count

    match(tuple({s.cell: set(s.names) for s in each.states} for each in (old, new)))
    # Those without a common name: what is still alike after as many cycles as there are states
    # would always be alike.
    for _ in range(len(rest[0])):
        if not rest[0] or not rest[1]:
            break
        marks: list[dict[str, int]] = []
        for side, netlist in enumerate((old, new)):
            own = {state.cell: hash(state.kind) for state in netlist.states}
            own |= {both[side].cell: number for number, both in enumerate(pairs)}
            marks.append(own)
        for _ in range(len(rest[0])):
            after = [n.shapes(own) for n, own in zip((old, new), marks, strict=True)]
            for side, both in ((side, both) for both in pairs for side in (0, 1)):
                after[side][both[side].cell] = marks[side][both[side].cell]
            finer = len(set(after[0].values())) > len(set(marks[0].values()))
            marks = after
            if not finer:
                break
        shapes = tuple({c: {n} for c, n in own.items()} for own in marks)
        kinds = tuple({c: {0} for c in own} for own in marks)
        # Those of one shape hold the same for ever. Else whoever is the only one left of its kind:
        # the proof says whether that is right.
        if not (match(shapes) or match(shapes, alike=True) or match(kinds)):
            break
    for whose, states in zip(("old", "new"), rest, strict=True):
        if states:
            listed = ", ".join(sorted(map(str, states))[:20])
            raise Difference(f"{len(states)} without a partner, of the {whose} one: {listed}")
    memories = {(one.memory, other.memory) for one, other in pairs}
    for side in (0, 1):
        if len({both[side] for both in memories}) < len(memories):
            raise Difference(f"ports of one memory became ports of several: {sorted(memories)}")
    return pairs


def _memory_of(description: Mapping[str, Any]) -> str:
    name: str = description["parameters"]["MEMID"]
    return name.removeprefix("\\")


def prove_same(folder: Path, old: str, new: str, top: str) -> int:
    """Prove that two Verilog texts describe the same circuit.

    Args:
        folder: Where to work; it must exist.
        old: One text.
        new: The other.
        top: Their top module.

    Returns:
        How many registers and ports of memories each has.

    Raises:
        Difference: If that cannot be proved.
    """
    netlists = []
    for name, text in (("old", old), ("new", new)):
        (folder / f"{name}.v").write_text(text, encoding="utf-8")
        run_script(
            folder,
            f"read_{name}",
            f"read_verilog {name}.v",
            f"hierarchy -top {top}",
            "proc -norom",
            "flatten",
            "delete */t:$scopeinfo",
            "opt_clean",
            # Registers without enable and reset: what they are given is one expression.
            "dffunmap",
            "opt_clean",
            f"write_rtlil {name}.il",
            f"write_json {name}.json",
        )
        netlists.append(Netlist((folder / f"{name}.json").read_text(encoding="utf-8")))
    pairs = pair(netlists[0], netlists[1])
    for side, name in enumerate(("old", "new")):
        path = folder / f"{name}.il"
        numbers = {both[side].cell: number for number, both in enumerate(pairs)}
        text = _renamed(path.read_text(encoding="utf-8"), numbers)
        path.write_text(_cut(text, name), encoding="utf-8")
    try:
        run_script(
            folder,
            "prove",
            "read_rtlil old.il",
            "read_rtlil new.il",
            "miter -equiv -flatten -make_outcmp old new miter",
            "delete old new",
            "hierarchy -top miter",
            # Logic that both compute alike from the same inputs becomes one.
            *("opt_clean", "opt_expr", "opt_merge -share_all") * 3,
            "opt_clean",
            f"sat -verify -show-ports -timeout {_TIMEOUT_S} -prove trigger 0 miter",
        )
    except YosysError as error:
        log = (folder / "prove.log").read_text(encoding="utf-8")
        raise Difference(_reason(log, pairs) or str(error)) from error
    return len(pairs)


def _renamed(text: str, numbers: Mapping[str, int]) -> str:
    """Give states the names that they are cut by: the number of their pair."""

    def name(found: re.Match[str]) -> str:
        number = numbers.get(found[2].removeprefix("\\"))
        return found[0] if number is None else f"{found[1]}\\state{number}"

    return re.sub(r"^(  cell \S+ )(\S+)$", name, text, flags=re.MULTILINE)


def _cut(text: str, name: str) -> str:
    try:
        return cut(text, name, _CUT)
    except ValueError as unknown:
        raise Difference(str(unknown)) from None


def _reason(log: str, pairs: list[tuple[State, State]]) -> str:
    """Say which ends differ in the counterexample, if there is one."""
    differing = []
    for line in log.splitlines():
        found = re.match(r"\s*\\cmp_(\S+)\s+0\s", line)
        if found:
            state = re.search(r"output:state(\d+):(\w+)", found[1])
            differing.append(f"{pairs[int(state[1])][0]} {state[2]}" if state else found[1])
    return f"not the same: {', '.join(differing[:20])}" if differing else ""


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal.same_netlist")
    parser.add_argument("old", type=Path, help="a Verilog text")
    parser.add_argument("new", type=Path, help="the other")
    parser.add_argument("--top", help="top module (the name of the old text's file)")
    options = parser.parse_args(arguments)
    top = options.top or options.old.stem
    folder = BUILD / "same_netlist" / top
    folder.mkdir(parents=True, exist_ok=True)
    try:
        count = prove_same(folder, options.old.read_text(), options.new.read_text(), top)
    except Difference as difference:
        print(f"{top}: {difference}")
        return 1
    print(f"{top}: the same, {count} registers and ports of memories")
    return 0


if __name__ == "__main__":
    sys.exit(main())
