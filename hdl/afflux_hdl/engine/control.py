"""Control: registers, job table, and the creation of jobs.

Tested: `tests/sim/test_engine_control.py`, `tests/sim/test_engine_jobs.py`,
`tests/hdl/test_registers.py`.
"""

from collections import defaultdict
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import Access, Command, Reason, Register
from afflux_hdl.engine.layouts import (
    JobEntry,
    OperationKind,
    Route,
    SlotOperation,
    WorkerAddress,
    WorkerEntry,
)
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotState
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.mux_tree import select
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.packet_stream import Local

__all__ = ["REGISTER_ADDRESS_BITS", "Control"]

REGISTER_ADDRESS_BITS = 12

GROUP_BITS = 3
"""Registers are read in groups of 2**3 words."""

PARAMETERS = tuple(
    register
    for register in registers.REGISTERS
    if register.name.startswith("job_") and register.access.writable
)
"""What a command reads, and itself: refused while one is carried out."""

DRAIN_CYCLES = 8
"""Longer than a frame spends in the admit stage: one that saw the job enabled has left by then."""


class Control(wiring.Component):
    """Registers of `registers.REGISTERS` and the job table behind them.

    A create takes these steps, while other jobs go on:

    1. Disable the job and advance its generation, so that results still queued are discarded.
    2. Wait until no frame that saw the job enabled is left in the admit stage.
    3. Send a fence behind the operations that admit has ordered. It empties the job's queues at
       once, and has gone through when no frame of the job is under way that reads its slots.
    4. Compare the slots with those of the other jobs, one after the other.
    5. Forget the workers, write the initial state of the slots, and enable the job.

    That takes J + 2·W + 2·S cycles, with J the jobs and W the workers of the build and S the slots
    of the job, and as long as the merges before the fence take, and the frames of the job that are
    under way: those of other jobs it does not wait for. A destroy ends after the fence. A create
    that does not fit leaves the job disabled; `job_reason` tells why.

    The `job_*` registers are the command's latch: while one is carried out, writes to them, and
    further commands, change nothing and are refused. So is a command for a job that was not built.

    Members:
        phase: Alternates from cycle to cycle. The admit stage reads and writes the worker table
            when it is 0 and the slot state when it is 1; control does so otherwise.
        address, write, write_data: Register access; bits 0 and 1 of the address are ignored.
        read_data: The register's value, one cycle after its address.
        refused: The write of the cycle before was refused.
        counter_value: From the counters, one cycle after the address.
        local: The engine's addresses.
        jobs: The job table.
        orders: A fence, or a JOIN to a job's parent, to go behind the operations of the admit
            stage, in a cycle with phase 1.
        orders_full: Their queue has no room: `orders` waits, as the admit stage does.
        fenced: The fence has gone through: nothing of the job is queued or still read.
        read_worker: Worker table, for the debug registers; read when phase is 1.
        write_worker: Forgets a worker.
        write_route: Route table.
        read_state: Slot state, for the debug registers; read when phase is 0.
        write_state: Sets a slot's initial state.
        parent_joined, parent_joined_job: A job's parent has confirmed.
        started, started_job: A contribution to a job has been accepted.
        receive_level, delivery_level: Values of the registers of these names.
        discard: The operator has output discarded.
        discarding: Output is being discarded.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        super().__init__(
            {
                "phase": In(1),
                "address": In(REGISTER_ADDRESS_BITS),
                "write": In(1),
                "write_data": In(32),
                "read_data": Out(32),
                "refused": Out(1),
                "counter_value": In(32),
                "local": Out(Local),
                "jobs": Out(data.ArrayLayout(JobEntry(p), p.jobs)),
                "orders": Out(stream.Signature(SlotOperation(p), always_ready=True)),
                "orders_full": In(1),
                "fenced": In(1),
                "read_worker": Out(ReadPort(WorkerAddress(p), WorkerEntry(p))),
                "write_worker": Out(WritePort(WorkerAddress(p), WorkerEntry(p))),
                "write_route": Out(WritePort(p.job_bits, Route)),
                "read_state": Out(ReadPort(p.slot_bits, SlotState(p))),
                "write_state": Out(WritePort(p.slot_bits, SlotState(p))),
                "parent_joined": In(1),
                "parent_joined_job": In(p.job_bits),
                "started": In(1),
                "started_job": In(p.job_bits),
                "receive_level": In(16),
                "delivery_level": In(17),
                "discard": Out(1),
                "discarding": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        busy, asked = Signal(), Signal()
        joined = Signal(p.jobs)
        reason = Signal(Reason)
        fields = self._registers(m, busy, joined, reason)
        create = Signal()
        index = Signal(8)
        at_command, commanded = Signal(), Signal()
        built = fields["job_index"] < p.jobs
        command = Signal(2)
        m.d.comb += [
            at_command.eq(
                self.write & (self.address[2:] == registers.address_of("job_command") // 4) & ~busy
            ),
            commanded.eq(at_command & (self.write_data[:2] != 0) & built),
        ]
        m.d.sync += [asked.eq(commanded), command.eq(self.write_data)]
        with m.If(commanded):
            m.d.sync += busy.eq(1)
        with m.If(at_command):
            with m.If(self.write_data[:2] == 0):
                m.d.sync += reason.eq(Reason.COMMAND)
            with m.Elif(~built):
                m.d.sync += reason.eq(Reason.INDEX)
            with m.Else():
                m.d.sync += reason.eq(Reason.NONE)
        m.d.sync += self.refused.eq(
            Mux(busy, self.write & self._is_parameter(m), at_command & ~commanded)
        )
        job = self.jobs[index[: p.job_bits]]
        # Sums, a cycle behind the parameters, which stand still from the command on.
        slots_end, round_before = Signal(18), Signal(32)
        m.d.sync += [
            slots_end.eq(fields["job_slot_base"] + fields["job_slot_count"]),
            round_before.eq(fields["job_round"] - 1),
        ]
        unfit = self._unfit(m, fields, slots_end)
        step = Signal(max(8, p.slot_bits + 1, p.worker_bits + 1, (p.jobs + 2).bit_length()))
        last_step = Signal.like(step)
        m.d.sync += last_step.eq(fields["job_slot_count"] - 1)
        state, route = self.write_state.data, self.write_route.data
        fence, join_parent = Signal(), Signal()
        order = self.orders.payload
        m.d.comb += [
            order.kind.eq(OperationKind.ORDER),
            order.delivery.fence.eq(fence),
            order.delivery.join.eq(join_parent),
            order.delivery.up.eq(join_parent),
            order.delivery.job.eq(index),
            # Of a fence: the slots that the job will have.
            order.delivery.slot.eq(fields["job_slot_base"]),
            order.delivery.header.operation.eq(Mux(fence, fields["job_slot_count"], 0)),
            order.delivery.header.version.eq(wire.VERSION),
            order.delivery.header.type.eq(wire.Type.JOIN),
            self.orders.valid.eq(fence | join_parent),
            self.write_worker.address.job.eq(index),
            self.write_route.address.eq(index),
            state.round.eq(round_before),
            # Full: nobody is missing. The versions are empty.
            state.left.eq(0),
            route.group.address.eq(reversed_octets(fields["job_group_address"])),
            route.group.port.eq(reversed_octets(fields["job_group_port"])),
            route.group.key.eq(Cat(fields["job_group_key_low"], fields["job_group_key_high"])),
            route.parent.mac.eq(
                reversed_octets(Cat(fields["job_parent_mac_low"], fields["job_parent_mac_high"]))
            ),
            route.parent.address.eq(reversed_octets(fields["job_parent_address"])),
            route.parent.port.eq(reversed_octets(fields["job_parent_port"])),
            route.parent_job.eq(fields["job_parent_job"]),
            route.parent_worker.eq(fields["job_parent_worker"]),
            route.parent_key.eq(Cat(fields["job_parent_key_low"], fields["job_parent_key_high"])),
        ]
        # Whatever goes into the queue or the tables is decided a cycle ahead, at the other phase.
        clear, initialise = self.write_worker.enable, self.write_state.enable
        pulses = fence, join_parent, clear, self.write_route.enable, initialise
        m.d.sync += [pulse.eq(0) for pulse in pulses]
        m.d.sync += [
            self.write_worker.address.worker.eq(step),
            self.write_state.address.eq(fields["job_slot_base"] + step),
        ]
        with m.If(self.parent_joined):
            m.d.sync += joined.bit_select(self.parent_joined_job, 1).eq(1)
        with m.If(self.started):
            m.d.sync += self.jobs[self.started_job].started.eq(1)
        comparing, enables = Signal(), Signal()
        overlaps = self._overlaps(m, fields, slots_end, index, step, comparing, enables)

        def end() -> None:
            m.d.sync += busy.eq(0)
            m.next = "IDLE"

        with m.FSM():
            with m.State("IDLE"):
                with m.If(asked):
                    m.d.sync += [
                        index.eq(fields["job_index"]),
                        create.eq(command == Command.CREATE),
                        step.eq(0),
                    ]
                    with m.If(command == Command.JOIN_PARENT):
                        m.next = "JOIN"
                    with m.Else():
                        m.next = "DISABLE"
            with m.State("JOIN"):
                with m.If(~job.enabled):
                    m.d.sync += reason.eq(Reason.DISABLED)
                    end()
                with m.Elif(~job.parent):
                    m.d.sync += reason.eq(Reason.NO_PARENT)
                    end()
                with m.Elif(~self.phase & ~self.orders_full):
                    m.d.sync += join_parent.eq(1)
                    end()
            with m.State("DISABLE"):
                m.d.sync += [
                    job.enabled.eq(0),
                    job.generation.eq(job.generation + 1),
                ]
                m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += step.eq(step + 1)
                with m.If(step == DRAIN_CYCLES):
                    # Not before: frames that saw the job enabled have set these until now.
                    m.d.sync += [
                        joined.bit_select(index[: p.job_bits], 1).eq(0),
                        job.started.eq(0),
                    ]
                    m.next = "FENCE"
            with m.State("FENCE"):
                with m.If(~self.phase & ~self.orders_full):
                    m.d.sync += fence.eq(1)
                    m.next = "FENCED"
            with m.State("FENCED"):
                m.d.sync += step.eq(0)
                with m.If(self.fenced & create & (unfit == Reason.NONE)):
                    m.next = "COMPARE"
                with m.Elif(self.fenced):
                    with m.If(create):
                        m.d.sync += reason.eq(unfit)
                    end()
            with m.State("COMPARE"):
                m.d.comb += comparing.eq(1)
                m.d.sync += step.eq(step + 1)
                with m.If(overlaps):
                    m.d.sync += reason.eq(Reason.OVERLAP)
                    end()
                # It takes two cycles from a job's number to what comes of it.
                with m.Elif(step == p.jobs + 1):
                    m.d.sync += step.eq(0)
                    m.next = "FORGET"
            with m.State("FORGET"):
                with m.If(~self.phase):
                    m.d.sync += [clear.eq(1), self.write_route.enable.eq(1), step.eq(step + 1)]
                    with m.If(step == p.workers - 1):
                        m.d.sync += step.eq(0)
                        m.next = "INITIALISE"
            with m.State("INITIALISE"):
                with m.If(self.phase):
                    m.d.sync += [initialise.eq(1), step.eq(step + 1)]
                    with m.If(step == last_step):
                        m.next = "ENABLE"
            with m.State("ENABLE"):
                m.d.comb += enables.eq(1)
                m.d.sync += [
                    job.key.eq(Cat(fields["job_key_low"], fields["job_key_high"])),
                    job.workers.eq(fields["job_workers"]),
                    job.lanes.eq(fields["job_lanes"]),
                    job.lane_mask.eq((1 << fields["job_lanes"][: bits_for(p.lanes)]) - 1),
                    job.base.eq(fields["job_slot_base"]),
                    job.count.eq(fields["job_slot_count"]),
                    job.credit.eq(fields["job_credit"]),
                    job.group.eq(fields["job_group_address"] != 0),
                    job.parent.eq(fields["job_parent_address"] != 0),
                    job.moves.eq(fields["job_options"][0]),
                    job.enabled.eq(1),
                ]
                end()
        return m

    def _is_parameter(self, m: Module) -> Signal:
        """Return whether the address is that of a register that commands read, or `job_command`."""
        found = Signal()
        with m.Switch(self.address[2:]):
            with m.Case(*(register.address // 4 for register in PARAMETERS)):
                m.d.comb += found.eq(1)
        return found

    def _unfit(self, m: Module, fields: dict[str, Signal], slots_end: Signal) -> Signal:
        """Return why a job of these parameters does not fit this engine, two cycles after them.

        Args:
            m: Where to add what this takes.
            fields: The command's parameters.
            slots_end: One behind the job's last slot, one cycle after the parameters.
        """
        p = self._parameters
        unfit = Signal(Reason)
        workers, lanes, slots = (
            fields[f"job_{name}"] for name in ("workers", "lanes", "slot_count")
        )
        group = fields["job_group_address"]
        m.d.sync += unfit.eq(Reason.NONE)
        with m.If((workers == 0) | (workers > p.workers)):
            m.d.sync += unfit.eq(Reason.WORKERS)
        with m.Elif((lanes == 0) | (lanes > p.lanes)):
            m.d.sync += unfit.eq(Reason.LANES)
        with m.Elif((slots == 0) | (slots_end > p.slots)):
            m.d.sync += unfit.eq(Reason.SLOTS)
        with m.Elif((group != 0) & (group[28:] != 0xE)):
            m.d.sync += unfit.eq(Reason.GROUP)
        return unfit

    def _overlaps(
        self,
        m: Module,
        fields: dict[str, Signal],
        slots_end: Signal,
        index: Signal,
        step: Signal,
        comparing: Signal,
        enables: Signal,
    ) -> Signal:
        """Return whether the command's slots overlap those of job `step` two cycles before.

        Args:
            m: Where to add what this takes.
            fields: The command's parameters.
            slots_end: One behind their last slot.
            index: The command's job.
            step: Number of the job to compare with.
            comparing: Compare in this cycle. Otherwise nothing overlaps two cycles later.
            enables: The command's job is enabled in this cycle, with these slots.
        """
        p = self._parameters
        m.submodules.ranges = ranges = memory.Memory(
            shape=data.StructLayout({"base": p.slot_bits, "end": p.slot_bits + 1}),
            depth=1 << p.job_bits,
            init=[],
        )
        write, read = ranges.write_port(), ranges.read_port()
        own_base = Signal(16)
        exists, overlaps = Signal(), Signal()
        m.d.sync += [
            own_base.eq(fields["job_slot_base"]),
            exists.eq(comparing & (step < p.jobs) & self.jobs[step[: p.job_bits]].enabled),
            overlaps.eq(exists & (own_base < read.data.end) & (read.data.base < slots_end)),
        ]
        m.d.comb += [
            write.en.eq(enables),
            write.addr.eq(index),
            write.data.base.eq(own_base),
            write.data.end.eq(slots_end),
            read.addr.eq(step),
        ]
        return overlaps

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
