"""Commands for an engine's jobs, one at a time, through its registers."""

import socket
import time

from afflux_drivers.addresses import is_ipv6
from afflux_drivers.aggregator.job import Job
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.frames import mac_of
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers

__all__ = ["JobCommands", "NoRoom"]

_BUSY_TIMEOUT_S = 10.0
_BUSY_BEFORE_S = 2.0

_NOT_IPV4 = 0xFFFF_FFFF
"""Stands in a register for a parent's IPv6 address: only that there is a parent matters then, as
the socket of its port is connected to it. Nobody has this address."""


class NoRoom(Exception):
    """The engine cannot hold the requested job, or has refused a command; the text says why.

    Attributes:
        undecided: A command was given, and is not over.
    """

    undecided = False


class JobCommands:
    """The registers of an engine that create, destroy and show its jobs. Not thread-safe.

    All raise `NoRoom` if the engine refuses a command, or is busy with one for too long; and what
    the registers raise.

    Args:
        engine: Its registers, by which nobody else gives commands.
    """

    def __init__(self, engine: Registers) -> None:
        self._engine = engine

    def create(self, job: Job, may_move: bool) -> None:
        """Create a job, whose workers may join from another address while it runs, or may not."""
        group_address, group_port = (0, 0) if job.group is None else job.group.words
        self.be_idle_before(f"CREATE of job {job.number}")
        for name, value in (
            ("job_key_low", job.key & 0xFFFF_FFFF),
            ("job_key_high", job.key >> 32),
            ("job_workers", job.workers),
            ("job_lanes", job.lanes),
            ("job_slot_base", job.slot_base),
            ("job_slot_count", job.slots),
            ("job_round", job.round),
            ("job_credit", job.credit),
            ("job_group_address", group_address),
            ("job_group_port", group_port),
            ("job_group_key_low", job.group_key & 0xFFFF_FFFF),
            ("job_group_key_high", job.group_key >> 32),
            ("job_options", int(may_move)),
            *_parent_registers(job.parent),
        ):
            self._write(name, value)
        self._command(job.number, registers.Command.CREATE)

    def destroy(self, number: int) -> None:
        """Destroy a job."""
        self._command(number, registers.Command.DESTROY)

    def join_parent(self, number: int) -> bool:
        """Return whether a job has joined its parent; if not, make the engine ask for it."""
        self._write("job_index", number)
        if self._engine.read(registers.address_of("job_parent_joined")):
            return True
        self._command(number, registers.Command.JOIN_PARENT)
        return False

    def is_enabled(self, number: int) -> bool:
        """Return whether there is a job of this number."""
        self._write("job_index", number)
        return bool(self._engine.read(registers.address_of("job_enabled")))

    @property
    def busy(self) -> bool:
        """Whether a command is carried out."""
        return bool(self._engine.read(registers.address_of("job_busy")))

    def be_idle_before(self, what: str) -> None:
        """Wait until no command is carried out: meanwhile the engine takes no other.

        Over PCIe it would not even say so, as nobody reports writes that were refused there.
        """
        self._wait_until_idle(_BUSY_BEFORE_S, f"commands before {what}")

    def _write(self, name: str, value: int) -> None:
        try:
            self._engine.write(registers.address_of(name), value)
        except registers.WriteRefused as error:
            raise NoRoom(f"the engine has refused to write {name}: {error}") from None

    def _command(self, number: int, command: registers.Command) -> None:
        what = f"{command.name} of job {number}"
        self.be_idle_before(what)
        self._write("job_index", number)
        self._write("job_command", command)
        try:
            self._wait_until_idle(_BUSY_TIMEOUT_S, what)
        except NoRoom as error:
            error.undecided = True
            raise
        reason = self._engine.read(registers.address_of("job_reason"))
        if reason != registers.Reason.NONE:
            raise NoRoom(f"the engine has refused {what}: {_why(reason)}")

    def _wait_until_idle(self, limit_s: float, what: str) -> None:
        give_up = time.monotonic() + limit_s
        while self.busy:
            if time.monotonic() > give_up:
                raise NoRoom(f"the engine has been busy with {what} for {limit_s:g} s")


def _why(reason: int) -> str:
    """Return what a value of `job_reason` means."""
    try:
        return registers.Reason(reason).meaning
    except ValueError:
        return f"for reason {reason}, which this driver does not know"


def _parent_registers(parent: ParentJob | None) -> list[tuple[str, int]]:
    if parent is None:
        return [("job_parent_address", 0)]
    ipv6 = is_ipv6(parent.address)
    address = _NOT_IPV4 if ipv6 else int.from_bytes(socket.inet_aton(parent.address), "big")
    # The address that frames between hosts' sockets have; a network of frames would take ARP.
    mac = int.from_bytes(mac_of(address), "big")
    return [
        ("job_parent_mac_low", mac & 0xFFFF_FFFF),
        ("job_parent_mac_high", mac >> 32),
        ("job_parent_address", address),
        ("job_parent_port", parent.port),
        ("job_parent_job", parent.job),
        ("job_parent_worker", parent.worker),
        ("job_parent_key_low", parent.key & 0xFFFF_FFFF),
        ("job_parent_key_high", parent.key >> 32),
    ]
