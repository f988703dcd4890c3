"""The flash of a card through its own design: the QSPI controller of OpenNIC, over PCIe.

The card goes on working meanwhile, and starts from what was written at the next cold start. Needs
`xbflash.qspi` of AMD's XRT. Not run here: no card.
"""

import shutil
from collections.abc import Callable

from afflux_drivers.device.shells import OPEN_NIC
from afflux_drivers.flash.errors import FlashFailed, FlashRefused
from afflux_drivers.flash.image import Image
from afflux_drivers.flash.runner import Runner

__all__ = ["prepare_over_pcie"]

_PROGRAM = "xbflash.qspi"
_CONTROLLER = 0x340000
"""Offset of OpenNIC's QSPI controller in BAR 2."""

_LIMIT_S = 3600.0


def prepare_over_pcie(
    image: Image, card: str, *, runner: Runner, limit_s: float | None = None
) -> Callable[[], None]:
    """Return what writes a flash image through the card's running design.

    Raises:
        FlashRefused: It is not an .mcs file, whose addresses the tool takes as they are.
        FlashFailed: There is no tool.
    """
    if image.kind != "mcs":
        raise FlashRefused(
            f"{image.path}: over PCIe the flash takes .mcs files only; Vivado makes one of a .bit "
            "(write_cfgmem, at the offset of the user's partition)"
        )
    program = _PROGRAM if runner.dry else shutil.which(_PROGRAM)
    if program is None:
        raise FlashFailed(
            f"{_PROGRAM} is not on PATH: it comes with AMD's XRT (libxrt-utils-alveo)"
        )
    command = [
        program,
        "--primary", str(image.file),
        "--card", card,
        "--bar", str(OPEN_NIC.bar),
        "--bar-offset", f"{_CONTROLLER:#x}",
    ]  # fmt: skip

    def load() -> None:
        runner.run(command, limit_s=_LIMIT_S if limit_s is None else limit_s)

    return load
