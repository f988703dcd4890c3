"""A device's description of itself, as values that JSON has."""

import ipaddress
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from afflux_drivers.device.counters import has_port_registers
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_hdl.contract import management, registers

__all__ = [
    "all_registers",
    "describe",
    "jobs",
    "local_addresses",
    "mac_text",
    "release_text",
    "time_text",
    "wait_until_idle",
]

_BUSY_TIMEOUT_S = 2.0
_MAC_MASK = (1 << 48) - 1
_FOR_EVER = 0xFFFF_FFFF
"""Of a DHCP lease (RFC 2131, 3.3)."""
_QUEUES = ("receive_level", "receive_peak", "delivery_level", "delivery_peak")


def mac_text(mac: int) -> str:
    """Return a MAC address as people write it."""
    return ":".join(f"{octet:02x}" for octet in mac.to_bytes(6, "big"))


def release_text(release: int) -> str:
    """Return a release as people write it."""
    return f"{release >> 16}.{release >> 8 & 0xFF}.{release & 0xFF}"


def time_text(seconds: int) -> str:
    """Return a build time as people write it."""
    if not seconds:
        return "unknown"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def describe(device: Device) -> dict[str, Any]:
    """Return what a device is and how it is set. Reads registers only, so it disturbs nobody."""

    def value(name: str) -> int:
        return device.read(registers.address_of(name))

    built, commit = value("build_time"), value("build_commit")
    text: dict[str, Any] = {
        "url": str(device.url),
        "kind": "node" if device.has_node else "engine",
        "release": release_text(value("build_version")),
        "protocol": value("protocol"),
        "build_time": built,
        "built": time_text(built),
        "commit": f"{commit:08x}" if commit else "unknown",
        "build": {
            name: value(f"build_{name}")
            for name in ("workers", "lanes", "jobs", "slots", "bus_bits")
        },
        "local": local_addresses(device),
        "output": _output(value("transmit_control"), value("transmit_state")),
        "queues": {name: value(name) for name in _QUEUES},
    }
    if device.has_node:
        text["node"] = {
            name: device.read(registers.node_address_of(name))
            for name in ("host_path", "build_host_buffer", "build_echo_buffer")
        }
    if device.appliance is not None:
        text["kind"] = "appliance"
        text["board"] = _board(device)
    return text


def _board(device: Device) -> dict[str, Any]:
    """Return the management's part of an appliance: its identity, and its address's source."""

    def value(name: str) -> int:
        return device.read(management.management_address_of(name))

    name = b"".join(value(f"board_name_{word}").to_bytes(4, "little") for word in range(4))
    by_dhcp = bool(value("board_flags") & 1)
    text: dict[str, Any] = {
        "name": name.rstrip(b"\0").decode("ascii", "replace"),
        "mac": mac_text((value("board_mac_high") << 32 | value("board_mac_low")) & _MAC_MASK),
        "address": str(ipaddress.IPv4Address(value("board_address"))),
        "controller": str(ipaddress.IPv4Address(value("board_controller"))),
        "port": value("board_port"),
        "version": value("management_version"),
        "uptime_s": value("board_uptime"),
        "dhcp": by_dhcp,
    }
    if by_dhcp:
        lease = value("board_lease")
        text["dhcp_server"] = str(ipaddress.IPv4Address(value("board_server")))
        text["lease_left_s"] = "for ever" if lease == _FOR_EVER else lease
    return text


def local_addresses(device: Device) -> dict[str, Any]:
    """Return the addresses that the engine listens at; `address` is None before one is set."""
    high, low, address, port = (
        device.read(registers.address_of(f"local_{name}"))
        for name in ("mac_high", "mac_low", "address", "port")
    )
    return {
        "mac": mac_text((high << 32 | low) & _MAC_MASK),
        "address": str(ipaddress.IPv4Address(address)) if address else None,
        "port": port,
    }


def _output(control: int, state: int) -> str:
    if control:
        return "discarded, by transmit_control"
    return "discarded, as the link is down" if state else "sent"


def jobs(device: Device) -> list[dict[str, Any]]:
    """Return the jobs that exist. Needs the device exclusively: it moves `job_index` for a while.

    Raises:
        DeviceFailed: A command is being carried out, and does not end.
    """
    index = registers.address_of("job_index")
    wait_until_idle(device)
    before = device.read(index)
    found = []
    try:
        for number in range(device.read(registers.address_of("build_jobs"))):
            device.write(index, number)
            if device.read(index) != number:
                raise DeviceFailed(
                    f"{device.url}: job_index cannot be written: it stays at {before}"
                )
            if device.read(registers.address_of("job_enabled")):
                joined = device.read(registers.address_of("job_parent_joined"))
                found.append({"job": number, "parent_joined": bool(joined)})
    finally:
        device.write(index, before)
    return found


def wait_until_idle(device: Device, timeout_s: float | None = None) -> None:
    """Wait until no command is carried out, for 2 s if no time is given.

    Raises:
        DeviceFailed: One does not end in time.
    """
    timeout_s = _BUSY_TIMEOUT_S if timeout_s is None else timeout_s
    deadline = time.monotonic() + timeout_s
    while device.read(registers.address_of("job_busy")):
        if time.monotonic() > deadline:
            raise DeviceFailed(
                f"{device.url}: a command of a job is not over after {timeout_s:g} s (job_busy). "
                "It waits until earlier results have been sent: is the network's side up?"
            )
        time.sleep(0.002)


def all_registers(device: Device) -> Iterator[tuple[registers.Register, int]]:
    """Yield every register that can be read, with its value."""
    table = [*registers.REGISTERS]
    if device.has_node:
        table += registers.NODE_REGISTERS
    if device.appliance is not None:
        if has_port_registers(device):
            table += registers.PORT_REGISTERS
        table += management.MANAGEMENT_REGISTERS
    for each in table:
        if each.access is not registers.Access.WRITE_ONLY:
            yield each, device.read(each.address)
