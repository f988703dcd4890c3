"""RTLIL as text: the inputs of a module, and a module whose states are cut out."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Ends", "cut", "inputs_of"]

_CELL = re.compile(r"^  cell (\S+) (\S+)$(.*?)^  end\n", re.M | re.S)
_CONNECT = re.compile(r"^    connect \\(\S+) (.*)$", re.M)
_PARAMETER = re.compile(r"^    parameter (?:signed )?\\(\S+) (\d+)$", re.M)
_PORT = re.compile(r"^  wire .*?(?:input|output) (\d+) ", re.M)


@dataclass(frozen=True)
class Ends:
    """The ends of a cell with a state, and their widths in bits.

    Attributes:
        given: What says what it holds next, or reads.
        driven: What it drives.
        written: Of a memory: what counts only where the bits of `enable` are set.
        enable: The end with these bits, which is `given` too.
    """

    given: Mapping[str, int]
    driven: Mapping[str, int] = field(default_factory=dict)
    written: str = ""
    enable: str = ""


def inputs_of(text: str, module: str) -> set[str]:
    """Return the names of the inputs of a module of RTLIL."""
    body = text.partition(f"module \\{module}\n")[2].partition("\nend\n")[0]
    return set(re.findall(r"^  wire .*?input \d+ +\\(\S+)$", body, re.M))


def cut(
    text: str, name: str, kinds: Mapping[str, Callable[[Mapping[str, int]], Ends | None]]
) -> str:
    """Take the states out of a flat module of RTLIL; their ends become its ports.

    Args:
        text: The module.
        name: What it is called then.
        kinds: Of each kind of cell with a state: its ends by its parameters; None drops it.

    Raises:
        ValueError: If there is a cell with a state of another kind.
    """
    text = re.sub(r"^ *attribute .*\n|^  memory .*\n", "", text, flags=re.M)
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
        if kind not in kinds:
            if re.search("dff|mem|latch|fsm", kind, re.I):
                raise ValueError(f"what to do with a {kind} is not known")
            return found[0]
        ends = kinds[kind]({key: int(value) for key, value in _PARAMETER.findall(body)})
        if ends is None:
            return ""
        at = dict(_CONNECT.findall(body))
        lines = [
            f"  connect {port('output', width, cell, end)} {at[end]}\n"
            for end, width in ends.given.items()
        ]
        if ends.written:
            # What is not written does not matter.
            bits = ends.given[ends.enable]
            lines.append(
                f"  cell $and $and:{cell.removeprefix(chr(92))}\n"
                "    parameter \\A_SIGNED 0\n    parameter \\B_SIGNED 0\n"
                f"    parameter \\A_WIDTH {bits}\n    parameter \\B_WIDTH {bits}\n"
                f"    parameter \\Y_WIDTH {bits}\n    connect \\A {at[ends.written]}\n"
                f"    connect \\B {at[ends.enable]}\n"
                f"    connect \\Y {port('output', bits, cell, ends.written)}\n  end\n"
            )
        lines += [
            f"  connect {at[end]} {port('input', width, cell, end)}\n"
            for end, width in ends.driven.items()
        ]
        return "".join(lines)

    text = _CELL.sub(replaced, text)
    return re.sub(
        r"^module \S+\n", lambda _: f"module \\{name}\n" + "".join(wires), text, flags=re.M
    )
