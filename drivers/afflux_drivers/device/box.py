"""The box around the nodes of a card in the OpenNIC shell: how many it has, and what it counts.

Its page of registers lies in the shell's window beside those of the nodes
(`afflux_hdl.contract.box_registers`).
"""

from pathlib import Path
from typing import Any

from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.pci import SYSFS
from afflux_drivers.device.pcie import open_bar
from afflux_drivers.device.shells import OPEN_NIC
from afflux_hdl.contract import box_registers as contract

__all__ = ["box_counters", "describe_box", "node_urls"]

_MOST_NODES = 16
"""Of nodes, ports and streams: more than any card has, should the page be something else."""


def _page(url: DeviceUrl) -> DeviceUrl | None:
    """Return where the box of a device has its page; None where there can be none."""
    first, last = OPEN_NIC.offset, 2 * OPEN_NIC.offset
    if url.scheme != "pcie" or url.bar != OPEN_NIC.bar or not first <= url.offset < last:
        return None
    return DeviceUrl("pcie", url.place, bar=url.bar, offset=first + contract.BOX_BASE)


def _read(url: DeviceUrl, sysfs: Path, addresses: list[int]) -> list[int] | None:
    """Return registers of the page, or None if there is no box. Writes nothing."""
    page = _page(url)
    if page is None:
        return None
    try:
        window = open_bar(page, writable=False, sysfs=sysfs)
    except DeviceFailed:
        # A BAR that ends before, as around an engine without a box.
        return None
    try:
        if window.read(contract.BOX_REGISTERS["box_identity"]) != contract.BOX_IDENTITY:
            return None
        return [window.read(each) for each in addresses]
    finally:
        window.close()


def describe_box(device: Device, sysfs: Path = SYSFS) -> dict[str, Any] | None:
    """Return how many ports, nodes and streams a device's box has; None if it is in none."""
    names = [name for name in contract.BOX_REGISTERS if name != "box_identity"]
    found = _read(device.url, sysfs, [contract.BOX_REGISTERS[name] for name in names])
    if found is None:
        return None
    return {name.removeprefix("box_"): value for name, value in zip(names, found, strict=True)}


def node_urls(url: DeviceUrl, sysfs: Path = SYSFS) -> list[DeviceUrl]:
    """Return the URLs of all nodes of a card, the first alone if it has no box."""
    found = _read(url, sysfs, [contract.BOX_REGISTERS["box_nodes"]])
    nodes = range(min(found[0], _MOST_NODES)) if found else range(1)
    return [
        DeviceUrl("pcie", url.place, bar=url.bar, offset=OPEN_NIC.offset + contract.node_base(n))
        for n in nodes
    ] or [url]


def box_counters(device: Device, sysfs: Path = SYSFS) -> dict[str, int]:
    """Return the counters of a device's box, `port0_tx_frames` and such; none if it is in none."""
    box = describe_box(device, sysfs)
    if box is None:
        return {}
    places = {
        f"{kind}{index}_{counter.name}": contract.box_counter_address(
            counter.name, index, ports=box["ports"]
        )
        - contract.BOX_BASE
        for kind, count, table in (
            ("port", box["ports"], contract.PORT_COUNTERS),
            ("host", box["functions"], contract.HOST_COUNTERS),
        )
        for index in range(min(count, _MOST_NODES))
        for counter in table
    }
    found = _read(device.url, sysfs, list(places.values()))
    return {} if found is None else dict(zip(places, found, strict=True))
