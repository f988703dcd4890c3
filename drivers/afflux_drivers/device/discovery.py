"""Which cards of this host have an engine of Afflux in a shell that we know."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.device.box import node_urls
from afflux_drivers.device.device import open_device
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, card_of
from afflux_drivers.device.pci import SYSFS, functions
from afflux_drivers.device.shells import Shell, shell_of
from afflux_hdl.contract import registers

__all__ = ["Found", "find_cards"]


@dataclass(frozen=True)
class Found:
    """A node of a PCIe function of a shell that we know.

    Attributes:
        url: Where the engine's registers would be.
        shell: The shell.
        build_time: When the gateware was generated, in seconds since 1970; None if there is no
            engine of ours, or nobody may look.
        reason: Why not; empty if there is one.
    """

    url: DeviceUrl
    shell: Shell
    build_time: int | None
    reason: str = ""


def find_cards(sysfs: Path = SYSFS, locks: Path | None = None) -> Iterator[Found]:
    """Yield all functions with the identifiers of a shell that we know, and each of their nodes.

    Identifiers alone say little, as every design around AMD's QDMA may have these. So identity is
    read from the BAR, and nothing is written.
    """
    for function in functions(sysfs):
        try:
            shell = shell_of(*function.identifiers())
        except DeviceFailed:
            # It has gone meanwhile.
            continue
        if shell is None:
            continue
        first = DeviceUrl("pcie", function.name, bar=shell.bar, offset=shell.offset)
        try:
            # Nobody looks at a card that is being loaded.
            lock = DeviceLock(card_of(first), shared=True, directory=locks)
        except DeviceFailed as error:
            yield Found(first, shell, None, str(error))
            continue
        with contextlib.closing(lock):
            urls = node_urls(first, sysfs)
        for url in urls:
            try:
                with open_device(url, exclusive=False, sysfs=sysfs, locks=locks) as device:
                    built = device.read(registers.address_of("build_time"))
                yield Found(url, shell, built)
            except DeviceFailed as error:
                yield Found(url, shell, None, str(error))
