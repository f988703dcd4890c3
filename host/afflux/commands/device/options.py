"""Options that the commands about boards share: the file of a key, and stand-ins for tests."""

import argparse
from pathlib import Path

from afflux.group.settings.variables import Settings
from afflux_drivers.device.key import key_of_file
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.pci import SYSFS

__all__ = ["add_key_file", "add_stand_ins", "key_of"]


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the file of a key."""
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="has the key of boards in the network (default: AFFLUX_DEVICE_KEY_FILE)",
    )


def add_stand_ins(parser: argparse.ArgumentParser) -> None:
    """Declare options for tests: folders that stand in for sysfs, and for that of the locks."""
    parser.add_argument("--sysfs", type=Path, default=SYSFS, help=argparse.SUPPRESS)
    parser.add_argument("--locks", type=Path, help=argparse.SUPPRESS)


def key_of(arguments: argparse.Namespace, url: DeviceUrl | None = None) -> bytes | None:
    """Return the key that options or environment name; None if none is named, or the URL has none.

    Raises:
        ValueError: The file has none.
    """
    if url is not None and url.scheme != "udp":
        return None
    file = arguments.key_file or Settings.from_environment().device_key_file
    return None if file is None else key_of_file(file)
