"""The registers of `Control`: how they are read and written, and what they show.

Tested: `tests/hdl/test_registers.py`, `tests/sim/test_engine_control.py`.
"""

from collections import defaultdict
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory, wiring

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import Access, Register
from afflux_hdl.engine.layouts import WorkerEntry
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotState
from afflux_hdl.lib.mux_tree import select
from afflux_hdl.lib.octets import reversed_octets

__all__ = ["ControlRegisters"]

GROUP_BITS = 3
"""Registers are read in groups of 2**3 words."""

PARAMETERS = tuple(
    register
    for register in registers.REGISTERS
    if register.name.startswith("job_") and register.access.writable
)
"""The registers that a command reads, and its own: no writes while one is carried out."""


class ControlRegisters(wiring.Component):
    """The registers of `Control`. The members that it drives are described there."""

    def __init__(self, parameters: Parameters, members: dict[str, Any]) -> None:
        self._parameters = parameters
        super().__init__(members)

    def _is_parameter(self, m: Module) -> Signal:
        """Return whether the address is that of a register that commands read, or `job_command`."""
        found = Signal()
        with m.Switch(self.address[2:]):
            with m.Case(*(register.address // 4 for register in PARAMETERS)):
                m.d.comb += found.eq(1)
        return found

    def _registers(
        self, m: Module, busy: Signal, joined: Signal, reason: Signal
    ) -> dict[str, Signal]:
        """Add the registers to `m`, and return those that can be written, by name."""
        p = self._parameters
        shown = {
            "identity": registers.IDENTITY,
            "protocol": wire.VERSION,
            "build_workers": p.workers,
            "build_lanes": p.lanes,
            "build_jobs": p.jobs,
            "build_slots": p.slots,
            "build_bus_bits": p.bus_bits,
            "build_version": registers.RELEASE,
            "job_busy": busy,
            "job_reason": reason,
            # Commands are not stored.
            "job_command": 0,
            "transmit_state": self.discarding,
        }
        fields = {
            register.name: Signal(register.width, name=register.name)
            for register in registers.REGISTERS
            if register.access.writable and register.name not in shown
        }
        shown |= {
            register.name: fields.get(register.name, 0)
            for register in registers.REGISTERS
            if register.name not in shown and register.access != Access.WRITE_ONLY
        }
        shown |= self._levels(m)
        shown |= self._debug(m, fields)
        selected = Signal(p.job_bits)
        m.d.comb += selected.eq(fields["job_index"])
        built = fields["job_index"] < p.jobs
        enabled = built & self.jobs[selected].enabled
        shown["job_enabled"] = enabled
        shown["job_parent_joined"] = enabled & joined.bit_select(selected, 1)

        # A register of each group is chosen in the cycle of the address, and the group behind it.
        word = self.address[2:]
        from_counters = Signal()
        answers = []
        by_group: dict[int, dict[int, Register]] = defaultdict(dict)
        for register in registers.REGISTERS:
            group, within = divmod(register.address // 4, 1 << GROUP_BITS)
            by_group[group][within] = register
        for group, members in by_group.items():
            one = Signal(32, name=f"answer_{group}")
            values = [
                shown.get(members[within].name, 0) if within in members else 0
                for within in range(1 << GROUP_BITS)
            ]
            m.d.sync += one.eq(select(values, word[:GROUP_BITS]))
            chosen = Signal(name=f"chosen_{group}")
            m.d.sync += chosen.eq(word[GROUP_BITS:] == group)
            answers.append(Mux(chosen, one, 0))
        for register in registers.REGISTERS:
            if register.name in fields:
                allowed = self.write & ~busy if register in PARAMETERS else self.write
                with m.If(allowed & (word == register.address // 4)):
                    m.d.sync += fields[register.name].eq(self.write_data)
        counter_words = 2 * len(registers.COUNTERS)
        first_counter = registers.COUNTER_BASE // 4
        counter = Mux(from_counters, self.counter_value, 0)
        m.d.sync += from_counters.eq(
            (word >= first_counter) & (word < first_counter + counter_words)
        )
        m.d.comb += [
            self.read_data.eq(counter | self._build(m) | reduce(or_, answers)),
            self.discard.eq(fields["transmit_control"]),
            self.local.mac.eq(
                reversed_octets(Cat(fields["local_mac_low"], fields["local_mac_high"]))
            ),
            self.local.address.eq(reversed_octets(fields["local_address"])),
            self.local.port.eq(reversed_octets(fields["local_port"])),
        ]
        return fields

    def _build(self, m: Module) -> Value:
        """Add what tells the build; return its register, if one was asked for, and otherwise 0.

        It is a memory, not logic: in a design that is placed its words can be replaced
        (`afflux_hdl.boards.placed_settings`).
        """
        p = self._parameters
        m.submodules.build = words = memory.Memory(
            shape=unsigned(32), depth=2, init=[p.build_time, p.build_commit]
        )
        read = words.read_port()
        chosen = Signal()
        # Time and commit are neighbours, the first at an even word.
        m.d.comb += read.addr.eq(self.address[2])
        m.d.sync += chosen.eq(self.address[3:] == registers.address_of("build_time") // 8)
        return Mux(chosen, read.data, 0)

    def _levels(self, m: Module) -> dict[str, Signal]:
        """Add the occupancies and their peaks, and return them by name."""
        shown: dict[str, Signal] = {}
        for name in ("receive", "delivery"):
            level = getattr(self, f"{name}_level")
            now = Signal.like(level, name=f"{name}_level_now")
            peak = Signal.like(level, name=f"{name}_peak")
            m.d.sync += now.eq(level)
            with m.If(now > peak):
                m.d.sync += peak.eq(now)
            shown |= {f"{name}_level": now, f"{name}_peak": peak}
        return shown

    def _debug(self, m: Module, fields: dict[str, Signal]) -> dict[str, Signal]:
        """Add the state of a slot and the address of a worker, and return them by name.

        Each is read every other cycle, and follows `debug_slot` or `debug_worker` within 6 cycles.
        """
        p = self._parameters
        state, entry = Signal(SlotState(p)), Signal(WorkerEntry(p))
        peer = entry.peer
        m.d.comb += [
            self.read_state.address.eq(fields["debug_slot"]),
            self.read_worker.address.job.eq(fields["debug_worker"][8:]),
            self.read_worker.address.worker.eq(fields["debug_worker"][:8]),
        ]
        with m.If(self.phase):
            m.d.sync += state.eq(self.read_state.data)
        with m.Else():
            m.d.sync += entry.eq(self.read_worker.data)
        mac = reversed_octets(peer.mac)
        versions = {
            f"debug_version_{n}": Cat(version.present, version.conflict, version.held)
            for n, version in enumerate(state.versions)
        }
        return {
            "debug_round": state.round,
            "debug_seen_low": state.seen[:32],
            "debug_seen_high": state.seen[32:],
            "debug_phase": Cat(state.left == 0, state.waiting),
            "debug_peer_mac_low": mac[:32],
            "debug_peer_mac_high": Cat(mac[32:], entry.joined),
            "debug_peer_address": reversed_octets(peer.address),
            "debug_peer_port": reversed_octets(peer.port),
            **versions,
        }
