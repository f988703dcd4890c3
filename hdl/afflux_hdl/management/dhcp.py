"""The DHCP client of the management's program (`docs/management.md`, section 6)."""

from afflux_hdl.management.instructions import Assembler

__all__ = ["add_dhcp", "start_dhcp"]


def start_dhcp(p: Assembler) -> None:
    """Begin to look for an address."""
    raise NotImplementedError("the DHCP client")


def add_dhcp(p: Assembler) -> None:
    """Add the client's subroutines."""
    raise NotImplementedError("the DHCP client")
