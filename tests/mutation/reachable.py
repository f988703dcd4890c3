"""The possible content of a machine's registers: constants, and invariants that are proved here.

Constants are found by three-valued simulation from power-up: every input is unknown in every cycle,
and a bit that is known in the end never changes. Invariants are candidates, most of them bounds of
numbers, of which those that hold after power-up and whose conjunction is inductive are kept
(Houdini: Flanagan, Leino, 2001).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pysat.solvers import Solver

from tests.mutation.aig import FALSE, TRUE
from tests.mutation.correspondence import Machine, Search
from tests.mutation.state_names import StateNames

__all__ = ["Invariants", "constants"]

_ZERO, _ONE, _ANY = 1, 2, 3
_SWAPPED = (0, 2, 1, 3)


def constants(machine: Machine, names: StateNames, zeroed: Iterable[str]) -> dict[int, int]:
    """Return the nodes of what is held that never change, with their values.

    Args:
        machine: Its selector chooses no mutant.
        names: With the values after power-up.
        zeroed: Memories that begin with zeros.
    """
    circuit = machine.circuit
    value = [_ANY] * circuit.nodes
    value[0] = _ZERO
    for literal in machine.selector.values():
        value[literal >> 1] = _ZERO
    steps: list[tuple[int, int]] = []
    for key, (held, following) in machine.registers.items():
        if key in names.initial:
            value[held >> 1] = _ONE if names.initial[key] else _ZERO
            steps.append((held >> 1, following))
    columns: list[tuple[list[int], list[tuple[int, int]]]] = []
    for cell in zeroed:
        reads, write_ports, width = machine.memories[cell]
        for bit in range(width):
            given = [machine.port(cell, "RD_DATA", port).get(bit) for port in range(reads)]
            nodes = [literal >> 1 for literal in given if literal is not None]
            written = [
                (machine.port(cell, "WR_EN", port)[bit], machine.port(cell, "WR_DATA", port)[bit])
                for port in range(write_ports)
            ]
            for node in nodes:
                value[node] = _ZERO
            columns.append((nodes, written))

    def of(literal: int) -> int:
        found = value[literal >> 1]
        return _SWAPPED[found] if literal & 1 else found

    while True:
        for node, a, b in circuit.ands:
            left = _SWAPPED[value[a >> 1]] if a & 1 else value[a >> 1]
            right = _SWAPPED[value[b >> 1]] if b & 1 else value[b >> 1]
            value[node] = (left & right & _ONE) | ((left | right) & _ZERO)
        changed = False
        for node, following in steps:
            joined = value[node] | of(following)
            changed |= joined != value[node]
            value[node] = joined
        for nodes, writes in columns:
            joined = value[nodes[0]] if nodes else _ANY
            for enable, data in writes:
                if of(enable) & _ONE:
                    joined |= of(data)
            for node in nodes:
                changed |= joined != value[node]
                value[node] = joined
        if not changed:
            break
    every = [node for node, _ in steps] + [node for nodes, _ in columns for node in nodes]
    return {node: value[node] >> 1 for node in every if value[node] != _ANY}


class Invariants:
    """Candidates about the registers of a search's engine, and what is left of them.

    Args:
        search: Its graph.
        names: Of the registers.
    """

    def __init__(self, search: Search, names: StateNames) -> None:
        self.search = search
        self.names = names
        self.candidates: dict[str, int] = {}
        self._following: dict[int, int] = {}
        self._initial: dict[int, int] = {}
        for key, (held, following) in search.machine.registers.items():
            node = search.engine(held) >> 1
            if node == 0:
                continue
            self._following[node] = search.engine(following)
            if key in names.initial:
                self._initial[node] = TRUE if names.initial[key] else FALSE

    def bits(self, name: str) -> list[int]:
        """Return the literals of a register, lowest first; those outside registers are false."""
        found = self.names.named[name]
        registers = self.search.machine.registers
        return [
            self.search.engine(registers[found[n]][0])
            if n in found and found[n] in registers
            else FALSE
            for n in range(max(found) + 1)
        ]

    def at_most(self, bits: Sequence[int], bound: int) -> int:
        """Return a literal: the number is not above the bound."""
        graph = self.search.graph
        above = FALSE
        for n, bit in enumerate(bits):
            above = graph.land(bit, above) if bound >> n & 1 else graph.lor(bit, above)
        return above ^ 1

    def propose(self, name: str, literal: int) -> None:
        """Add a candidate."""
        if literal != TRUE:
            self.candidates[name] = literal

    def propose_values(self, names: Iterable[str], most_bits: int = 5) -> None:
        """Add that each small register never has each of its values."""
        graph = self.search.graph
        for name in names:
            bits = self.bits(name)
            if not 1 < len(bits) <= most_bits:
                continue
            for value in range(2 ** len(bits)):
                unlike = (bit ^ (value >> n & 1) for n, bit in enumerate(bits))
                self.propose(f"{name} != {value}", graph.any(unlike))

    def propose_bounds(
        self, names: Iterable[str], interesting: Iterable[int], most_bits: int = 17
    ) -> None:
        """Add that each register is not above each of some numbers."""
        for name in names:
            bits = self.bits(name)
            live = [n for n, bit in enumerate(bits) if bit > TRUE]
            if not 1 < len(bits) <= most_bits or not live:
                continue
            for bound in interesting:
                if 0 < bound < (2 << live[-1]) - 1:
                    self.propose(f"{name} <= {bound}", self.at_most(bits, bound))

    def _composed(self, literal: int, by: Mapping[int, int], found: dict[int, int]) -> int:
        """Return the literal with the inputs of the graph replaced."""
        graph = self.search.graph
        left = [literal >> 1]
        while left:
            node = left[-1]
            if node in found:
                left.pop()
                continue
            a, b = graph.left[node], graph.right[node]
            if a < 0:
                found[node] = by.get(node, 2 * node)
                left.pop()
                continue
            missing = [each >> 1 for each in (a, b) if each >> 1 not in found]
            if missing:
                left += missing
                continue
            found[node] = graph.land(found[a >> 1] ^ (a & 1), found[b >> 1] ^ (b & 1))
            left.pop()
        return found[literal >> 1] ^ (literal & 1)

    def prove(self, say: Callable[[str], object] = lambda _: None) -> dict[str, int]:
        """Drop what does not hold after power-up, and what is not inductive; assume the rest.

        Returns what is left.
        """
        search = self.search
        at_start: dict[int, int] = {0: FALSE}
        left = {
            name: literal
            for name, literal in self.candidates.items()
            if self._composed(literal, self._initial, at_start) == TRUE
        }
        say(f"{len(left)} of {len(self.candidates)} candidates hold after power-up")
        later: dict[int, int] = {0: FALSE}
        following = {
            name: self._composed(literal, self._following, later) for name, literal in left.items()
        }
        left = {name: each for name, each in left.items() if following[name] != FALSE}
        solver = Solver(name="glucose4")
        cones = _Cones(search, solver)
        marks = {}
        for n, name in enumerate(left):
            marks[name] = len(search.graph.left) + 2 + n
            solver.add_clause([-marks[name], cones.number(left[name])])
        open_ = {name: cones.number(following[name]) for name in left if following[name] != TRUE}
        while True:
            assumed = [marks[name] for name in left]
            dropped: set[str] = set()
            # One of those still open is false in the next state: any of them that is, at once.
            for name in list(open_):
                if name in dropped:
                    continue
                solver.conf_budget(50_000)
                answer = solver.solve_limited(assumptions=[*assumed, -open_[name]])
                if answer is False:
                    continue
                if answer is None:
                    dropped.add(name)
                    continue
                model = solver.get_model()
                dropped |= {
                    each
                    for each, number in open_.items()
                    if (model[abs(number) - 1] > 0) != (number > 0)
                }
                for each in dropped:
                    left.pop(each, None)
                assumed = [marks[each] for each in left]
            for name in dropped:
                left.pop(name, None)
                open_.pop(name, None)
            say(f"{len(left)} left, {len(dropped)} dropped")
            if not dropped:
                break
        for literal in left.values():
            search.assume([literal])
        solver.delete()
        return left


class _Cones:
    """Tells a solver about the cones of literals of a search's graph."""

    def __init__(self, search: Search, solver: Solver) -> None:
        self._graph, self._solver = search.graph, solver
        self._known: set[int] = set()
        solver.add_clause([-1])

    def number(self, literal: int) -> int:
        """Return the solver's number of a literal."""
        graph = self._graph
        left = [literal >> 1]
        while left:
            node = left.pop()
            if node in self._known:
                continue
            self._known.add(node)
            a, b = graph.left[node], graph.right[node]
            if a < 0:
                continue
            one, other = self._of(a), self._of(b)
            self._solver.add_clause([-(node + 1), one])
            self._solver.add_clause([-(node + 1), other])
            self._solver.add_clause([node + 1, -one, -other])
            left += [a >> 1, b >> 1]
        return self._of(literal)

    @staticmethod
    def _of(literal: int) -> int:
        return -(literal // 2 + 1) if literal & 1 else literal // 2 + 1
