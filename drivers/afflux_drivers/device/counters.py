"""Counters, read whole although each takes two words, and whatever other readers do meanwhile."""

import re
from collections.abc import Mapping

from afflux_drivers.registers import Registers
from afflux_hdl.contract import management, registers

__all__ = [
    "difference",
    "engine_counters",
    "has_port_registers",
    "management_counters",
    "node_counters",
    "port_counters",
    "read_counter",
]

_OF_MANAGEMENT = frozenset(each.name for each in management.MANAGEMENT_COUNTERS)
_OF_A_PORT = frozenset(registers.PORT_COUNTERS)
_OF_A_BOX = re.compile(r"(port|host)[0-9]+_")


def _is_short(name: str) -> bool:
    """Return whether a counter has 32 bits."""
    return name in _OF_MANAGEMENT | _OF_A_PORT or _OF_A_BOX.match(name) is not None


def read_counter(port: Registers, address: int) -> int:
    """Return the 64 bits of a counter that grows, a value that it has had meanwhile.

    However long the reads take: if the upper word has grown, the counter has passed the first
    value with the new one.
    """
    before = port.read(address + 4)
    low = port.read(address)
    high = port.read(address + 4)
    return high << 32 | (low if high == before else 0)


def engine_counters(port: Registers) -> dict[str, int]:
    """Return the counters of an engine, by name."""
    return {
        each.name: read_counter(port, registers.counter_address(each.name))
        for each in registers.COUNTERS
    }


def node_counters(port: Registers) -> dict[str, int]:
    """Return the counters of a node, by name, each name after `node_`."""
    return {
        f"node_{each.name}": read_counter(port, registers.node_counter_address(each.name))
        for each in registers.NODE_COUNTERS
    }


def management_counters(port: Registers) -> dict[str, int]:
    """Return the counters of an appliance's management, by name."""
    return {
        each.name: port.read(management.management_counter_address(each.name))
        for each in management.MANAGEMENT_COUNTERS
    }


def has_port_registers(port: Registers) -> bool:
    """Return whether an appliance has a MAC with clocks of its own, whose losses it counts."""
    # Elsewhere the read is refused, and gives 0.
    return port.read(registers.port_address_of("port_identity")) == registers.PORT_IDENTITY


def port_counters(port: Registers) -> dict[str, int]:
    """Return what an appliance's MAC has lost, by name, if it has registers for that."""
    if not has_port_registers(port):
        return {}
    return {name: port.read(registers.port_address_of(name)) for name in registers.PORT_COUNTERS}


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int] | None:
    """Return by how much counters have grown; None if they began anew meanwhile, as by a reset.

    Those of 32 bits, of a board's management, its MAC and of a box, may have gone round; none of
    64 bits does within the life of a machine.
    """
    if any(after[name] < value for name, value in before.items() if not _is_short(name)):
        return None
    return {
        name: (value - before[name]) % (1 << 32 if _is_short(name) else 1 << 64)
        for name, value in after.items()
    }
