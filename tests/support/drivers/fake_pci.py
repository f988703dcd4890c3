"""A folder that stands in for sysfs: PCI functions with configuration space, BARs, a bridge above.

A write to an attribute lands in its file, so a test reads there what the kernel would have got.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.device.shells import OPEN_NIC
from afflux_hdl.contract import box_registers, registers

__all__ = ["BAR_BYTES", "BRIDGE", "CARD", "FakePci", "register_image"]

CARD = "0000:3b:00.0"
BRIDGE = "0000:3a:00.0"
BAR_BYTES = 0x40_0000
CONFIG_BYTES = 4096

_MEMORY_FLAGS = 0x40200
_EXPRESS_CAPABILITY, _POWER_CAPABILITY = 0x10, 0x01


def register_image(values: dict[str, int] | None = None) -> bytes:
    """Return 4 KiB as an engine with a node shows them; `values` are further registers by name."""
    image = bytearray(0x1000)
    everything = {
        "identity": registers.IDENTITY,
        "protocol": 2,
        "build_workers": 64,
        "build_lanes": 16,
        "build_jobs": 8,
        "build_slots": 512,
        "build_bus_bits": 512,
        "build_version": registers.RELEASE,
        "build_time": 1_790_000_000,
        "build_commit": 0x0C0FFEE1,
        "node_identity": registers.NODE_IDENTITY,
        "host_path": 1,
    } | (values or {})
    places = {each.name: each.address for each in registers.REGISTERS + registers.NODE_REGISTERS}
    for name, value in everything.items():
        image[places[name] : places[name] + 4] = value.to_bytes(4, "little")
    return bytes(image)


@dataclass
class FakePci:
    """One card below one bridge.

    Attributes:
        root: Where "sysfs" is.
        name, bridge: Of card and bridge.
    """

    root: Path
    name: str = CARD
    bridge: str = BRIDGE

    def __post_init__(self) -> None:
        self._add(self.bridge, self.root / "devices" / "pci0000:3a", 0x8086, 0x2030)
        self._add(
            self.name,
            self.root / "devices" / "pci0000:3a" / self.bridge,
            OPEN_NIC.vendor,
            min(OPEN_NIC.devices),
        )
        (self.root / "bus" / "pci" / "rescan").touch()
        rows = ["0x0 0x0 0x0"] * 7
        rows[OPEN_NIC.bar] = (
            f"{0xE0000000:#018x} {0xE0000000 + BAR_BYTES - 1:#018x} {_MEMORY_FLAGS:#x}"
        )
        (self.folder(self.name) / "resource").write_text("\n".join(rows) + "\n")
        self.set_registers(register_image())

    def _add(self, name: str, above: Path, vendor: int, device: int) -> None:
        folder = above / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text(f"{device:#06x}\n")
        for attribute in ("remove", "rescan", "enable"):
            (folder / attribute).touch()
        config = bytearray(CONFIG_BYTES)
        config[0:4] = (device << 16 | vendor).to_bytes(4, "little")
        config[4:6] = (0x0547).to_bytes(2, "little")  # memory, bus master, parity, SERR#
        config[6:8] = (0x0010).to_bytes(2, "little")  # there is a list of capabilities
        config[0x34] = 0x40
        config[0x40:0x44] = bytes([_POWER_CAPABILITY, 0x60, 0x03, 0x00])
        config[0x60:0x64] = bytes([_EXPRESS_CAPABILITY, 0x00, 0x42, 0x01])
        config[0x68:0x6A] = (0x294F).to_bytes(2, "little")  # all four kinds of errors reported
        (folder / "config").write_bytes(config)
        links = self.root / "bus" / "pci" / "devices"
        links.mkdir(parents=True, exist_ok=True)
        (links / name).symlink_to(os.path.relpath(folder, links))

    def add_function(self, name: str) -> None:
        """Add another function below the same bridge, of the same kind."""
        above = self.root / "devices" / "pci0000:3a" / self.bridge
        self._add(name, above, OPEN_NIC.vendor, 0x913F)

    def folder(self, name: str) -> Path:
        """Return the folder of a function."""
        return self.root / "bus" / "pci" / "devices" / name

    @property
    def bar(self) -> Path:
        """The file that stands in for the BAR with the registers."""
        return self.folder(self.name) / f"resource{OPEN_NIC.bar}"

    def set_registers(self, image: bytes, offset: int = OPEN_NIC.offset) -> None:
        """Write what the BAR has, and zeroes around it; sparse."""
        with self.bar.open("wb") as file:
            file.truncate(BAR_BYTES)
            file.seek(offset)
            file.write(image)

    def add_box(self, *, ports: int = 2, nodes: int = 2, functions: int = 1) -> None:
        """Put a box around the nodes: its page, and as many nodes as it says."""
        page = bytearray(box_registers.PAGE_BYTES)
        values = {
            "box_identity": box_registers.BOX_IDENTITY,
            "box_ports": ports,
            "box_nodes": nodes,
            "box_functions": functions,
        }
        for name, value in values.items():
            place = box_registers.BOX_REGISTERS[name]
            page[place : place + 4] = value.to_bytes(4, "little")
        self.write_bar(OPEN_NIC.offset + box_registers.BOX_BASE, bytes(page))
        for node in range(1, nodes):
            self.write_bar(OPEN_NIC.offset + box_registers.node_base(node), register_image())

    def write_bar(self, offset: int, content: bytes) -> None:
        """Change what the BAR has."""
        with self.bar.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def kill(self) -> None:
        """Let all registers read as ones, as those of a card that does not answer."""
        self.set_registers(b"\xff" * 0x1000)

    def config(self, name: str) -> bytes:
        """Return a configuration space."""
        return (self.folder(name) / "config").read_bytes()

    def set_config(self, name: str, offset: int, value: bytes) -> None:
        """Change a configuration space."""
        with (self.folder(name) / "config").open("r+b") as file:
            file.seek(offset)
            file.write(value)
