"""The command `afflux flash`: loads a bitstream into a board, and looks at the board afterwards."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from afflux.commands.device.options import add_key_file, add_stand_ins, key_of
from afflux_drivers.device.device import Device, open_device
from afflux_drivers.device.location import EXPECTED, DeviceUrl
from afflux_drivers.errors import AffluxError
from afflux_drivers.flash.boards import BOARDS, board_of
from afflux_drivers.flash.flash import Order, flash
from afflux_drivers.flash.openfpgaloader import Cable
from afflux_drivers.flash.runner import Runner
from afflux_drivers.option_types import checked, seconds

__all__ = ["add_arguments", "run"]

_DAY_S = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux flash`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the bitstream: .bit, .svf or .mcs")
    parser.add_argument("--board", required=True, help=", ".join(BOARDS))
    parser.add_argument(
        "--permanent",
        action="store_true",
        help="write it to the flash, from which the FPGA starts (without: into the FPGA, until it "
        "is switched off)",
    )
    parser.add_argument("--partition", metavar="NAME", help="of the flash, where there are several")
    parser.add_argument(
        "--offset",
        type=lambda text: int(text, 0),
        help="where in the flash, in bytes, if not where the partition begins",
    )
    parser.add_argument("--dry-run", action="store_true", help="print all that would be done")
    card = parser.add_mutually_exclusive_group()
    card.add_argument("--card", type=_card, metavar="0000:3b:00.0", help="its PCIe function here")
    card.add_argument("--no-card", action="store_true", help="the PCIe card is not in this host")
    parser.add_argument(
        "--over-pcie",
        action="store_true",
        help="write the flash of an Alveo card by xbflash.qspi, through the design that runs in it",
    )
    parser.add_argument("--cable", default="", help="JTAG adapter, as openFPGALoader calls it")
    parser.add_argument("--serial", default="", help="serial number of its FTDI chip")
    parser.add_argument("--hw-device", help="FPGA, as Vivado's hardware manager calls it")
    parser.add_argument("--target", help="JTAG target, as Vivado's hardware manager calls it")
    parser.add_argument(
        "--device",
        type=checked(DeviceUrl.parse),
        metavar="URL",
        help=f"where its registers are afterwards: {EXPECTED} (an Alveo card's: those of --card)",
    )
    add_key_file(parser)
    parser.add_argument(
        "--timeout", type=seconds(_DAY_S), metavar="SECONDS", help="for each program that is run"
    )
    parser.add_argument(
        "--wait",
        type=seconds(_DAY_S),
        default=30.0,
        metavar="SECONDS",
        help="until it must answer afterwards (%(default)s)",
    )
    add_stand_ins(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the board; return 0, or 1 if that was refused or has failed."""
    order = Order(
        board=arguments.board,
        file=arguments.file,
        permanent=arguments.permanent,
        partition=arguments.partition,
        offset=arguments.offset,
        card=arguments.card,
        no_card=arguments.no_card,
        over_pcie=arguments.over_pcie,
        cable=Cable(arguments.cable, arguments.serial),
        hw_device=arguments.hw_device,
        target=arguments.target,
        limit_s=arguments.timeout,
        wait_s=arguments.wait,
        device=arguments.device,
    )
    try:
        flash(
            order,
            runner=Runner(dry=arguments.dry_run),
            open_it=_opener(arguments),
            sysfs=arguments.sysfs,
            locks=arguments.locks,
        )
    except BrokenPipeError:
        # The reader of a dry run wants no more, as `head` does.
        raise
    except (AffluxError, ValueError, OSError) as error:
        print(f"afflux flash: {error}", file=sys.stderr)
        return 1
    return 0


def _opener(arguments: argparse.Namespace) -> Callable[[], Device] | None:
    """Return what opens the board's registers afterwards; None if nobody says where they are."""
    url: DeviceUrl | None = arguments.device
    if url is None and arguments.card is not None and board_of(arguments.board).comes_back:
        url = DeviceUrl.parse(f"pcie://{arguments.card}")
    if url is None:
        return None
    where, key = url, key_of(arguments, url)
    if where.scheme == "udp" and key is None:
        raise ValueError(f"{where}: --key-file, or AFFLUX_DEVICE_KEY_FILE, must name its key")

    def open_it() -> Device:
        return open_device(
            where, key=key, exclusive=False, sysfs=arguments.sysfs, locks=arguments.locks
        )

    return open_it


def _card(text: str) -> str:
    try:
        return DeviceUrl.parse(f"pcie://{text}").place
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a PCIe function such as 0000:3b:00.0"
        ) from None
