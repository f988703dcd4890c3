"""PCI functions as Linux shows them in sysfs: configuration space, BARs, the bridge above."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.device.errors import DeviceFailed

__all__ = ["COMMAND", "COMMAND_MEMORY", "SYSFS", "PciFunction", "functions"]

SYSFS = Path("/sys")

COMMAND = 0x04
"""Offset of the command register in configuration space (PCI 3.0, 6.2.2)."""

COMMAND_MEMORY = 0x0002
"""Its bit that lets the function answer in its memory BARs."""

_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RESOURCE_MEMORY = 0x200
"""Of the kernel's resource flags: memory, not ports (`include/linux/ioport.h`)."""


@dataclass(frozen=True)
class PciFunction:
    """One function of a PCI device.

    Attributes:
        sysfs: Where sysfs is mounted.
        name: Such as 0000:3b:00.0.
    """

    sysfs: Path
    name: str

    @property
    def folder(self) -> Path:
        """Its files."""
        return self.sysfs / "bus" / "pci" / "devices" / self.name

    @property
    def exists(self) -> bool:
        """Whether the kernel knows it now."""
        return self.folder.is_dir()

    def identifiers(self) -> tuple[int, int]:
        """Return vendor and device, as the kernel has read them when it found the function.

        Raises:
            DeviceFailed: There is no such function.
        """
        return self._number("vendor"), self._number("device")

    def read_config(self, offset: int, size: int) -> int:
        """Read a register of its configuration space; it has `size` bytes.

        Raises:
            DeviceFailed: It cannot be read.
        """
        try:
            with (self.folder / "config").open("rb", buffering=0) as file:
                found = os.pread(file.fileno(), size, offset)
        except OSError as error:
            raise self._failed(f"cannot read its configuration space: {error.strerror}") from None
        if len(found) < size:
            # The kernel shows all others than root the first 64 bytes.
            raise self._failed(
                f"its configuration space ends before {offset + size:#x}: only root sees all of it"
            )
        return int.from_bytes(found, "little")

    def write_config(self, offset: int, size: int, value: int) -> None:
        """Write a register of its configuration space; it has `size` bytes.

        Raises:
            DeviceFailed: It cannot be written.
        """
        try:
            # Unbuffered, so that the kernel gets one write of just this register.
            with (self.folder / "config").open("r+b", buffering=0) as file:
                written = os.pwrite(file.fileno(), value.to_bytes(size, "little"), offset)
        except OSError as error:
            raise self._failed(f"cannot write its configuration space: {error.strerror}") from None
        if written != size:
            raise self._failed(f"wrote {written} of {size} bytes at {offset:#x}")

    def bar_bytes(self, bar: int) -> int:
        """Return the size of a memory BAR; 0 if it has none of this number.

        Raises:
            DeviceFailed: There is no such function.
        """
        rows = self._text("resource").splitlines()
        try:
            first, last, flags = (int(word, 16) for word in rows[bar].split())
        except (IndexError, ValueError):
            return 0
        return last - first + 1 if last and flags & _RESOURCE_MEMORY else 0

    def bridge(self) -> "PciFunction | None":
        """Return the bridge above, through which this host reaches it; None at the root."""
        above = self.folder.resolve().parent.name
        return PciFunction(self.sysfs, above) if _NAME.fullmatch(above) else None

    def _number(self, attribute: str) -> int:
        text = self._text(attribute)
        try:
            return int(text, 0)
        except ValueError:
            raise self._failed(f"{attribute} is {text!r}") from None

    def _text(self, attribute: str) -> str:
        if not self.exists:
            raise self._failed(
                "there is no such PCIe function (lspci -D shows all; a card that was loaded since "
                "the host started is found by a rescan)"
            )
        try:
            return (self.folder / attribute).read_text().strip()
        except OSError as error:
            raise self._failed(f"cannot read {attribute}: {error.strerror}") from None

    def _failed(self, text: str) -> DeviceFailed:
        return DeviceFailed(f"{self.name}: {text}")


def functions(sysfs: Path = SYSFS) -> Iterator[PciFunction]:
    """Yield all functions that the kernel knows, by name."""
    folder = sysfs / "bus" / "pci" / "devices"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    yield from (PciFunction(sysfs, name) for name in names if _NAME.fullmatch(name))
