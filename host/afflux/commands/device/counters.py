"""`afflux device counters`: what a device has counted, once, or by how much it grows."""

import argparse
from collections.abc import Callable
from pathlib import Path

from afflux.commands.device.watching import add_watch_arguments, show_counters
from afflux_drivers.device.box import box_counters
from afflux_drivers.device.counters import (
    engine_counters,
    management_counters,
    node_counters,
    port_counters,
)
from afflux_drivers.device.device import Device

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_watch_arguments(parser)
    parser.add_argument(
        "--all", action="store_true", help="also those that are 0, or have not grown"
    )


def run(arguments: argparse.Namespace, open_it: Callable[[bool], Device]) -> int:
    """Print them; return 0."""
    if arguments.watch is None and arguments.times is not None:
        arguments.parser.error("--times goes with --watch")
    with open_it(False) as device:
        show_counters(
            arguments,
            str(device.url),
            lambda: _read(device, arguments.sysfs),
            zeros=arguments.all,
        )
    return 0


def _read(device: Device, sysfs: Path) -> dict[str, int]:
    found = engine_counters(device)
    if device.has_node:
        found |= node_counters(device)
    if device.appliance is not None:
        found |= management_counters(device) | port_counters(device)
    return found | box_counters(device, sysfs)
