"""The command `afflux device`: its options, and which function does what they ask for."""

import argparse
import sys
from collections.abc import Callable

from afflux.commands.device import configure, counters, listing, reset, show
from afflux.commands.device.options import add_key_file, add_stand_ins, key_of
from afflux_drivers.device.device import Device, open_device
from afflux_drivers.device.location import EXPECTED, DeviceUrl
from afflux_drivers.errors import AffluxError
from afflux_drivers.option_types import checked, seconds
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
        action.add_argument("url", type=checked(DeviceUrl.parse), metavar="URL", help=EXPECTED)
        add(action)
        _add_common(action)
    parser.set_defaults(run=run)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_key_file(parser)
    parser.add_argument(
        "--timeout",
        type=seconds(3600),
        default=2.0,
        metavar="SECONDS",
        help="for each answer of a board in the network, repeats included (%(default)s)",
    )
    add_stand_ins(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if a device cannot do what is asked for."""
    try:
        if arguments.action == "list":
            return listing.run(arguments, key_of(arguments))
        return _SUBCOMMANDS[arguments.action][0](arguments, _opener(arguments))
    except BrokenPipeError:
        # A reader wants no more, as `head` does: that is not an error of a device.
        raise
    except (AffluxError, WriteRefused, ValueError, OSError) as error:
        print(f"afflux device {arguments.action}: {error}", file=sys.stderr)
        return 1


def _opener(arguments: argparse.Namespace) -> Callable[[bool], Device]:
    """Return a function that opens the device, to change something if it is given True."""

    def open_it(exclusive: bool) -> Device:
        url = arguments.url
        return open_device(
            url,
            key=key_of(arguments, url),
            exclusive=exclusive,
            timeout_s=arguments.timeout,
            sysfs=arguments.sysfs,
            locks=arguments.locks,
        )

    return open_it
