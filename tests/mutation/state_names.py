"""Names and initial values of the registers of a flat netlist, from RTLIL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["StateNames", "memory_shapes", "zeroed_memories"]

_WIRE = re.compile(r"^  wire (?:.*?width (\d+) )?.*?(\S+)$")
_INIT = re.compile(r"^  attribute \\init (?:(\d+)'([01x-]+)|(\d+))$")
_REGISTER = re.compile(r"^  cell \$dff (\S+)$(.*?)^  end$", re.M | re.S)
_MEMORY = re.compile(r"^  cell \$mem_v2 (\S+)$(.*?)^  end$", re.M | re.S)
_SIZE = re.compile(r"parameter (?:signed )?\\(RD_PORTS|WR_PORTS|WIDTH) (\d+)")
_SLICE = re.compile(r"\[(\d+)(?::(\d+))?\]")


@dataclass
class StateNames:
    """The names of registers' bits, and their initial values.

    Args:
        text: A flat module of RTLIL whose registers are all `$dff`.

    Attributes:
        named: Bit of a register (its cell, and its number there) by signal, lowest first.
        initial: Value after power-up of each bit that has one.
    """

    text: str
    named: dict[str, dict[int, tuple[str, int]]] = field(default_factory=dict)
    initial: dict[tuple[str, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        widths: dict[str, int] = {}
        starts: dict[str, str] = {}
        start = ""
        for line in self.text.splitlines():
            if found := _INIT.match(line):
                start = _digits(found[1], found[2], found[3])
            elif line.startswith("  wire ") and (found := _WIRE.match(line)):
                widths[found[2]] = int(found[1] or 1)
                if start:
                    starts[found[2]] = start[::-1]
                start = ""
            elif not line.startswith("  attribute"):
                start = ""
        for name, body in _REGISTER.findall(self.text):
            connected = re.search(r"^    connect \\Q (.*)$", body, re.M)
            assert connected, name
            cell = name.removeprefix("\\")
            for bit, (wire, number) in enumerate(_bits(connected[1], widths)):
                self.named.setdefault(wire.removeprefix("\\"), {})[number] = cell, bit
                value = starts.get(wire, "")[number : number + 1]
                if value in ("0", "1"):
                    self.initial[cell, bit] = value == "1"


def _digits(width: str | None, digits: str | None, number: str | None) -> str:
    """Return the binary digits of a constant of RTLIL; one of 32 bits may stand as a number."""
    if width is None or digits is None:
        return f"{int(number or 0):032b}"
    return digits.rjust(int(width), digits[0] if digits[0] in "x-" else "0")


def _bits(signal: str, widths: dict[str, int]) -> list[tuple[str, int]]:
    """Return the wires' bits that a signal consists of, the lowest first."""

    def parts() -> Iterator[list[tuple[str, int]]]:
        words = [word for word in signal.split() if word not in "{}"]
        for n, word in enumerate(words):
            if _SLICE.fullmatch(word):
                continue
            after = _SLICE.fullmatch(words[n + 1]) if n + 1 < len(words) else None
            if after:
                high, low = int(after[1]), int(after[2] or after[1])
            else:
                high, low = widths[word] - 1, 0
            yield [(word, number) for number in range(low, high + 1)]

    return [bit for part in reversed(list(parts())) for bit in part]


def zeroed_memories(text: str) -> set[str]:
    """Return the memories that hold only zeros after power-up.

    Nor do their read ports give anything else before the first read, as they are simulated.
    """
    zeroed = set()
    for name, body in _MEMORY.findall(text):
        start = re.search(r"parameter \\INIT (?:\d+')?(\S+)", body)
        if start and not start[1].strip("0"):
            zeroed.add(name.removeprefix("\\"))
    return zeroed


def memory_shapes(text: str) -> dict[str, tuple[int, int, int]]:
    """Return read ports, write ports and width of each memory of a module of RTLIL, by its name."""
    shapes = {}
    for name, body in _MEMORY.findall(text):
        size = {key: int(value) for key, value in _SIZE.findall(body)}
        shapes[name.removeprefix("\\")] = size["RD_PORTS"], size["WR_PORTS"], size["WIDTH"]
    return shapes
