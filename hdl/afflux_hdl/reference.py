"""Writes the reference tables of the documents from the contract.

``python -m afflux_hdl.reference docs`` rewrites, in every Markdown file of the folder, what stands
between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A test compares, so that documents and
contract cannot drift apart.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from afflux_hdl import registers, wire

__all__ = ["TABLES", "render"]


def _header() -> str:
    lines = ["| frame bytes | field | bytes | meaning |", "|---|---|---|---|"]
    for field in wire.FIELDS:
        first = field.frame_offset
        place = str(first) if field.size == 1 else f"{first}–{first + field.size - 1}"
        lines.append(f"| {place} | `{field.name}` | {field.size} | {field.meaning} |")
    return "\n".join(lines)


def _counters() -> str:
    lines = ["| number | counter | one for each frame | meaning |", "|---|---|---|---|"]
    for number, counter in enumerate(registers.COUNTERS):
        mark = "yes" if counter in registers.FRAME_COUNTERS else ""
        lines.append(f"| {number} | `{counter.name}` | {mark} | {counter.meaning} |")
    return "\n".join(lines)


def _registers() -> str:
    lines = ["| address | register | bits | access | meaning |", "|---|---|---|---|---|"]
    for register in registers.REGISTERS:
        lines.append(
            f"| 0x{register.address:03X} | `{register.name}` | {register.width} "
            f"| {register.access.value} | {register.meaning} |"
        )
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "header": _header,
    "counters": _counters,
    "registers": _registers,
}


def render(text: str) -> str:
    """``text`` with every generated section renewed. Raises ``KeyError`` for an unknown name."""

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- generated: {name} -->\n{TABLES[name]()}\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)


def main() -> None:
    """Rewrites the documents in the folder that the first argument names."""
    for path in sorted(Path(sys.argv[1]).glob("*.md")):
        before = path.read_text()
        after = render(before)
        if after != before:
            path.write_text(after)


if __name__ == "__main__":
    main()
