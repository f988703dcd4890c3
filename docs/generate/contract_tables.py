"""Write the reference tables of the documents from the contract.

`python -m docs.generate.contract_tables docs` rewrites the text between
`<!-- generated: NAME -->` and `<!-- end -->` in every Markdown file of the folder. A test
compares them, so that documents and contract cannot drift apart.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from afflux_hdl.contract import management, registers, wire

__all__ = ["TABLES", "render"]


def _header() -> str:
    lines = ["| frame bytes | field | bytes | meaning |", "|---|---|---|---|"]
    for field in wire.FIELDS:
        first = field.frame_offset
        place = str(first) if field.size == 1 else f"{first}–{first + field.size - 1}"
        lines.append(f"| {place} | `{field.name}` | {field.size} | {field.meaning} |")
    return "\n".join(lines)


def _counters() -> str:
    marks = dict.fromkeys(registers.FRAME_COUNTERS, "yes")
    return _counter_table(registers.COUNTERS, marks)


def _node_counters() -> str:
    marks = dict.fromkeys(registers.NODE_FRAME_COUNTERS, "from the network")
    marks |= dict.fromkeys(registers.NODE_HOST_COUNTERS, "from the host")
    return _counter_table(registers.NODE_COUNTERS, marks)


def _counter_table(
    counters: Iterable[registers.Counter], marks: Mapping[registers.Counter, str]
) -> str:
    lines = ["| number | counter | one for each frame | meaning |", "|---|---|---|---|"]
    for number, counter in enumerate(counters):
        mark = marks.get(counter, "")
        lines.append(f"| {number} | `{counter.name}` | {mark} | {counter.meaning} |")
    return "\n".join(lines)


def _registers() -> str:
    return _register_table(registers.REGISTERS)


def _reasons() -> str:
    lines = ["| `job_reason` | name | meaning |", "|---|---|---|"]
    for reason in registers.Reason:
        lines.append(f"| {reason.value} | `{reason.name}` | {reason.meaning} |")
    return "\n".join(lines)


def _node_registers() -> str:
    return _register_table(registers.NODE_REGISTERS)


def _port_registers() -> str:
    return _register_table(registers.PORT_REGISTERS)


def _register_table(table: Iterable[registers.Register]) -> str:
    lines = ["| address | register | bits | access | meaning |", "|---|---|---|---|---|"]
    for register in table:
        lines.append(
            f"| 0x{register.address:03X} | `{register.name}` | {register.width} "
            f"| {register.access.value} | {register.meaning} |"
        )
    return "\n".join(lines)


def _management_registers() -> str:
    return _register_table(management.MANAGEMENT_REGISTERS)


def _management_counters() -> str:
    lines = ["| number | counter | meaning |", "|---|---|---|"]
    for number, counter in enumerate(management.MANAGEMENT_COUNTERS):
        lines.append(f"| {number} | `{counter.name}` | {counter.meaning} |")
    return "\n".join(lines)


def _management_status() -> str:
    lines = ["| `status` | name | meaning |", "|---|---|---|"]
    for status in management.Status:
        lines.append(f"| {status.value} | `{status.name}` | {status.meaning} |")
    return "\n".join(lines)


def _management_message() -> str:
    return _field_table(management.MESSAGE)


def _management_settings() -> str:
    return _field_table(management.SETTINGS_FIELDS)


def _field_table(fields: Iterable[management.Field]) -> str:
    lines = ["| bytes | field | size | meaning |", "|---|---|---|---|"]
    for field in fields:
        last = field.offset + field.size - 1
        place = f"{field.offset}" if field.size == 1 else f"{field.offset}–{last}"
        lines.append(f"| {place} | `{field.name}` | {field.size} | {field.meaning} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "header": _header,
    "counters": _counters,
    "registers": _registers,
    "reasons": _reasons,
    "node_counters": _node_counters,
    "node_registers": _node_registers,
    "port_registers": _port_registers,
    "management_message": _management_message,
    "management_status": _management_status,
    "management_registers": _management_registers,
    "management_counters": _management_counters,
    "management_settings": _management_settings,
}


def render(text: str) -> str:
    """Return `text` with every generated section renewed. `KeyError` for an unknown name."""

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- generated: {name} -->\n{TABLES[name]()}\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)


def main() -> None:
    """Rewrite the documents in the folder that the first argument names."""
    for path in sorted(Path(sys.argv[1]).glob("*.md")):
        before = path.read_text()
        after = render(before)
        if after != before:
            path.write_text(after)


if __name__ == "__main__":
    main()
