"""The registers of a card, in a BAR that this host maps."""

import os
from pathlib import Path

from afflux_drivers.device.errors import DeviceFailed, DeviceGone
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.pci import COMMAND, COMMAND_MEMORY, SYSFS, PciFunction
from afflux_drivers.device.window import WINDOW_BYTES, RegisterWindow

__all__ = ["GONE", "open_bar"]

GONE = (
    "the card does not answer on PCIe. If its FPGA was loaded meanwhile, the host must find it "
    "again: `afflux flash` does that; or remove and rescan it, or reboot warm, as a cold start "
    "loads what is in the flash. If not, look for its link and for AER in dmesg"
)
"""The meaning of registers that read as ones, and the remedy."""

_NOBODY = 0xFFFF_FFFF


def open_bar(
    url: DeviceUrl, *, writable: bool, sysfs: Path = SYSFS, size: int = WINDOW_BYTES
) -> RegisterWindow:
    """Map registers of a card.

    Args:
        url: Of the scheme "pcie".
        writable: For writing too; without, nothing can be changed through it.
        sysfs: Where sysfs is mounted.
        size: Bytes of the window.

    Raises:
        DeviceFailed: There is no such function or BAR, its memory is not enabled, or this process
            may not map it.
        DeviceGone: The function does not answer.
    """
    function = PciFunction(sysfs, url.place)
    vendor, device = function.identifiers()
    if function.read_config(0, 4) == _NOBODY:
        raise DeviceGone(f"{url}: its configuration space reads as ones: {GONE}")
    if not function.read_config(COMMAND, 2) & COMMAND_MEMORY:
        raise DeviceFailed(
            f"{url}: memory space is not enabled in the command register of this function "
            f"({vendor:04x}:{device:04x}), so its BARs do not answer: "
            f"echo 1 > {function.folder}/enable"
        )
    found = function.bar_bytes(url.bar)
    if found < url.offset + size:
        raise DeviceFailed(
            f"{url}: BAR {url.bar} has {found} bytes of memory, the registers at "
            f"{url.offset:#x} need {url.offset + size}"
        )
    path = function.folder / f"resource{url.bar}"
    try:
        file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceFailed(
            f"{url}: cannot open {path}: {error.strerror}. Only root may map a BAR, and under a "
            "locked-down kernel (secure boot) nobody"
        ) from None
    try:
        return RegisterWindow(file, url.offset, name=str(url), writable=writable, size=size)
    except (OSError, ValueError) as error:
        raise DeviceFailed(f"{url}: cannot map {path}: {error}") from None
    finally:
        os.close(file)
