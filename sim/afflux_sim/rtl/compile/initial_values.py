"""Shortens the initial values of memories in generated Verilog.

Amaranth writes one assignment for each row. For a pool of 512 slots those are 70,000 lines, over
which the C++ compiler spends minutes; as a loop they are one.
"""

import re

__all__ = ["loops_for_initial_values"]

# name[row] = value; on a line of its own, as Yosys writes it.
_ROW = re.compile(r"^\s*(\S+)\s?\[(\d+)\] = (\d+'[hd][0-9a-f]+);$")

_SHORTEST = 8
"""With fewer rows a loop is not shorter."""


def loops_for_initial_values(verilog: str) -> str:
    """Write runs of equal initial values of consecutive rows as loops."""
    lines = verilog.splitlines()
    result: list[str] = []
    at = 0
    while at < len(lines):
        length = _run_length(lines, at)
        if length < _SHORTEST:
            result += lines[at : at + max(1, length)]
        else:
            result.append(_loop(lines[at], length))
        at += max(1, length)
    return "\n".join(result) + "\n"


def _run_length(lines: list[str], at: int) -> int:
    first = _ROW.match(lines[at])
    if first is None:
        return 0
    name, row, value = first.groups()
    length = 1
    while at + length < len(lines):
        found = _ROW.match(lines[at + length])
        if found is None or found.groups() != (name, str(int(row) + length), value):
            break
        length += 1
    return length


def _loop(line: str, length: int) -> str:
    match = _ROW.match(line)
    assert match is not None
    name, first, value = match.groups()
    end = int(first) + length
    # An escaped identifier ends with a blank.
    blank = " " if name.startswith("\\") else ""
    return (
        f"    for (integer row = {first}; row < {end}; row = row + 1) {name}{blank}[row] = {value};"
    )
