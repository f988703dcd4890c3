"""And-inverter graphs: read from yosys, kept without duplicates, simplified as they are made.

A literal is twice the number of a node, plus one if it is inverted; 0 is false and 1 is true.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["FALSE", "TRUE", "AndGraph", "Circuit", "read_aiger"]

FALSE, TRUE = 0, 1


class AndGraph:
    """Nodes that are inputs or the AND of two literals; no two of them are alike.

    Attributes:
        left, right: Of each node; an input has -1 twice.
    """

    def __init__(self) -> None:
        self.left: list[int] = [-1]
        self.right: list[int] = [-1]
        self._found: dict[tuple[int, int], int] = {}

    def new_input(self) -> int:
        """Return the literal of a new input."""
        self.left.append(-1)
        self.right.append(-1)
        return 2 * (len(self.left) - 1)

    def land(self, a: int, b: int) -> int:
        """Return a literal that is the AND of two."""
        if a > b:
            a, b = b, a
        if a == FALSE or a ^ b == 1:
            return FALSE
        if a in (TRUE, b):
            return b
        found = self._found.get((a, b))
        if found is None:
            self.left.append(a)
            self.right.append(b)
            found = self._found[a, b] = 2 * (len(self.left) - 1)
        return found

    def lor(self, a: int, b: int) -> int:
        """Return a literal that is the OR of two."""
        return self.land(a ^ 1, b ^ 1) ^ 1

    def lxor(self, a: int, b: int) -> int:
        """Return a literal that is the XOR of two."""
        return self.lor(self.land(a, b ^ 1), self.land(a ^ 1, b))

    def any(self, literals: Iterable[int]) -> int:
        """Return a literal that is the OR of all."""
        result = FALSE
        for each in literals:
            result = self.lor(result, each)
        return result


@dataclass
class Circuit:
    """A combinational circuit as it was read.

    Attributes:
        inputs, outputs: Literals by name, such as `level[2]`.
        ands: Each AND: its own node, and its two literals, in topological order.
        nodes: Number of nodes.
    """

    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    ands: list[tuple[int, int, int]] = field(default_factory=list)
    nodes: int = 0


def read_aiger(path: Path) -> Circuit:
    """Read a combinational circuit in the binary format, with the names of inputs and outputs.

    Raises:
        ValueError: If it is something else.
    """
    data = path.read_bytes()
    head, _, _ = data.partition(b"\n")
    words = head.split()
    if words[0] != b"aig" or int(words[3]) != 0:
        raise ValueError(f"{path} is not a combinational circuit in the binary format")
    _, inputs, _, outputs, ands = map(int, words[1:6])
    at = len(head) + 1
    found: list[int] = []
    for _ in range(outputs):
        end = data.index(b"\n", at)
        found.append(int(data[at:end]))
        at = end + 1
    circuit = Circuit(nodes=1 + inputs + ands)

    def delta() -> int:
        nonlocal at
        value = shift = 0
        while data[at] & 128:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
        value |= data[at] << shift
        at += 1
        return value

    for node in range(1 + inputs, 1 + inputs + ands):
        first = 2 * node - delta()
        circuit.ands.append((node, first, first - delta()))
    for line in data[at:].decode().splitlines():
        if line.startswith("c"):
            break
        place, _, name = line.partition(" ")
        number = int(place[1:])
        if place[0] == "i":
            circuit.inputs[name] = 2 * (1 + number)
        elif place[0] == "o":
            circuit.outputs[name] = found[number]
    return circuit


def fanouts(circuit: Circuit) -> Sequence[list[int]]:
    """Return for each node the positions in `ands` of those that read it."""
    readers: list[list[int]] = [[] for _ in range(circuit.nodes)]
    for position, (_, a, b) in enumerate(circuit.ands):
        readers[a >> 1].append(position)
        readers[b >> 1].append(position)
    return readers
