"""The golden engine behind the interface of a real one: registers and whole frames.

So what drives an engine, a director or a network of engines, runs on either.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any, Protocol, Self

from afflux_hdl.contract.registers import (
    COUNTERS,
    IDENTITY,
    REGISTERS,
    Command,
    address_of,
    counter_address,
)
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Endpoint, GroupAddress
from afflux_sim.golden.state import Parent
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus

__all__ = ["Engine", "GoldenDevice"]


class Engine(Protocol):
    """A device driven by frames and registers: a Verilated engine, or the golden device."""

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        """Take the frames, and return those that are sent until the engine is idle again."""

    def read(self, address: int) -> int:
        """Value of a register."""

    def write(self, address: int, value: int) -> None:
        """Write a register."""


class GoldenDevice:
    """A golden engine with the registers of the engine, commands of which take no time.

    Args:
        build: The engine's sizes: workers, lanes, jobs, slots.
        engine_class: A golden engine, or one with a bug.
        partial_bits: w of the partial sums of float32 that its jobs send up.

    Attributes:
        golden: The engine, once it has its addresses.
    """

    def __init__(
        self,
        *,
        engine_class: type[GoldenEngine] = GoldenEngine,
        partial_bits: int = 64,
        **build: Any,
    ) -> None:
        self._class = engine_class
        self._partial_bits = partial_bits
        self._build = build
        self._values = {register.name: 0 for register in REGISTERS}
        self._values |= {f"build_{name}": value for name, value in build.items()}
        self._values["identity"] = IDENTITY
        self._names = {register.address: register.name for register in REGISTERS}
        self._counters = {counter_address(counter.name): counter.name for counter in COUNTERS}
        self._golden: GoldenEngine | None = None
        self._to_send: list[bytes] = []

    @property
    def golden(self) -> GoldenEngine:
        if self._golden is None:
            mac = self._mac("local")
            address = str(IPv4Address(self._values["local_address"]))
            port = self._values["local_port"]
            self._golden = self._class(mac=mac, address=address, port=port, **self._build)
        return self._golden

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        errors = mac_errors or [False] * len(frames)
        for frame, error in zip(frames, errors, strict=True):
            self._to_send += self.golden.receive(frame, error)
        sent, self._to_send = self._to_send, []
        return sent

    def read(self, address: int) -> int:
        if address in self._counters:
            return self.golden.counters[self._counters[address]] % 2**32
        if address - 4 in self._counters:
            return self.golden.counters[self._counters[address - 4]] >> 32
        job = self.golden.jobs[self._values["job_index"]]
        if address == address_of("job_enabled"):
            return int(job is not None)
        if address == address_of("job_parent_joined"):
            return int(job is not None and job.parent_joined)
        return self._values[self._names[address]]

    def write(self, address: int, value: int) -> None:
        if address == address_of("job_command"):
            self._carry_out(Command(value))
        else:
            self._values[self._names[address]] = value

    def close(self) -> None:
        """There is nothing to free."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _carry_out(self, command: Command) -> None:
        job = self._values["job_index"]
        if command is Command.DESTROY:
            self.golden.destroy_job(job)
        elif command is Command.JOIN_PARENT:
            self._to_send.append(self.golden.join_parent(job))
        else:
            values = self._values
            self.golden.create_job(
                job,
                key=self._wide("job_key"),
                workers=values["job_workers"],
                lanes=values["job_lanes"],
                slot_base=values["job_slot_base"],
                slot_count=values["job_slot_count"],
                round=values["job_round"],
                credit=values["job_credit"],
                group=self._group(),
                group_key=self._wide("job_group_key"),
                parent=self._parent(),
                may_move=bool(values["job_options"]),
            )

    def _group(self) -> GroupAddress | None:
        address = self._values["job_group_address"]
        if address == 0:
            return None
        return GroupAddress(str(IPv4Address(address)), self._values["job_group_port"])

    def _parent(self) -> Parent | None:
        values = self._values
        if values["job_parent_address"] == 0:
            return None
        address = str(IPv4Address(values["job_parent_address"]))
        return Parent(
            Endpoint(self._mac("job_parent"), address, values["job_parent_port"]),
            values["job_parent_job"],
            values["job_parent_worker"],
            self._wide("job_parent_key"),
            self._partial_bits,
        )

    def _wide(self, name: str) -> int:
        return self._values[f"{name}_high"] << 32 | self._values[f"{name}_low"]

    def _mac(self, name: str) -> bytes:
        return self._wide(f"{name}_mac").to_bytes(6, "big")
