"""Lets a host survive that one of its PCIe cards goes away and comes back, as when it is loaded.

While its FPGA is loaded a card falls off the bus. The port above reports that as a fatal error, for
which many hosts stop. So the port's reports are masked before (SERR# in its command register, fatal
errors in the device control register of its PCI Express capability), the kernel lets go of the
card, the card is loaded, the kernel looks for it again, and the port gets its reports back:
whatever happens in between, signals included.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.device.pci import COMMAND, COMMAND_MEMORY, PciFunction, functions
from afflux_drivers.flash.errors import FlashFailed, FlashRefused
from afflux_drivers.flash.interruption import Signals
from afflux_drivers.flash.runner import Runner

__all__ = ["off_the_bus"]

_COMMAND_SERR = 0x0100
_STATUS, _STATUS_CAPABILITIES = 0x06, 0x0010
_FIRST_CAPABILITY = 0x34
_EXPRESS = 0x10
_DEVICE_CONTROL = 8
_CONTROL_FATAL = 0x0004
_MOST_CAPABILITIES = 48
_BACK_AFTER_S = 15.0


@dataclass(frozen=True)
class _Masked:
    """A register of the port above, with what it had."""

    port: PciFunction
    what: str
    offset: int
    before: int
    bits: int


@contextlib.contextmanager
def off_the_bus(
    card: str, *, comes_back: bool = True, sysfs: Path, runner: Runner
) -> Iterator[None]:
    """Take a card off the bus for the time of a `with` block, and find it again behind it.

    If the block fails, the card is looked for and the port's registers are restored all the same.

    Args:
        card: One of its functions, such as 0000:3b:00.0. All of them are meant.
        comes_back: The new image has PCIe too, so all its functions must be there again.
        sysfs: Where sysfs is mounted.
        runner: Shows what is written, and writes it.

    Raises:
        FlashRefused: There is no such card, or no port above whose reports could be masked.
        FlashFailed: The card did not come back.
        DeviceFailed: A register cannot be read or written.
    """
    first = PciFunction(sysfs, card)
    if not first.exists:
        raise FlashRefused(
            f"there is no PCIe function {card} (lspci -D shows all). If the card is in another "
            "host, or shows nothing on PCIe yet: --no-card"
        )
    port = first.bridge()
    if port is None:
        raise FlashRefused(f"{card}: there is no port above it whose error reports could be masked")
    together = [each for each in functions(sysfs) if _slot(each.name) == _slot(card)]
    masked = [
        _Masked(port, "command", COMMAND, port.read_config(COMMAND, 2), _COMMAND_SERR),
        _device_control(port),
    ]
    if not any(each.before & each.bits for each in masked):
        runner.say(
            f"({port.name} above the card reports no fatal errors as it is, nor will it then: "
            "perhaps by the host's choice, or an earlier load was killed; then reboot)"
        )
    with Signals() as signals:
        try:
            try:
                signals.allow()
                for each in masked:
                    _write(runner, each, each.before & ~each.bits)
                for function in together:
                    _write_attribute(runner, function.folder / "remove")
                yield
            finally:
                # If one comes right here it raises out of this, and behind it none does any more.
                signals.hold()
        finally:
            _restore(runner, port, masked)
    if comes_back:
        _wait(runner, together)


def _restore(runner: Runner, port: PciFunction, masked: list[_Masked]) -> None:
    """Look for the card and restore the port, each step although another one fails."""
    with contextlib.ExitStack() as last_first:
        # The stack runs all of them, and raises what failed.
        for each in masked:
            last_first.callback(_write, runner, each, each.before)
        last_first.callback(_write_attribute, runner, port.folder / "rescan")


def _write(runner: Runner, register: _Masked, value: int) -> None:
    runner.do(
        f"config {register.port.name} {register.what} ({register.offset:#04x}): {value:#06x}",
        lambda: register.port.write_config(register.offset, 2, value),
    )


def _write_attribute(runner: Runner, path: Path) -> None:
    def write() -> None:
        try:
            file = os.open(path, os.O_WRONLY)
            try:
                os.write(file, b"1")
            finally:
                os.close(file)
        except OSError as error:
            raise FlashFailed(f"cannot write to {path}: {error.strerror}") from None

    runner.do(f"echo 1 > {path}", write)


def _slot(name: str) -> str:
    return name.partition(".")[0]


def _device_control(port: PciFunction) -> _Masked:
    """Find the device control register in the list of capabilities (PCI 3.0, 6.7)."""
    place = 0
    if port.read_config(_STATUS, 2) & _STATUS_CAPABILITIES:
        place = port.read_config(_FIRST_CAPABILITY, 1) & 0xFC
    # A list that a broken device has closed to a circle must not hold this up.
    for _ in range(_MOST_CAPABILITIES):
        if not place:
            break
        if port.read_config(place, 1) == _EXPRESS:
            offset = place + _DEVICE_CONTROL
            value = port.read_config(offset, 2)
            return _Masked(port, "device control", offset, value, _CONTROL_FATAL)
        place = port.read_config(place + 1, 1) & 0xFC
    raise FlashRefused(f"{port.name} above the card has no PCI Express capability")


def _wait(runner: Runner, together: list[PciFunction]) -> None:
    """Wait until all functions are back and answer in their memory."""
    if runner.dry:
        return
    deadline = time.monotonic() + _BACK_AFTER_S
    for function in together:
        while not function.exists:
            if time.monotonic() > deadline:
                raise FlashFailed(
                    f"{function.name} has not come back within {_BACK_AFTER_S:g} s: its link is "
                    "not up, or the new design needs more address space. Reboot warm, without "
                    "switching the host off"
                )
            time.sleep(0.05)
        if not function.read_config(COMMAND, 2) & COMMAND_MEMORY:
            _write_attribute(runner, function.folder / "enable")
