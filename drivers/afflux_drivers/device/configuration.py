"""Sets what an operator sets of a device: addresses, the way to its host, its output; resets it."""

import contextlib
import ipaddress
import re
import time
from collections.abc import Sequence
from pathlib import Path

from afflux_drivers.device.box import node_urls
from afflux_drivers.device.description import jobs, wait_until_idle
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, registers_of
from afflux_drivers.device.pci import SYSFS, PciFunction
from afflux_drivers.device.pcie import open_bar
from afflux_drivers.device.shells import OPEN_NIC, Shell, shell_of
from afflux_hdl.contract import management, registers

__all__ = [
    "address_of_text",
    "mac_of_text",
    "refuse_while_jobs_exist",
    "reset_jobs",
    "reset_user_logic",
    "set_local",
    "set_register",
]

_MAC = re.compile(r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}", re.IGNORECASE)
_RESET_TIMEOUT_S = 2.0
_DESTROY_TIMEOUT_S = 5.0
_DHCP_CLIENT_PORT = 68


def mac_of_text(text: str) -> int:
    """Return the MAC address of one host.

    Raises:
        ValueError: It is none, or a group's.
    """
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address such as 02:af:f1:00:00:09")
    mac = int(re.sub("[:-]", "", text), 16)
    if mac >> 40 & 1:
        raise ValueError(f"{text} is the MAC address of a group, not of one host")
    if not mac:
        raise ValueError(f"{text} is nobody's MAC address")
    return mac


def address_of_text(text: str) -> int:
    """Return the IPv4 address of one host, as registers have it.

    Raises:
        ValueError: It is none, or one that no host in a network has.
    """
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv4 address such as 10.0.0.9") from None
    first = address.packed[0]
    if first in (0, 127) or first >= 224:
        raise ValueError(f"{text} is not an address that one host of a network can have")
    return int(address)


def set_register(device: Device, name: str, address: int, value: int) -> None:
    """Write a register and read it back, as nobody reports a write over PCIe that was refused.

    Raises:
        DeviceFailed: It has another value then.
    """
    device.write(address, value)
    if (found := device.read(address)) != value:
        raise DeviceFailed(f"{device.url}: {name} reads {found:#x} after {value:#x} was written")


def refuse_while_jobs_exist(device: Device) -> None:
    """Refuse what would take the engine away from the workers of its jobs.

    Raises:
        DeviceFailed: There are jobs; names them.
    """
    if running := jobs(device):
        numbers = ", ".join(str(each["job"]) for each in running)
        raise DeviceFailed(
            f"{device.url}: job(s) {numbers} exist: their workers would lose the engine"
        )


def set_local(
    device: Device,
    *,
    mac: int | None = None,
    address: int | None = None,
    port: int | None = None,
    although_jobs_run: bool = False,
) -> None:
    """Set the addresses that an engine listens at; None leaves one as it is.

    While some of them are new and some old the engine has no address, so it answers at none that
    nobody meant.

    Raises:
        DeviceFailed: It has no MAC address otherwise, or no such port, or is an appliance, whose
            settings say its addresses and whose management would be at one of these ports, or jobs
            run; nothing has been changed then. Or it did not take what was written.
    """
    if device.appliance is not None and not (mac is None and address is None):
        raise DeviceFailed(
            f"{device.url}: an appliance has its MAC and IPv4 address from its settings, which "
            "are in its bitstream, or by DHCP (docs/management.md)"
        )

    def read(name: str) -> int:
        return device.read(registers.address_of(name))

    old_mac = read("local_mac_high") << 32 | read("local_mac_low")
    new_mac = old_mac if mac is None else mac
    new_address = read("local_address") if address is None else address
    new_port = read("local_port") if port is None else port
    if new_address and not new_mac:
        raise DeviceFailed(f"{device.url}: an address needs a MAC address, and there is none yet")
    # A job below a parent hears it at a port of its own.
    last = (1 << 16) - 1 - read("build_jobs")
    if (new_address or port is not None) and not 0 < new_port <= last:
        raise DeviceFailed(
            f"{device.url}: the UDP port must be from 1 to {last}, not {new_port}: jobs have the "
            "ports that follow it"
        )
    if device.appliance is not None:
        _refuse_port(device, new_port, new_port + read("build_jobs"))
    if not although_jobs_run:
        refuse_while_jobs_exist(device)
    wanted = {
        "local_mac_low": new_mac & 0xFFFF_FFFF,
        "local_mac_high": new_mac >> 32,
        "local_port": new_port,
        "local_address": new_address,
    }
    device.write(registers.address_of("local_address"), 0)
    for name, value in wanted.items():
        set_register(device, name, registers.address_of(name), value)


def _refuse_port(device: Device, first: int, last: int) -> None:
    """Refuse ports for the engine that an appliance itself needs: it could not be reached again.

    Raises:
        DeviceFailed: One of these is such a port.
    """
    needed = {device.read(management.management_address_of("board_port")): "its management"}
    if device.read(management.management_address_of("board_flags")) & 1:
        needed[_DHCP_CLIENT_PORT] = "answers to DHCP"
    for port, user in needed.items():
        if first <= port <= last:
            raise DeviceFailed(
                f"{device.url}: UDP ports {first} to {last} would be the engine's, but {port} is "
                f"for {user}: nobody could reach the board until its power goes off"
            )


def reset_jobs(device: Device, timeout_s: float = _DESTROY_TIMEOUT_S) -> Sequence[int]:
    """Destroy all jobs; return their numbers. Counters and addresses stay.

    Raises:
        DeviceFailed: A command is refused, or not over in time.
    """
    numbers = [each["job"] for each in jobs(device)]
    for number in numbers:
        device.write(registers.address_of("job_index"), number)
        device.write(registers.address_of("job_command"), registers.Command.DESTROY)
        wait_until_idle(device, timeout_s)
        reason = device.read(registers.address_of("job_reason"))
        if reason:
            name = registers.Reason(reason).name
            raise DeviceFailed(f"{device.url}: cannot destroy job {number}: {name}")
    return numbers


def reset_user_logic(
    url: DeviceUrl, *, shell: Shell = OPEN_NIC, sysfs: Path = SYSFS, locks: Path | None = None
) -> None:
    """Have a card's shell reset its engines: jobs, counters and addresses are gone afterwards.

    The caller has the registers at the URL exclusively; those of the card's other engines, which
    are reset with it, are locked here.

    Raises:
        DeviceFailed: The card has another shell, or it does not report its end in time, or cannot
            be reached.
        DeviceBusy: Somebody else uses one of the card's other engines.
    """
    request, status = shell.reset
    # In another design these registers would be anything.
    names = PciFunction(sysfs, url.place).identifiers()
    inside = url.bar == shell.bar and shell.offset <= url.offset < 2 * shell.offset
    if shell_of(*names) is not shell or not inside:
        raise DeviceFailed(
            f"{url}: the registers of {names[0]:04x}:{names[1]:04x} at {url.offset:#x} of BAR "
            f"{url.bar} are not behind {shell.name}, so nothing here can reset that engine"
        )
    with contextlib.ExitStack() as stack:
        for other in node_urls(url, sysfs):
            if other != url:
                stack.callback(DeviceLock(registers_of(other), directory=locks).close)
        window = open_bar(DeviceUrl("pcie", url.place, bar=shell.bar), writable=True, sysfs=sysfs)
        stack.callback(window.close)
        window.write(request, 1)
        deadline = time.monotonic() + _RESET_TIMEOUT_S
        while not window.read(status) & 1:
            if time.monotonic() > deadline:
                raise DeviceFailed(
                    f"{url}: {shell.name} does not report the end of the engine's reset within "
                    f"{_RESET_TIMEOUT_S:g} s (register {status:#x} of BAR {shell.bar})"
                )
            time.sleep(0.001)
