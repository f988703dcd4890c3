"""`afflux device counters`: what a device has counted, once, or by how much it grows."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from afflux.commands.device.text import columns
from afflux_drivers.device.box import box_counters
from afflux_drivers.device.counters import (
    difference,
    engine_counters,
    management_counters,
    node_counters,
    port_counters,
)
from afflux_drivers.device.device import Device
from afflux_drivers.option_types import whole

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON, a line each time")
    parser.add_argument(
        "--all", action="store_true", help="also those that are 0, or have not grown"
    )
    parser.add_argument(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="print by how much they have grown, again and again, until Ctrl-C",
    )
    parser.add_argument(
        "--times", type=whole(1), metavar="N", help="with --watch: end after N times"
    )


def run(arguments: argparse.Namespace, open_it: Callable[[bool], Device]) -> int:
    """Print them; return 0."""
    if arguments.watch is None:
        if arguments.times is not None:
            raise ValueError("--times goes with --watch")
        with open_it(False) as device:
            found = _read(device, arguments.sysfs)
        _print(arguments, found)
        return 0
    if not 0 < arguments.watch <= 3600:
        raise ValueError(f"--watch {arguments.watch:g} is not a number of seconds, up to 3600")
    try:
        with open_it(False) as device:
            _watch(arguments, device)
    except KeyboardInterrupt:
        print()
    return 0


def _read(device: Device, sysfs: Path) -> dict[str, int]:
    found = engine_counters(device)
    if device.has_node:
        found |= node_counters(device)
    if device.appliance is not None:
        found |= management_counters(device) | port_counters(device)
    return found | box_counters(device, sysfs)


def _watch(arguments: argparse.Namespace, device: Device) -> None:
    before, start = _read(device, arguments.sysfs), time.monotonic()
    due, done = start, 0
    while arguments.times is None or done < arguments.times:
        # Not in step for ever: a process that was stopped for an hour does not read all that once.
        due = max(due + arguments.watch, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        after, now = _read(device, arguments.sysfs), time.monotonic()
        grown = difference(before, after)
        if grown is None:
            print(f"{device.url}: counters have begun anew: a reset", flush=True)
        else:
            _print(arguments, grown, now - start)
        before, start, done = after, now, done + 1


def _print(
    arguments: argparse.Namespace, found: dict[str, int], seconds: float | None = None
) -> None:
    shown = {name: value for name, value in found.items() if value or arguments.all}
    if arguments.json:
        timed = {} if seconds is None else {"seconds": round(seconds, 6)}
        print(json.dumps(timed | shown), flush=True)
    elif seconds is None:
        print(columns((name, str(value)) for name, value in shown.items()) or "all are 0")
    else:
        print(f"in {seconds:.3f} s", flush=True)
        rows = [
            (f"  {name}", f"+{value}", f"{value / seconds:.4g}/s") for name, value in shown.items()
        ]
        print(columns(rows) or "  nothing", flush=True)
