"""Shells, which stand around the engine on cards: how to recognise one, where its registers are."""

from dataclasses import dataclass

from afflux_hdl.contract.box_registers import BAR2_OFFSET

__all__ = ["OPEN_NIC", "SHELLS", "Shell", "shell_of"]


@dataclass(frozen=True)
class Shell:
    """The part of a card's design between PCIe and the engine.

    Attributes:
        name: Its common name.
        vendor: PCIe vendor.
        devices: PCIe devices that it may be.
        bar: BAR with the registers.
        offset: Of the engine's registers in it, in bytes.
        reset: Offset in the BAR of its register that resets the engine when 1 is written, and of
            the one whose bit 0 reads 1 when that is over.
    """

    name: str
    vendor: int
    devices: frozenset[int]
    bar: int
    offset: int
    reset: tuple[int, int]


OPEN_NIC = Shell(
    name="OpenNIC",
    vendor=0x10EE,
    # Physical functions 0 to 3 of AMD's QDMA at 16 lanes of generation 3.
    devices=frozenset({0x903F, 0x913F, 0x923F, 0x933F}),
    bar=2,
    offset=BAR2_OFFSET,
    reset=(0x14, 0x18),
)

SHELLS = (OPEN_NIC,)
"""All that are recognised."""


def shell_of(vendor: int, device: int) -> Shell | None:
    """Return the shell whose PCIe function this is, if it is one."""
    found = (each for each in SHELLS if each.vendor == vendor and device in each.devices)
    return next(found, None)
