"""The command `afflux device`: its options, and which function does what they ask for."""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

from afflux.commands.device import configure, counters, listing, reset, show
from afflux.group.settings import Settings
from afflux_drivers.device.device import Device, open_device
from afflux_drivers.device.key import key_of_file
from afflux_drivers.device.location import EXPECTED, DeviceUrl
from afflux_drivers.device.pci import SYSFS
from afflux_drivers.errors import AffluxError
from afflux_hdl.contract.registers import WriteRefused

__all__ = ["add_arguments", "run"]

_SUBCOMMANDS: dict[
    str, tuple[Callable[..., int], Callable[[argparse.ArgumentParser], None], str]
] = {
    "show": (show.run, show.add_arguments, "what it is and how it is set"),
    "configure": (configure.run, configure.add_arguments, "set its addresses and switches"),
    "counters": (counters.run, counters.add_arguments, "what it has counted, once or again"),
    "reset": (reset.run, reset.add_arguments, "end its jobs, or reset its engine as a whole"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux device`."""
    actions = parser.add_subparsers(dest="action", required=True)
    listed = actions.add_parser("list", help="cards of this host, and boards in the network")
    listed.add_argument(
        "addresses", nargs="*", metavar="ADDRESS", help="boards in the network, as host[:port]"
    )
    listed.add_argument("--json", action="store_true", help="print JSON, for programs")
    _add_common(listed)
    for name, (_, add, text) in _SUBCOMMANDS.items():
        action = actions.add_parser(name, help=text)
        action.add_argument("url", type=_url, metavar="URL", help=EXPECTED)
        add(action)
        _add_common(action)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="has the key of boards in the network (default: AFFLUX_DEVICE_KEY_FILE)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="for each answer of a board in the network, repeats included (%(default)s)",
    )
    # For tests: folders that stand in for sysfs, and for that of the locks.
    parser.add_argument("--sysfs", type=Path, default=SYSFS, help=argparse.SUPPRESS)
    parser.add_argument("--locks", type=Path, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if a device cannot do what is asked for."""
    try:
        if arguments.action == "list":
            return listing.run(arguments, _key(arguments))
        return _SUBCOMMANDS[arguments.action][0](arguments, _opener(arguments))
    except (AffluxError, WriteRefused, ValueError, OSError) as error:
        print(f"afflux device {arguments.action}: {error}", file=sys.stderr)
        return 1


def _opener(arguments: argparse.Namespace) -> Callable[[bool], Device]:
    """Return a function that opens the device, to change something if it is given True."""

    def open_it(exclusive: bool) -> Device:
        url = arguments.url
        return open_device(
            url,
            key=_key(arguments) if url.scheme == "udp" else None,
            exclusive=exclusive,
            timeout_s=arguments.timeout,
            sysfs=arguments.sysfs,
            locks=arguments.locks,
        )

    return open_it


def _key(arguments: argparse.Namespace) -> bytes | None:
    file = arguments.key_file or Settings.from_environment().device_key_file
    return None if file is None else key_of_file(file)


def _url(text: str) -> DeviceUrl:
    try:
        return DeviceUrl.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, up to 3600")
    return value
