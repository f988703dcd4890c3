"""`afflux device show`: what a device is and how it is set."""

import argparse
import json
from collections.abc import Callable

from afflux.commands.device.text import columns, flat
from afflux_drivers.device.box import describe_box
from afflux_drivers.device.description import all_registers, describe, jobs
from afflux_drivers.device.device import Device

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--registers", action="store_true", help="every register that can be read, as it is"
    )
    parser.add_argument(
        "--jobs",
        action="store_true",
        help="which jobs exist; only while no `afflux serve` runs on the device, as this moves its "
        "job_index",
    )


def run(arguments: argparse.Namespace, open_it: Callable[[bool], Device]) -> int:
    """Print it; return 0."""
    with open_it(arguments.jobs) as device:
        report = describe(device)
        if (box := describe_box(device, arguments.sysfs)) is not None:
            report["box"] = box
        if arguments.jobs:
            report["jobs"] = jobs(device)
        if arguments.registers:
            report["registers"] = {
                each.name: {"address": each.address, "value": value}
                for each, value in all_registers(device)
            }
    if arguments.json:
        print(json.dumps(report, indent=1))
        return 0
    found = report.pop("registers", {})
    print(columns(flat(report)))
    if found:
        rows = (
            (f"{each['address']:#05x}", name, f"{each['value']:#010x}")
            for name, each in found.items()
        )
        print(f"\n{columns(rows)}")
    return 0
