"""`afflux device reset`: ends all jobs of a device, or resets its engine as a whole."""

import argparse
from collections.abc import Callable

from afflux_drivers.device.configuration import reset_jobs, reset_user_logic
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_hdl.contract import registers

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--all",
        action="store_true",
        help="reset the engine itself: counters and addresses are gone too (without: jobs only)",
    )


def run(arguments: argparse.Namespace, open_it: Callable[[bool], Device]) -> int:
    """Reset it, and say what has become of it; return 0."""
    with open_it(True) as device:
        if not arguments.all:
            numbers = reset_jobs(device)
            ended = ", ".join(map(str, numbers))
            print(f"{device.url}: ended job(s) {ended}" if numbers else f"{device.url}: no jobs")
            return 0
        if device.appliance is not None:
            device.appliance.reset()
            print(f"{device.url}: reset; it has the addresses of its settings again")
            return 0
        if device.url.scheme != "pcie":
            raise DeviceFailed(f"{device.url}: nothing there resets the engine as a whole")
        reset_user_logic(device.url, sysfs=arguments.sysfs, locks=arguments.locks)
        left = device.read(registers.address_of("local_address"))
        if left:
            raise DeviceFailed(
                f"{device.url}: local_address is still {left:#010x} after the reset: the shell "
                "resets something else than this engine"
            )
        print(f"{device.url}: reset; its addresses must be set again")
    return 0
