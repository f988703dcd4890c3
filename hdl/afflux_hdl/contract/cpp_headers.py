"""Write the contract as C++ headers, for the native drivers.

`python -m afflux_hdl.contract.cpp_headers drivers/native/contract` writes `wire.hpp` and
`registers.hpp` into the folder. A test compares them with what this module would write, so that
C++ and contract cannot drift apart.
"""

import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path

from afflux_hdl.contract import registers, wire

__all__ = ["HEADERS"]

_TOP = """\
// Written by `python -m afflux_hdl.contract.cpp_headers drivers/native/contract`; not to be edited.
// clang-format off
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

"""

_CODES = {1: "std::uint8_t", 2: "std::uint16_t", 4: "std::uint32_t", 8: "std::uint64_t"}

_SIZES = (
    "ETHERNET_BYTES",
    "IPV4_BYTES",
    "UDP_BYTES",
    "AFFLUX_OFFSET",
    "HEADER_BYTES",
    "LOOKAHEAD_OFFSET",
    "LANES_MAX",
    "LOOKAHEAD_BYTES",
    "PAYLOAD_OFFSET",
    "BLOCK_ELEMENTS",
    "BLOCK_BYTES",
    "LONGEST_BLOCK_BYTES",
    "WORKERS_MAX",
    "UDP_PAYLOAD_MIN",
    "SEAL_BYTES",
)
_WORDS = ("ABSENT", "ROWS_MAX")
_OCTETS = ("VERSION", "EVERYONE")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.lower().split("_"))


def _constants(names: Iterable[str], type_: str, values: object) -> list[str]:
    return [f"inline constexpr {type_} k{_camel(n)} = {getattr(values, n)};" for n in names]


def _enumeration(enumeration: type[IntEnum], type_: str) -> list[str]:
    lines = [f"enum class {enumeration.__name__} : {type_} {{"]
    lines += [f"    {_camel(member.name)} = {member.value}," for member in enumeration]
    return [*lines, "};", ""]


def _wire() -> str:
    lines = ["namespace afflux::wire {", ""]
    lines += _constants(_OCTETS, "std::uint8_t", wire)
    lines += _constants(_WORDS, "std::uint32_t", wire)
    lines += _constants(_SIZES, "std::size_t", wire)
    lines += _constants(("SEALED_CHECKSUM",), "std::uint16_t", wire)
    lines.append("")
    for enumeration in (wire.Type, wire.Opcode, wire.NumberOpcode, wire.Dtype, wire.Refusal):
        lines += _enumeration(enumeration, "std::uint8_t")
    lines.append("// The fields of the Afflux header: type, and bytes from its start.")
    for field in wire.FIELDS:
        lines += [
            f"using {_camel(field.name)} = {_CODES[field.size]};",
            f"inline constexpr std::size_t k{_camel(field.name)}At = {field.offset};",
        ]
    return "\n".join([*lines, "", "}  // namespace afflux::wire", ""])


def _registers() -> str:
    lines = ["namespace afflux::registers {", ""]
    lines += _constants(["IDENTITY", "RELEASE", "COUNTER_BASE"], "std::uint32_t", registers)
    lines.append("")
    lines += _enumeration(registers.Command, "std::uint32_t")
    lines += _enumeration(registers.Reason, "std::uint32_t")
    lines += ["// Byte addresses.", "enum class Address : std::uint32_t {"]
    lines += [f"    {_camel(r.name)} = {r.address:#05x}," for r in registers.REGISTERS]
    lines += ["};", ""]
    lines += [
        "struct Register {",
        "    Address address;",
        "    unsigned width;  // bits in use, from bit 0",
        "    bool readable;  // otherwise it reads as 0",
        "    bool writable;",
        "};",
        "",
        f"inline constexpr std::array<Register, {len(registers.REGISTERS)}> kRegisters{{{{",
    ]
    for register in registers.REGISTERS:
        readable = str(register.access is not registers.Access.WRITE_ONLY).lower()
        writable = str(register.access.writable).lower()
        name = _camel(register.name)
        lines.append(f"    {{Address::{name}, {register.width}, {readable}, {writable}}},")
    lines += ["}};", "", "// Counters, in the order of their addresses."]
    lines += ["enum class Counter : std::size_t {"]
    lines += [f"    {_camel(counter.name)}," for counter in registers.COUNTERS]
    lines += ["};", f"inline constexpr std::size_t kCounters = {len(registers.COUNTERS)};"]
    return "\n".join([*lines, "", "}  // namespace afflux::registers", ""])


HEADERS: dict[str, Callable[[], str]] = {
    "wire.hpp": lambda: f"// The packet layout, in C++.\n//\n{_TOP}{_wire()}",
    "registers.hpp": lambda: f"// The register map, in C++.\n//\n{_TOP}{_registers()}",
}
"""The content of each header, by its name."""


def main() -> None:
    """Write the headers into the folder that the first argument names."""
    for name, text in HEADERS.items():
        (Path(sys.argv[1]) / name).write_text(text())


if __name__ == "__main__":
    main()
