"""Options that the commands about boards share: where registers are, the key, times."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from afflux.group.settings import Settings
from afflux_drivers.device.key import key_of_file
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.pci import SYSFS

__all__ = ["add_key_file", "add_stand_ins", "checked", "key_of", "seconds"]

T = TypeVar("T")


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for argparse that says what `read` says is wrong, as `DeviceUrl.parse` does."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def seconds(most: float) -> Callable[[str], float]:
    """Return a type for argparse: more than 0 seconds, and at most so many."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= most:
            raise ValueError(f"{text!r} is not a number of seconds, up to {most:g}")
        return value

    return checked(read)


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
