"""Bounded model checking: a netlist, copied once for each cycle, and given to a SAT solver.

For what is too large for k-induction and for a solver of bit vectors: the whole engine. In each
cycle the copy is simplified before the solver sees it: what is constant, what has been built
before, and what two levels of gates decide. So a prefix with known inputs costs next to nothing,
and after it only what the free inputs have reached so far.

The netlist is read as AIGER 1.9 (A. Biere, K. Heljanko and S. Wieringa, "AIGER 1.9 and beyond",
2011), which yosys writes. The solver is CaDiCaL, from PySAT.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pysat.solvers import Solver

__all__ = ["Aig", "Unrolling"]

TRUE = 1
"""The solver's variable that is true. A literal is a number, or its negative."""


@dataclass(frozen=True)
class Latch:
    """A register of one bit.

    Attributes:
        variable: Its number.
        following: AIGER literal of its next value.
        initial: Its first value; None if that is any.
    """

    variable: int
    following: int
    initial: int | None


@dataclass
class Aig:
    """A netlist of AND gates and registers. Literals are twice a variable, plus 1 if negated.

    Only what bad states and constraints depend on.

    Attributes:
        size: One more than the largest variable.
        inputs: Their variables.
        latches: Registers.
        gates: Each gate's variable and the literals of its inputs, in topological order.
        bad: Literals of bad states.
        constraints: Literals that hold in every cycle.
    """

    size: int
    inputs: list[int]
    latches: list[Latch]
    gates: list[tuple[int, int, int]]
    bad: list[int]
    constraints: list[int] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> "Aig":
        """Read a binary AIGER file.

        Raises:
            ValueError: If it is not one, or has properties other than safety.
        """
        data = path.read_bytes()
        end = data.index(b"\n")
        kind, *numbers = data[:end].split()
        sizes = [int(number) for number in numbers] + [0] * (9 - len(numbers))
        largest, inputs, latches, outputs, gates, bad, constraints, justice, fairness = sizes
        if kind != b"aig" or justice or fairness:
            raise ValueError(f"{path} is no AIGER file of safety properties")
        at = end + 1

        def line() -> list[int]:
            nonlocal at
            end = data.index(b"\n", at)
            found = [int(number) for number in data[at:end].split()]
            at = end + 1
            return found

        def difference() -> int:
            nonlocal at
            value = shift = 0
            while True:
                octet = data[at]
                at += 1
                value |= (octet & 127) << shift
                if octet < 128:
                    return value
                shift += 7

        aig = Aig(largest + 1, list(range(1, inputs + 1)), [], [], [])
        for variable in range(inputs + 1, inputs + latches + 1):
            following, *initial = line()
            first = initial[0] if initial else 0
            aig.latches.append(Latch(variable, following, first if first < 2 else None))
        for _ in range(outputs):
            line()
        aig.bad = [line()[0] for _ in range(bad)]
        aig.constraints = [line()[0] for _ in range(constraints)]
        for variable in range(inputs + latches + 1, inputs + latches + gates + 1):
            first = 2 * variable - difference()
            aig.gates.append((variable, first, first - difference()))
        aig._reduce()
        return aig

    def _reduce(self) -> None:
        """Leave out what no bad state and no constraint depends on."""
        before = {variable: [a >> 1, b >> 1] for variable, a, b in self.gates}
        before |= {latch.variable: [latch.following >> 1] for latch in self.latches}
        needed: set[int] = set()
        open_ = [literal >> 1 for literal in (*self.bad, *self.constraints)]
        while open_:
            variable = open_.pop()
            if variable not in needed:
                needed.add(variable)
                open_ += before.get(variable, [])
        self.inputs = [variable for variable in self.inputs if variable in needed]
        self.latches = [latch for latch in self.latches if latch.variable in needed]
        self.gates = [gate for gate in self.gates if gate[0] in needed]


class Unrolling:
    """Copies of a netlist, one for each cycle, in a solver.

    Attributes:
        solver: It.
        variables: How many it has.
        cycles: How many copies there are.
    """

    def __init__(self, aig: Aig) -> None:
        self._aig = aig
        self.solver = Solver(name="cadical195")
        self.solver.add_clause([TRUE])
        self.variables = TRUE
        self.cycles = 0
        # Of the latest cycle: the solver's literal for each literal of the netlist.
        self._values = [-TRUE, TRUE] * aig.size
        self._gates: dict[tuple[int, int], int] = {}
        self._inputs: dict[int, tuple[int, int]] = {}

    def step(self) -> list[int]:
        """Add a cycle, and return the literals of its bad states; -1 for one that is impossible."""
        aig, values = self._aig, self._values
        if self.cycles:
            state = [values[latch.following] for latch in aig.latches]
        else:
            first = {0: -TRUE, 1: TRUE}
            state = [
                self._new() if latch.initial is None else first[latch.initial]
                for latch in aig.latches
            ]
        self.cycles += 1
        for latch, value in zip(aig.latches, state, strict=True):
            values[2 * latch.variable] = value
            values[2 * latch.variable + 1] = -value
        for variable in aig.inputs:
            values[2 * variable] = value = self._new()
            values[2 * variable + 1] = -value
        both = self._both
        for variable, a, b in aig.gates:
            one, other = values[a], values[b]
            # Most gates of a prefix are constant: these are decided here.
            if one == -TRUE or other in (-TRUE, -one):
                value = -TRUE
            elif one == TRUE:
                value = other
            elif other in (TRUE, one):
                value = one
            else:
                value = both(one, other)
            values[2 * variable] = value
            values[2 * variable + 1] = -value
        for literal in aig.constraints:
            self.solver.add_clause([values[literal]])
        return [values[literal] for literal in aig.bad]

    def reached(self, wanted: Sequence[int]) -> list[int]:
        """Return which literals can be true: all that are true together in one run, or none."""
        possible = [literal for literal in wanted if literal != -TRUE]
        any_ = self._new()
        self.solver.add_clause([-any_, *possible])
        if not self.solver.solve(assumptions=[any_]):
            for literal in possible:
                self.solver.add_clause([-literal])
            return []
        model = self.solver.get_model()
        return [literal for literal in possible if model[abs(literal) - 1] == literal]

    def _new(self) -> int:
        self.variables += 1
        return self.variables

    def _both(self, a: int, b: int) -> int:
        """Return a literal that is true if both are, of which neither is constant."""
        key = (a, b) if a < b else (b, a)
        if (known := self._gates.get(key)) is not None:
            return known
        for simple in self._in_two_levels(a, b):
            return simple
        gate = self._gates[key] = self._new()
        self._inputs[gate] = key
        for clause in ([-gate, a], [-gate, b], [gate, -a, -b]):
            self.solver.add_clause(clause)
        return gate

    def _in_two_levels(self, a: int, b: int) -> Iterator[int]:
        """Yield what a and b are together, if that follows from the gates that they are."""
        for one, other in ((a, b), (b, a)):
            if (inputs := self._inputs.get(one)) is not None:
                if -other in inputs:
                    yield -TRUE
                if other in inputs:
                    yield one
            # Not both of its inputs, and one of them not: the latter says it all.
            if (inputs := self._inputs.get(-one)) is not None and -other in inputs:
                yield other
        left, right = self._inputs.get(a), self._inputs.get(b)
        if left and right and (-left[0] in right or -left[1] in right):
            yield -TRUE
