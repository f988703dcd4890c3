"""Control: the job table, and the commands that create, destroy and join jobs.

Tested: `tests/sim/test_engine_control.py`, `tests/sim/test_engine_jobs.py`,
`tests/hdl/test_registers.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import Command, Reason
from afflux_hdl.engine.control_registers import ControlRegisters
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
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.packet_stream import Local

__all__ = ["REGISTER_ADDRESS_BITS", "Control"]

REGISTER_ADDRESS_BITS = 12

DRAIN_CYCLES = 8
"""Longer than a frame spends in the admit stage: one that saw the job enabled has left by then."""


class Control(ControlRegisters):
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
        super().__init__(
            p,
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
            },
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
        # For proofs.
        self.fields, self.index, self.step, self.busy, self.asked = fields, index, step, busy, asked
        self.slots_end = slots_end
        return m

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
        m.submodules.ranges = self.ranges = ranges = memory.Memory(
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
