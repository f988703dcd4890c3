"""Which registers of a mutant always hold what the engine's hold: a greatest fixed point, by SAT.

::

    netlist with all mutants ─► registers and memories cut ─► one AIG with the selector as an input
                                                                │ selector 0          │ selector m
                                                              engine                mutant
                  pairs of registers that are alike ─► next state, outputs: alike? ─► fewer pairs ─┐
                                    ▲                                                              │
                                    └──────────────────────────────────────────────────────────────┘

Both begin alike. A pair that can differ after one step, from any state in which the remaining pairs
are alike, is dropped, and the mutant's value there may be anything. If no pair is lost any more and
all outputs are alike, they are so for ever: by induction (van Eijk, 1998). So a wrong value that is
stored and never used makes no difference, other than where each register has to agree
(`tests.mutation.equivalence`).

A column of a memory, one bit of all its words, is a pair as a register is; so is what a read port
gives, which depends on its address too. The engine's possible states are narrowed by invariants
(`tests.mutation.reachable`).
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from pysat.solvers import Solver

from tests.mutation.aig import FALSE, TRUE, AndGraph, Circuit, fanouts

_Values = Callable[[int], int]
"""The mutant's value of each literal of the circuit."""
_Apart = set[tuple[str | int, ...]]
"""The parts that may differ: bits of registers, and columns and ports of memories."""

__all__ = ["Machine", "Outcome", "Relation", "Search"]

_PLACE = re.compile(r"(?:input|output):(.*):(\w+)\[(\d+)\]|(?:input|output):(.*):(\w+)")
_STREAMS = {
    **{f"tx_{name}": "tx_valid" for name in ("data", "keep", "last", "error")},
    **{f"net_tx_{name}": "net_tx_valid" for name in ("data", "keep", "last", "error")},
    **{f"host_rx_{name}": "host_rx_valid" for name in ("data", "keep", "last", "error")},
    "s_axil_bresp": "s_axil_bvalid",
    "s_axil_rdata": "s_axil_rvalid",
    "s_axil_rresp": "s_axil_rvalid",
}
"""Outputs that nobody may look at, and when they count."""


def place(name: str) -> tuple[str, str, int]:
    """Return cell, end and bit of a port that stands for the end of a register or memory."""
    found = _PLACE.fullmatch(name)
    assert found, name
    if found[1] is not None:
        return found[1], found[2], int(found[3])
    return found[4], found[5], 0


class Machine:
    """The simulated circuit, with its registers, memories and outputs told apart.

    Args:
        circuit: Its state cut out, by `tests.mutation.equivalence.cut`.
        selector: Name of the input that chooses the mutant.
        memories: Read ports, write ports and width of each memory, by its name.
    """

    def __init__(
        self, circuit: Circuit, selector: str, memories: Mapping[str, tuple[int, int, int]]
    ) -> None:
        self.circuit = circuit
        self.memories = memories
        self.selector: dict[int, int] = {}
        self.registers: dict[tuple[str, int], tuple[int, int]] = {}
        self.ends: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self.outputs: dict[str, int] = {}
        self.free: dict[str, int] = {}
        held: dict[tuple[str, int], int] = {}
        for name, literal in circuit.inputs.items():
            if name.startswith("input:"):
                cell, end, bit = place(name)
                if end == "Q":
                    held[cell, bit] = literal
                else:
                    self.ends[cell, end][bit] = literal
            elif name.partition("[")[0] == selector:
                self.selector[int(name.partition("[")[2][:-1] or 0)] = literal
            else:
                self.free[name] = literal
        for name, literal in circuit.outputs.items():
            if name.startswith("output:"):
                cell, end, bit = place(name)
                if end == "D":
                    if (cell, bit) in held:
                        self.registers[cell, bit] = held[cell, bit], literal
                else:
                    self.ends[cell, end][bit] = literal
            else:
                self.outputs[name] = literal
        self.readers = fanouts(circuit)

    def port(self, cell: str, end: str, number: int) -> dict[int, int]:
        """Return the literals of one port's part of an end of a memory, by bit."""
        reads, writes, _ = self.memories[cell]
        ports = reads if end.startswith("RD_") else writes
        bits = self.ends[cell, end]
        each = -(-(max(bits, default=-1) + 1) // ports)
        return {n - number * each: bits[n] for n in bits if n // each == number} if each else {}


@dataclass(frozen=True)
class Outcome:
    """The outcome of the comparison of a mutant with the engine.

    Attributes:
        same: They always do the same.
        seen_at: If not proved: the output that may differ.
        lost: How many pairs may differ.
    """

    same: bool
    seen_at: str
    lost: int


@dataclass(frozen=True)
class Relation:
    """How a bit of the mutant may differ from the engine's.

    Attributes:
        now, following: A literal of the graph: the bit is the engine's, inverted while this is
            true; in this state, and in the next one.
    """

    now: int
    following: int


class Search:
    """Compares mutants of one machine with itself.

    Args:
        machine: With its selector; 0 chooses none.
        fixed: Nodes of the engine's registers and memories that never change, and their values.
        budget: Conflicts after which the solver gives up a question.
        most_lost: Pairs after whose loss the comparison gives up.
    """

    def __init__(
        self,
        machine: Machine,
        fixed: Mapping[int, int] | None = None,
        budget: int = 20_000,
        most_lost: int = 300,
    ) -> None:
        self.machine = machine
        self._most_lost = most_lost
        self._budget = budget
        self.graph = AndGraph()
        self.solver = Solver(name="glucose4", incr=False)
        self._encoded: set[int] = set()
        self._related: dict[tuple[str, int], Relation] = {}
        circuit = machine.circuit
        self.of: list[int] = [0] * circuit.nodes
        selectors = {literal >> 1 for literal in machine.selector.values()}
        for literal in circuit.inputs.values():
            if literal >> 1 not in selectors:
                self.of[literal >> 1] = self.graph.new_input()
        for node, value in (fixed or {}).items():
            self.of[node] = TRUE if value else FALSE
        for node, a, b in circuit.ands:
            self.of[node] = self.graph.land(self.of[a >> 1] ^ (a & 1), self.of[b >> 1] ^ (b & 1))

    def engine(self, literal: int) -> int:
        """Return the engine's value of a literal of the circuit."""
        return self.of[literal >> 1] ^ (literal & 1)

    def assume(self, clause: Iterable[int]) -> None:
        """Take it for granted that one of these literals of the graph is true, in every state."""
        self.solver.add_clause([self._encode(literal) for literal in clause])

    def _encode(self, literal: int) -> int:
        """Return the solver's number of a literal, whose cone it gets to know."""
        graph, encoded = self.graph, self._encoded
        left = [literal >> 1]
        while left:
            node = left.pop()
            if node in encoded:
                continue
            encoded.add(node)
            if node == 0:
                continue
            a, b = graph.left[node], graph.right[node]
            if a < 0:
                continue
            for number in (a, b):
                self.solver.add_clause([-(node + 1), self._number(number)])
            self.solver.add_clause([node + 1, -self._number(a), -self._number(b)])
            left += [a >> 1, b >> 1]
        if literal < 2 and 0 not in self._encoded:
            encoded.add(0)
        if literal < 2:
            self.solver.add_clause([-1])
        return self._number(literal)

    @staticmethod
    def _number(literal: int) -> int:
        return -(literal // 2 + 1) if literal & 1 else literal // 2 + 1

    def possible(self, *literals: int) -> bool:
        """Return whether all of these can be true at once; True if the solver gives up."""
        if FALSE in literals:
            return False
        numbers = [self._encode(literal) for literal in literals]
        self.solver.conf_budget(self._budget)
        return self.solver.solve_limited(assumptions=numbers) is not False

    def differs(self, a: int, b: int, *when: int) -> bool:
        """Return whether two literals can differ while all others are true."""
        if a == b:
            return False
        return self.possible(a, b ^ 1, *when) or self.possible(a ^ 1, b, *when)

    def _chosen(self, number: int) -> dict[int, int]:
        """Return the values of the selector's inputs that choose a mutant."""
        return {
            literal >> 1: 1 for bit, literal in self.machine.selector.items() if number >> bit & 1
        }

    def _fan_in(self, literal: int) -> set[int]:
        """Return the positions of the ANDs that a literal depends on."""
        circuit = self.machine.circuit
        first = circuit.ands[0][0] if circuit.ands else 0
        found: set[int] = set()
        left = [literal >> 1]
        while left:
            position = left.pop() - first
            if position >= 0 and position not in found:
                found.add(position)
                left += [each >> 1 for each in circuit.ands[position][1:]]
        return found

    def _values(
        self,
        chosen: Mapping[int, int],
        spare: Mapping[int, int],
        within: Set[int] | None = None,
    ) -> _Values:
        """Return what gives the mutant's value of each literal, of these ANDs at least."""
        values = self._mutant(chosen, spare, within)

        def mutant(literal: int) -> int:
            value = values.get(literal >> 1)
            return self.engine(literal) if value is None else value ^ (literal & 1)

        return mutant

    def holds_on(self, number: int, key: tuple[str, int], relation: Relation) -> bool:
        """Return whether a bit that is related in this state is in the next one, others alike."""
        held, following = self.machine.registers[key]
        spare = {held >> 1: self.graph.lxor(self.engine(held), relation.now)}
        mutant = self._values(self._chosen(number), spare, self._fan_in(following))
        expected = self.graph.lxor(self.engine(following), relation.following)
        return not self.differs(mutant(following), expected)

    def compare(
        self, number: int, related: Mapping[tuple[str, int], Relation] | None = None
    ) -> Outcome:
        """Compare a mutant with the engine.

        Args:
            number: The mutant's.
            related: Bits that are not alike, but related so after power-up. That they stay so is
                part of the comparison.
        """
        machine = self.machine
        chosen = self._chosen(number)
        apart: _Apart = set()
        spare: dict[int, int] = {}
        self._related = dict(related or {})
        for key, relation in self._related.items():
            held = machine.registers[key][0]
            spare[held >> 1] = self.graph.lxor(self.engine(held), relation.now)
        while True:
            mutant = self._values(chosen, spare)
            seen = self._seen(mutant)
            if seen:
                return Outcome(False, seen, len(spare))
            lost = self._lost(mutant, apart)
            if not lost:
                return Outcome(True, "", len(spare))
            if len(lost) + len(spare) > self._most_lost:
                return Outcome(False, "", len(lost) + len(spare))
            for node in lost:
                spare[node] = self.graph.new_input()

    def _mutant(
        self, chosen: Mapping[int, int], spare: Mapping[int, int], within: Set[int] | None
    ) -> dict[int, int]:
        """Return the mutant's values of the nodes that are not the engine's."""
        machine, graph = self.machine, self.graph
        values: dict[int, int] = {**chosen, **spare}
        queue = [
            position
            for node in values
            for position in machine.readers[node]
            if within is None or position in within
        ]
        heapq.heapify(queue)
        before = -1
        while queue:
            position = heapq.heappop(queue)
            if position == before:
                continue
            before = position
            node, a, b = machine.circuit.ands[position]
            value = graph.land(
                values.get(a >> 1, self.of[a >> 1]) ^ (a & 1),
                values.get(b >> 1, self.of[b >> 1]) ^ (b & 1),
            )
            if value != self.of[node]:
                values[node] = value
                for reader in machine.readers[node]:
                    if within is None or reader in within:
                        heapq.heappush(queue, reader)
        return values

    def _seen(self, mutant: _Values) -> str:
        """Return the name of an output that can differ; empty if none can."""
        outputs = self.machine.outputs
        for name, literal in outputs.items():
            mine, other = self.engine(literal), mutant(literal)
            if mine == other:
                continue
            valid = _STREAMS.get(name.partition("[")[0])
            when = [self.engine(outputs[valid])] if valid else []
            if self.differs(mine, other, *when):
                return name
        return ""

    def _lost(self, mutant: _Values, apart: _Apart) -> set[int]:
        """Return the input nodes of what can differ after a step; remember it in `apart`."""
        machine = self.machine
        lost: set[int] = set()
        for key, (held, following) in machine.registers.items():
            if key in apart:
                continue
            mine, other = self.engine(following), mutant(following)
            if key in self._related:
                mine = self.graph.lxor(mine, self._related[key].following)
            if mine != other and self.differs(mine, other):
                apart.add(key)
                lost.add(held >> 1)
                if len(lost) > self._most_lost:
                    return lost
        for cell, ports in machine.memories.items():
            lost |= self._lost_of_memory(cell, ports, mutant, apart)
        return lost

    def _lost_of_memory(
        self, cell: str, ports: tuple[int, int, int], mutant: _Values, apart: _Apart
    ) -> set[int]:
        reads, writes, width = ports
        machine = self.machine
        columns: set[int] = set()
        for port in range(writes):
            enables = machine.port(cell, "WR_EN", port)
            address = machine.port(cell, "WR_ADDR", port)
            data = machine.port(cell, "WR_DATA", port)
            left = [n for n in range(width) if (cell, "column", n) not in apart]
            if not left:
                break
            moved = [lit for lit in address.values() if self.engine(lit) != mutant(lit)]
            if moved:
                written = self.graph.any(
                    self.graph.lor(self.engine(lit), mutant(lit)) for lit in set(enables.values())
                )
                if any(self.differs(self.engine(lit), mutant(lit), written) for lit in moved):
                    columns |= set(left)
                    continue
            columns |= {
                n
                for n in left
                for lit in (enables[n], data[n])
                if self.engine(lit) != mutant(lit) and self.differs(self.engine(lit), mutant(lit))
            }
        apart |= {(cell, "column", n) for n in columns}
        lost: set[int] = set()
        for port in range(reads):
            given = machine.port(cell, "RD_DATA", port)
            lost |= {given[n] >> 1 for n in columns if n in given}
            if (cell, "port", port) in apart:
                continue
            asked = [
                lit
                for end in ("RD_ADDR", "RD_EN", "RD_ARST", "RD_SRST")
                for lit in machine.port(cell, end, port).values()
            ]
            if any(
                self.engine(lit) != mutant(lit) and self.differs(self.engine(lit), mutant(lit))
                for lit in asked
            ):
                apart.add((cell, "port", port))
                lost |= {lit >> 1 for lit in given.values()}
        return lost
