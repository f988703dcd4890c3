"""`afflux device configure`: sets the addresses and switches of a device."""

import argparse
from collections.abc import Callable

from afflux.commands.device.text import columns, flat
from afflux_drivers.device.configuration import (
    address_of_text,
    mac_of_text,
    refuse_while_jobs_exist,
    set_local,
    set_register,
)
from afflux_drivers.device.description import local_addresses
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.option_types import checked
from afflux_hdl.contract import registers

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--mac", type=checked(mac_of_text), help="MAC address, of one host")
    parser.add_argument("--address", type=checked(address_of_text), help="IPv4 address")
    parser.add_argument("--port", type=int, help="UDP port of job packets")
    parser.add_argument(
        "--host-path",
        choices=["on", "off"],
        help="frames pass to the host behind the board, and from it",
    )
    parser.add_argument(
        "--output",
        choices=["send", "discard"],
        help="what becomes of all that the engine would send",
    )
    parser.add_argument("--force", action="store_true", help="although jobs exist")


def run(arguments: argparse.Namespace, open_it: Callable[[bool], Device]) -> int:
    """Set what is asked for, print the addresses; return 0."""
    addresses = {name: getattr(arguments, name) for name in ("mac", "address", "port")}
    switches = arguments.host_path, arguments.output
    if all(value is None for value in (*addresses.values(), *switches)):
        raise ValueError("nothing to set: --mac, --address, --port, --host-path or --output")
    with open_it(True) as device:
        if arguments.host_path and not device.has_node:
            raise DeviceFailed(f"{device.url}: there is no node, so no path to a host")
        if arguments.host_path == "off" and device.appliance is not None:
            raise DeviceFailed(
                f"{device.url}: an appliance has its management where a host would be: without "
                "that path nobody could reach it until its power goes off"
            )
        # Ranks reach the control channel of a card's host by the one, and results by the other.
        cuts = arguments.host_path == "off" or arguments.output == "discard"
        if cuts and not arguments.force:
            refuse_while_jobs_exist(device)
        if any(value is not None for value in addresses.values()):
            set_local(device, **addresses, although_jobs_run=arguments.force)
        if arguments.host_path:
            where = registers.node_address_of("host_path")
            set_register(device, "host_path", where, arguments.host_path == "on")
        if arguments.output:
            where = registers.address_of("transmit_control")
            set_register(device, "transmit_control", where, arguments.output == "discard")
        print(columns(flat(local_addresses(device))))
    return 0
