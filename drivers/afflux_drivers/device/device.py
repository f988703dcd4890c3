"""A device: the registers of an engine behind a URL, looked at and locked."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from afflux_drivers.device.errors import DeviceFailed, DeviceGone
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, canonical, card_of, registers_of
from afflux_drivers.device.pci import SYSFS
from afflux_drivers.device.pcie import GONE, open_bar
from afflux_drivers.device.udp import UdpRegisters
from afflux_drivers.device.window import open_file
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers

__all__ = ["Device", "open_device"]

_ALL_ONES = 0xFFFF_FFFF
_IDENTITY = registers.address_of("identity")


class Device:
    """The registers of an engine, with what is around it. Thread-safe, as its port is.

    Args:
        url: Where it is.
        port: Its registers; closed by `close`.
        locks: Freed by `close`, in reverse order.
        writable: Let writes pass. Without, they are refused here.

    Attributes:
        url: As given.
        has_node: There is a node around the engine (`docs/node.md`).
        appliance: The board as a whole, if it is one without a host (`docs/management.md`).

    Raises:
        DeviceFailed: There is no engine of Afflux behind these registers.
        DeviceGone: Nobody answers.
    """

    def __init__(
        self,
        url: DeviceUrl,
        port: Registers,
        locks: Sequence[DeviceLock] = (),
        *,
        writable: bool = True,
    ) -> None:
        self.url, self._port, self._locks, self._writable = url, port, locks, writable
        self.appliance = port if isinstance(port, UdpRegisters) else None
        found = self.read(_IDENTITY)
        if found != registers.IDENTITY:
            raise DeviceFailed(
                f"{url}: there is no engine of Afflux behind these registers: identity reads "
                f"{found:#010x}, not {registers.IDENTITY:#010x}. Is it the right BAR and offset, "
                "and is our image loaded?"
            )
        node = self.read(registers.node_address_of("node_identity"))
        self.has_node = node == registers.NODE_IDENTITY

    def read(self, address: int) -> int:
        """Read a 32-bit register; see `afflux_hdl.contract.registers`.

        Raises:
            DeviceGone: The device does not answer any more.
        """
        value = self._port.read(address)
        # A counter may have this value; the identity never has.
        if value == _ALL_ONES and self._port.read(_IDENTITY) == _ALL_ONES:
            reason = GONE if self.url.scheme == "pcie" else "nobody answers there"
            raise DeviceGone(f"{self.url}: register {address:#x} reads as ones: {reason}")
        return value

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Over PCIe nobody reports a write that was refused, and a card that is gone takes all.

        Raises:
            WriteRefused: An appliance has refused it.
            DeviceGone: An appliance does not answer.
            DeviceFailed: The device was opened for reading only.
        """
        if not self._writable:
            raise DeviceFailed(f"{self.url} was opened for reading only")
        self._port.write(address, value)

    def close(self) -> None:
        """Close the registers and let others use the device."""
        try:
            self._port.close()
        finally:
            for lock in reversed(self._locks):
                lock.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_device(
    url: str | DeviceUrl,
    *,
    key: bytes | None = None,
    exclusive: bool = True,
    timeout_s: float = 2.0,
    sysfs: Path = SYSFS,
    locks: Path | None = None,
) -> Device:
    """Open the registers of any device.

    Args:
        url: Where they are (`afflux_drivers.device.location`).
        key: The 16 bytes that an appliance's controller knows; the others need none.
        exclusive: To change something: no other process of this host may do so meanwhile. Without,
            registers can only be read, whoever else uses them.
        timeout_s: Of each answer of an appliance, repeats included.
        sysfs: Where sysfs is mounted.
        locks: Folder of the lock files; None for the one of this host.

    Raises:
        ValueError: The URL is none, or a key is missing.
        DeviceFailed: It cannot be opened, or is not one of ours.
        DeviceGone: It does not answer.
        DeviceBusy: Another process of this host uses it.
    """
    if not isinstance(url, DeviceUrl):
        url = DeviceUrl.parse(url)
    with contextlib.ExitStack() as stack:
        held: list[DeviceLock] = []
        # A name is looked up once: another address later would be another board than is locked.
        place = canonical(url)
        for name, shared in _locked(place, exclusive):
            held.append(DeviceLock(name, shared=shared, directory=locks))
            stack.callback(held[-1].close)
        port = _open_port(place if url.scheme == "udp" else url, key, exclusive, timeout_s, sysfs)
        stack.callback(port.close)
        device = Device(url, port, held, writable=exclusive)
        stack.pop_all()
        return device


def _locked(url: DeviceUrl, exclusive: bool) -> Iterator[tuple[str, bool]]:
    """Yield what is locked, and whether others may have it at the same time."""
    if url.scheme == "pcie":
        # A process that reloads the card has this one alone.
        yield card_of(url), True
    if exclusive:
        yield registers_of(url), False


def _open_port(
    url: DeviceUrl, key: bytes | None, writable: bool, timeout_s: float, sysfs: Path
) -> Registers:
    if url.scheme == "pcie":
        return open_bar(url, writable=writable, sysfs=sysfs)
    if url.scheme == "file":
        return open_file(url.place, url.offset, writable=writable)
    if key is None:
        raise ValueError(
            f"{url}: the appliance requires its key: --key-file, or AFFLUX_DEVICE_KEY_FILE"
        )
    return UdpRegisters(url.place, url.port, key=key, timeout_s=timeout_s)
