"""Counters, read whole although each takes two words, and whoever else reads meanwhile."""

from collections.abc import Mapping
from typing import Protocol

from afflux_hdl.contract import management, registers

__all__ = [
    "Readable",
    "difference",
    "engine_counters",
    "management_counters",
    "node_counters",
    "read_counter",
]

_SHORT = frozenset(each.name for each in management.MANAGEMENT_COUNTERS)
"""Counters of 32 bits."""


class Readable(Protocol):
    """Registers that can be read."""

    def read(self, address: int) -> int:
        """Read a 32-bit register."""


def read_counter(port: Readable, address: int) -> int:
    """Return the 64 bits of a counter that grows.

    The lower word of the fastest counter takes a quarter of a second to go round, so this repeats
    once at most.
    """
    high = port.read(address + 4)
    while True:
        low, before = port.read(address), high
        high = port.read(address + 4)
        if high == before:
            return high << 32 | low


def engine_counters(port: Readable) -> dict[str, int]:
    """Return the counters of an engine, by name."""
    return {
        each.name: read_counter(port, registers.counter_address(each.name))
        for each in registers.COUNTERS
    }


def node_counters(port: Readable) -> dict[str, int]:
    """Return the counters of a node, by name, each name after `node_`."""
    return {
        f"node_{each.name}": read_counter(port, registers.node_counter_address(each.name))
        for each in registers.NODE_COUNTERS
    }


def management_counters(port: Readable) -> dict[str, int]:
    """Return the counters of an appliance's management, by name."""
    return {
        each.name: port.read(management.management_counter_address(each.name))
        for each in management.MANAGEMENT_COUNTERS
    }


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int] | None:
    """Return by how much counters have grown; None if they began anew meanwhile, as by a reset.

    Those of 32 bits may have gone round; none of 64 bits does within the life of a machine.
    """
    if any(after[name] < value for name, value in before.items() if name not in _SHORT):
        return None
    return {
        name: (value - before[name]) % (1 << 32 if name in _SHORT else 1 << 64)
        for name, value in after.items()
    }
