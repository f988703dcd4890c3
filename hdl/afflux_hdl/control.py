"""Control: registers, job table, and the creation of jobs."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl import registers, wire
from afflux_hdl.layouts import JobEntry, Local
from afflux_hdl.parameters import Parameters
from afflux_hdl.slot_state import SlotState

__all__ = ["REGISTER_ADDRESS_BITS", "Control"]

REGISTER_ADDRESS_BITS = 12

DRAIN_CYCLES = 8
"""Longer than a frame is in the admit stage: one that has seen the job enabled has left by then."""


def _reversed_octets(value: Value, octets: int) -> Value:
    """``value`` with its octets in the opposite order: a number as it is on the wire."""
    return Cat(value[8 * n : 8 * n + 8] for n in reversed(range(octets)))


class Control(wiring.Component):
    """Registers of ``registers.REGISTERS`` and the job table behind them.

    A create disables the job and advances its generation, so that results still queued are
    discarded; waits until no frame that saw it enabled is left in the admit stage; sends a fence
    through all queues behind, so that no result of the old job is still to be read from the slots;
    forgets the workers, writes the initial state of the slots, and enables the job. That takes
    2·W + 2·S cycles, W = workers of the build, S = slots of the job, and as long as the frames
    before the fence take to leave. Other jobs go on meanwhile. A destroy ends after the fence. A
    create whose workers, lanes or slots exceed what was built leaves the job disabled.

    Members:
        phase: Alternates from cycle to cycle; slot state and worker table are written when it is 1,
            since the admit stage writes them when it is 0.
        address, write, write_data: Register access; bit 0 and 1 of the address are ignored.
        read_data: One cycle after the address.
        counter_value: From the counters, one cycle after the address.
        local: The engine's addresses.
        jobs: The job table.
        fence: Send a fence after the operations of the admit stage, in a cycle with phase 0.
        fenced: The fence has gone through.
        clear, clear_job, clear_worker: Forget a worker.
        initialise, initialise_slot, initialise_state: Set a slot's state.
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
                "counter_value": In(32),
                "local": Out(Local),
                "jobs": Out(data.ArrayLayout(JobEntry(p), p.jobs)),
                "fence": Out(1),
                "fenced": In(1),
                "clear": Out(1),
                "clear_job": Out(p.job_bits),
                "clear_worker": Out(p.worker_bits),
                "initialise": Out(1),
                "initialise_slot": Out(p.slot_bits),
                "initialise_state": Out(SlotState(p)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        busy = Signal()
        constants = {
            "identity": registers.IDENTITY,
            "protocol": wire.VERSION,
            "build_workers": p.workers,
            "build_lanes": p.lanes,
            "build_jobs": p.jobs,
            "build_slots": p.slots,
            "build_bus_bits": p.bus_bits,
        }
        fields: dict[str, Signal] = {}
        word = self.address[2:]
        from_counters = Signal()
        answer = Signal(32)
        with m.Switch(word):
            for register in registers.REGISTERS:
                with m.Case(register.address // 4):
                    if register.name in constants:
                        m.d.sync += answer.eq(constants[register.name])
                    elif register.name == "job_busy":
                        m.d.sync += answer.eq(busy)
                    elif register.name == "job_command":
                        m.d.sync += answer.eq(0)
                    else:
                        field = Signal(register.width, name=register.name)
                        fields[register.name] = field
                        m.d.sync += answer.eq(field)
                        with m.If(self.write):
                            m.d.sync += field.eq(self.write_data)
            with m.Default():
                m.d.sync += answer.eq(0)
        counter_words = 2 * len(registers.COUNTERS)
        first_counter = registers.COUNTER_BASE // 4
        m.d.sync += from_counters.eq(
            (word >= first_counter) & (word < first_counter + counter_words)
        )
        m.d.comb += [
            self.read_data.eq(Mux(from_counters, self.counter_value, answer)),
            self.local.mac.eq(
                _reversed_octets(Cat(fields["local_mac_low"], fields["local_mac_high"]), 6)
            ),
            self.local.address.eq(_reversed_octets(fields["local_address"], 4)),
            self.local.port.eq(_reversed_octets(fields["local_port"], 2)),
        ]

        commanded = Signal()
        m.d.comb += commanded.eq(
            self.write & (word == registers.address_of("job_command") // 4) & ~busy
        )
        create = Signal()
        index = Signal(8)
        job = self.jobs[index[: p.job_bits]]
        fits = Signal()
        end = fields["job_slot_base"] + fields["job_slot_count"]
        m.d.comb += fits.eq(
            (fields["job_workers"] >= 1)
            & (fields["job_workers"] <= p.workers)
            & (fields["job_lanes"] >= 1)
            & (fields["job_lanes"] <= p.lanes)
            & (fields["job_slot_count"] >= 1)
            & (end <= p.slots)
        )
        step = Signal(max(8, p.slot_bits + 1, p.worker_bits + 1))
        state = self.initialise_state
        m.d.comb += [
            self.clear_job.eq(index),
            self.clear_worker.eq(step),
            self.initialise_slot.eq(fields["job_slot_base"] + step),
            state.round.eq(fields["job_round"] - 1),
            # Full: nobody is missing. The versions are empty.
            state.left.eq(0),
        ]
        with m.FSM() as fsm:
            m.d.comb += busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                known = fields["job_index"] < p.jobs
                with m.If(commanded & known & (self.write_data[:2] != 0)):
                    m.d.sync += [
                        index.eq(fields["job_index"]),
                        create.eq(self.write_data[:2] == registers.Command.CREATE),
                        step.eq(0),
                    ]
                    m.next = "DISABLE"
            with m.State("DISABLE"):
                m.d.sync += [job.enabled.eq(0), job.generation.eq(job.generation + 1)]
                m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += step.eq(step + 1)
                with m.If(step == DRAIN_CYCLES):
                    m.next = "FENCE"
            with m.State("FENCE"):
                with m.If(~self.phase):
                    m.d.comb += self.fence.eq(1)
                    m.next = "FENCED"
            with m.State("FENCED"):
                m.d.sync += step.eq(0)
                with m.If(self.fenced):
                    with m.If(create & fits):
                        m.next = "FORGET"
                    with m.Else():
                        m.next = "IDLE"
            with m.State("FORGET"):
                with m.If(self.phase):
                    m.d.comb += self.clear.eq(1)
                    m.d.sync += step.eq(step + 1)
                    with m.If(step == p.workers - 1):
                        m.d.sync += step.eq(0)
                        m.next = "INITIALISE"
            with m.State("INITIALISE"):
                with m.If(self.phase):
                    m.d.comb += self.initialise.eq(1)
                    m.d.sync += step.eq(step + 1)
                    with m.If(step + 1 == fields["job_slot_count"]):
                        m.next = "ENABLE"
            with m.State("ENABLE"):
                m.d.sync += [
                    job.key.eq(Cat(fields["job_key_low"], fields["job_key_high"])),
                    job.workers.eq(fields["job_workers"]),
                    job.lanes.eq(fields["job_lanes"]),
                    job.lane_mask.eq((1 << fields["job_lanes"][:5]) - 1),
                    job.base.eq(fields["job_slot_base"]),
                    job.count.eq(fields["job_slot_count"]),
                    job.credit.eq(fields["job_credit"]),
                    job.enabled.eq(1),
                ]
                m.next = "IDLE"
        return m
