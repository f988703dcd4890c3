"""Loads a board: looks at the file, lets the host let go of the card, loads, and looks again."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from afflux_drivers.device.device import Device
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, card_of, registers_of
from afflux_drivers.device.pci import SYSFS
from afflux_drivers.flash.boards import FlashBoard, board_of
from afflux_drivers.flash.card import off_the_bus
from afflux_drivers.flash.checks import check_image, check_place, read_image
from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.identity import check_identity
from afflux_drivers.flash.image import Image
from afflux_drivers.flash.interruption import Signals
from afflux_drivers.flash.openfpgaloader import Cable, prepare_openfpgaloader
from afflux_drivers.flash.qspi import prepare_over_pcie
from afflux_drivers.flash.report import find_report
from afflux_drivers.flash.runner import Runner
from afflux_drivers.flash.vivado import prepare_vivado

__all__ = ["Order", "flash"]


@dataclass(frozen=True)
class Order:
    """An order to load an image: the image, and the way.

    Attributes:
        board: Name of the board.
        file: The bitstream.
        permanent: Into the flash; otherwise into the FPGA, until it is switched off.
        partition: Of the flash; None is the usual one.
        offset: In the flash; None is the partition's beginning.
        card: PCIe function of a card in this host; None if it is in none, or not on PCIe.
        no_card: It is a PCIe card, but not one of this host's.
        over_pcie: Write the flash through the card's running design, not over JTAG.
        cable: JTAG adapter for openFPGALoader.
        hw_device, target: Names in Vivado's hardware manager, if the usual ones do not do.
        limit_s: Seconds for each program; None for the usual ones.
        wait_s: Seconds until the board must answer afterwards.
        device: Where its registers are; None if nobody has said it.
    """

    board: str
    file: Path
    permanent: bool = False
    partition: str | None = None
    offset: int | None = None
    card: str | None = None
    no_card: bool = False
    over_pcie: bool = False
    cable: Cable = field(default_factory=Cable)
    hw_device: str | None = None
    target: str | None = None
    limit_s: float | None = None
    wait_s: float = 30.0
    device: DeviceUrl | None = None


def flash(
    order: Order,
    *,
    runner: Runner,
    open_it: Callable[[], Device] | None = None,
    sysfs: Path = SYSFS,
    locks: Path | None = None,
) -> None:
    """Load a board.

    Args:
        order: The image and the way.
        runner: Carries it out, or only shows it.
        open_it: Opens the board's registers afterwards; None does not look.
        sysfs: Where sysfs is mounted.
        locks: Folder of the lock files; None for the one of this host.

    Raises:
        FlashRefused: It could harm the board, or cannot be right; nothing was touched.
        FlashFailed: It did not work.
        DeviceBusy: The card, the adapter or the registers at `Order.device` are in use.
    """
    board = board_of(order.board)
    image = read_image(board, order.file)
    report = find_report(order.file, image.digest)
    check_image(board, image, report)
    offset = None
    if order.permanent:
        offset = check_place(board, image, order.partition, order.offset)
    elif order.partition is not None or order.offset is not None:
        raise FlashRefused("--partition and --offset are of the flash: they go with --permanent")
    elif image.kind == "mcs":
        raise FlashRefused(f"{image.path} is an image of a flash: --permanent, or give the .bit")
    _check_ways(order, board.on_pcie, board.tool)
    part = image.part or (report.part if report else "") or board.part
    until = "" if order.permanent else ", until it is switched off"
    where = "FPGA" if offset is None else "flash"
    start = "" if offset is None else f", from {offset:#010x} on"
    runner.say(f"{image.path} ({part}) goes into the {where} of {board.name}{start}{until}")
    with Signals() as signals:
        _load(order, board, image, offset, runner, signals, sysfs, locks)
    if order.over_pcie:
        runner.say("the card starts from it at the next cold start; until then the old design runs")
    elif open_it is None:
        runner.say("the running image was not checked: name its registers by --device")
    elif runner.dry:
        runner.say("(identity, release and build time are read, and compared with the report)")
    else:
        runner.say(check_identity(open_it, report, wait_s=order.wait_s))


def _load(
    order: Order,
    board: FlashBoard,
    image: Image,
    offset: int | None,
    runner: Runner,
    signals: Signals,
    sysfs: Path,
    locks: Path | None,
) -> None:
    with contextlib.ExitStack() as stack:
        if not runner.dry:
            for name in _locked(order):
                lock = DeviceLock(name, directory=locks)
                stack.callback(lock.close)
                runner.locks.append(lock.file)
                stack.callback(runner.locks.remove, lock.file)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afflux-flash-")))
        if not runner.dry:
            image = image.copied(folder)
        try:
            signals.allow()
            # All that can be wrong beside the card itself is found before the host lets go of it.
            load = _prepare(order, board, image, offset, folder, runner)
            away: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if order.card is not None and not order.over_pcie:
                away = off_the_bus(
                    order.card, comes_back=board.comes_back, sysfs=sysfs, runner=runner
                )
            with away:
                load()
        finally:
            # The copy has the board's key in it: it goes, whatever comes now.
            signals.hold()


def _locked(order: Order) -> Iterator[str]:
    """Yield what nobody else on this host may use while the board is loaded."""
    if order.card is not None:
        yield card_of(DeviceUrl("pcie", order.card))
    if not order.over_pcie:
        adapter = order.cable.serial or order.target or "of any serial number"
        yield f"the JTAG adapter {adapter}"
    # Its controller would lose its jobs. A card has been seen to.
    if order.device is not None and order.device.scheme != "pcie":
        yield registers_of(order.device)


def _prepare(
    order: Order,
    board: FlashBoard,
    image: Image,
    offset: int | None,
    folder: Path,
    runner: Runner,
) -> Callable[[], None]:
    """Return what loads the board, after all that can be looked at before."""
    if order.over_pcie:
        assert order.card is not None, "_check_ways has seen to it"
        return prepare_over_pcie(image, order.card, runner=runner, limit_s=order.limit_s)
    if board.tool == "vivado":
        return prepare_vivado(
            board,
            image,
            offset=offset,
            folder=folder,
            runner=runner,
            hw_device=order.hw_device,
            target=order.target,
            limit_s=order.limit_s,
        )
    return prepare_openfpgaloader(
        board,
        image,
        offset=offset,
        cable=order.cable,
        runner=runner,
        limit_s=order.limit_s,
    )


def _check_ways(order: Order, on_pcie: bool, tool: str) -> None:
    if not on_pcie and (order.card is not None or order.no_card):
        raise FlashRefused(f"{order.board} is not a PCIe card")
    if on_pcie and (order.card is None) != order.no_card:
        raise FlashRefused(
            f"{order.board} is a PCIe card, and a host from which a card disappears may stop: name "
            "it with --card 0000:3b:00.0 (`afflux device list`, lspci -D), or say --no-card if it "
            "is not in this host"
        )
    if order.over_pcie and (tool != "vivado" or not order.permanent or order.card is None):
        raise FlashRefused(
            "--over-pcie writes the flash of an Alveo card with OpenNIC: it goes with --permanent "
            "and --card"
        )
