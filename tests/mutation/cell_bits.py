"""The connections of each bit of each cell's ports, from RTLIL text: a signal, or a constant."""

import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["CELL", "MEMORY", "SOURCES", "CellBits", "reached", "through_memory"]

_WIRE = re.compile(r"^  wire (?:width (\d+) )?.*?(\S+)$")
_CELL = re.compile(r"^  cell \S+ \\?(\S+)$")
_CONNECT = re.compile(r"^    connect \\(\S+) (.*)$")
_SLICE = re.compile(r"\[(\d+)(?::(\d+))?\]")
_CONSTANT = re.compile(r"(\d+)'([01xzm-]+)")

_SIGNAL = "s"


CELL = re.compile(
    r"^(?P<attributes>(?:  attribute [^\n]*\n)*)"
    r"  cell (?P<kind>\S+) (?P<name>\S+)$(?P<body>.*?)^  end$",
    re.M | re.S,
)
SOURCES = re.compile(r'attribute \\src "([^"]*)"')
_CONNECTED = re.compile(r"^  connect (\S.*?) ((?:\{.*\}|\S+(?: \[[\d:]+\])?))$", re.M)
MEMORY = "$mem_v2"


def reached(start: Iterable[str], steps: Mapping[str, set[str]]) -> set[str]:
    """Return the bits that some bits lead to, step by step, and these; constants are none."""
    found: set[str] = set()
    waiting = set(start)
    while waiting:
        bit = waiting.pop()
        found.add(bit)
        waiting |= steps.get(bit, set()) - found
    return found - {"0", "1", "x"}


def through_memory(ports: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Return which bits that are written to a memory are read as which."""
    words = ports["RD_DATA"]
    width = len(words) // len(ports["RD_CLK"])
    for n, bit in enumerate(ports["WR_DATA"]):
        yield from ((bit, word) for word in words[n % width :: width])


class CellBits:
    """The connections of all cells of a flat module.

    Args:
        text: The module as RTLIL.
    """

    def __init__(self, text: str) -> None:
        widths: dict[str, int] = {}
        self._cells: dict[str, dict[str, str]] = {}
        self._widths: Mapping[str, int] = widths
        ports: dict[str, str] = {}
        for line in text.splitlines():
            if found := _WIRE.match(line):
                widths[found[2]] = int(found[1] or 1)
            elif found := _CELL.match(line):
                ports = self._cells[found[1]] = {}
            elif found := _CONNECT.match(line):
                ports[found[1]] = found[2]

    def bit(self, cell: str, port: str, number: int) -> str:
        """`"0"`, `"1"`, `"x"` for an undefined value, or `"s"` for a signal.

        Args:
            cell: Its name, without the backslash of RTLIL.
            port: Its name, likewise.
            number: Bit of the port, 0 the lowest.

        Raises:
            KeyError: If there is no such cell or port.
            IndexError: If the port has no such bit.
        """
        found = self.names(self._cells[cell][port])[number]
        return found if found in "01x" else _SIGNAL

    def ports(self, cell: str) -> Mapping[str, list[str]]:
        """Return of each of a cell's ports the bits: names such as `count 3`, or `0`, `1`, `x`."""
        return {port: self.names(text) for port, text in self._cells[cell].items()}

    def __iter__(self) -> Iterator[str]:
        """Return the names of all cells."""
        return iter(self._cells)

    def names(self, text: str) -> list[str]:
        """Return the bits of a signal as RTLIL writes it, the lowest first."""
        parts: list[list[str]] = []
        for word in text.split():
            if word in "{}":
                continue
            if constant := _CONSTANT.fullmatch(word):
                digits = re.sub("[^01]", "x", constant[2])
                # All undefined is written as one digit.
                parts.append(list(digits[::-1].ljust(int(constant[1]), digits[0])))
            elif word.isdecimal():
                # A parameter that became a connection: an integer of 32 bits.
                parts.append(list(f"{int(word):032b}"[::-1]))
            elif part := _SLICE.fullmatch(word):
                high, low = int(part[1]), int(part[2] or part[1])
                parts[-1] = parts[-1][low : high + 1]
            else:
                parts.append([f"{word} {n}" for n in range(self._widths[word])])
        # The first in braces is uppermost.
        return [bit for each in reversed(parts) for bit in each]

    def connected(self, text: str) -> Iterator[tuple[str, str]]:
        """Return the bits that the module connects to one another: the driven one, and its driver.

        Args:
            text: The module as RTLIL.
        """
        for left, right in _CONNECTED.findall(text):
            yield from zip(self.names(left), self.names(right), strict=True)
