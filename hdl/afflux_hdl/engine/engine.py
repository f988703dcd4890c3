"""The aggregation engine: whole frames in, whole frames out.

::

                 job, worker and route table, slot state
                         │                          │
    rx ─► Receive ───► Admit ───► Merge ─► DeliveryQueue ─► Replicate ─► Transmit ─► tx
             │           │          │                           ▲           ▲
             └─ receive ─┼─ buffer ─┤                           │           │
                         └─ replies ┼───────────────────────────┘           │
                                    └─ slot memory ─────────────────────────┘

Every stage takes a beat in every cycle; nothing ever stalls `rx`. Each stage's file states its
latency, its throughput, and what it does with what it cannot take.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import registers, wire
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS, Control
from afflux_hdl.engine.counters import Counters
from afflux_hdl.engine.delivery_queue import REPLIES, DeliveryQueue
from afflux_hdl.engine.layouts import OperationKind, Reply, SlotOperation
from afflux_hdl.engine.merge import Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive import Receive
from afflux_hdl.engine.replicate import Replicate
from afflux_hdl.engine.slot_memory import SlotMemory
from afflux_hdl.engine.slot_state import SlotStateMemory
from afflux_hdl.engine.tables import RouteTable, WorkerTable
from afflux_hdl.engine.transmit import Transmit
from afflux_hdl.lib.packet_stream import Local, PacketBeat

__all__ = ["Engine", "Parameters"]

OPERATIONS = 64
"""Operations between admit and merge: two-beat frames that come while a largest one is merged."""

OPERATIONS_MARGIN = 6
"""Operations that may be under way in the admit stage when it takes another frame."""

REPLIES_MARGIN = 3
"""Short answers that may be under way to their queue."""


class Engine(wiring.Component):
    """The aggregation engine of `docs/protocol.md`, section 5.

    Latency from the last beat of a round's last contribution to the first beat of its first
    result: 33 cycles and 4 for each of its blocks at 512 bits, 49 cycles and 64 for each at 32; one
    cycle more if the frame ends at the wrong phase. Throughput: one beat in and one beat out in
    each cycle.

    Members:
        rx: Frames from the MAC, without frame check sequence.
        tx: Frames for the MAC, without frame check sequence.
        register_address, register_write, register_write_data, register_read_data: Registers;
            read data follow one cycle after the address.
        local: The addresses that its registers hold.
        idle: Nothing of any frame is left inside.

    Attributes:
        stages: Once elaborated, the stages by name, for those who look inside in simulation.
    """

    stages: dict[str, wiring.Component]

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        beat = PacketBeat(parameters.bus_bits)
        super().__init__(
            {
                "rx": In(stream.Signature(beat, always_ready=True)),
                "tx": Out(stream.Signature(beat)),
                "register_address": In(REGISTER_ADDRESS_BITS),
                "register_write": In(1),
                "register_write_data": In(32),
                "register_read_data": Out(32),
                "local": Out(Local),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters

        m.submodules.control = control = Control(p)
        m.submodules.counters = counters = Counters()
        m.submodules.receive = receive = Receive(p)
        m.submodules.admit = admit = Admit(p)
        m.submodules.merge = merge = Merge(p)
        m.submodules.delivery_queue = queue = DeliveryQueue(p)
        m.submodules.replicate = replicate = Replicate(p)
        m.submodules.transmit = transmit = Transmit(p)
        m.submodules.slot_state = slot_state = SlotStateMemory(p)
        m.submodules.slot_memory = slot_memory = SlotMemory(p)
        m.submodules.worker_table = worker_table = WorkerTable(p)
        m.submodules.route_table = route_table = RouteTable(p)

        self.stages = {
            "receive": receive,
            "admit": admit,
            "merge": merge,
            "delivery_queue": queue,
            "replicate": replicate,
            "transmit": transmit,
        }

        # Each has a register of its own, so that none of them drives half the engine.
        phase = Signal()
        m.d.sync += phase.eq(~phase)
        for part in (control, admit, merge, transmit, slot_memory):
            own_phase = Signal()
            m.d.sync += own_phase.eq(~own_phase)
            m.d.comb += part.phase.eq(own_phase)
        m.d.comb += [part.local.eq(control.local) for part in (receive, replicate, transmit, self)]
        m.d.comb += [part.jobs.eq(control.jobs) for part in (admit, replicate)]

        # Frames in.
        m.d.comb += [
            receive.i.payload.eq(self.rx.payload),
            receive.i.valid.eq(self.rx.valid),
        ]
        wiring.connect(m, receive.o, admit.i)

        # Decisions.
        operation_bits = data.Layout.cast(SlotOperation(p)).size
        m.submodules.operations = operations = SyncFIFOBuffered(
            width=operation_bits, depth=OPERATIONS
        )
        # Admit writes this queue at phase 0, control at phase 1.
        order = Signal(SlotOperation(p))
        m.d.comb += [
            order.kind.eq(OperationKind.REPLY),
            order.delivery.reply.eq(1),
            order.delivery.fence.eq(control.fence),
            order.delivery.up.eq(control.join_parent),
            order.delivery.job.eq(control.join_job),
            order.delivery.header.version.eq(wire.VERSION),
            order.delivery.header.type.eq(wire.Type.JOIN),
        ]
        ordered = control.fence | control.join_parent
        m.d.comb += [
            operations.w_data.eq(Mux(ordered, order.as_value(), admit.o.payload.as_value())),
            operations.w_en.eq(admit.o.valid | ordered),
            control.fenced.eq(transmit.fenced),
            merge.i.payload.as_value().eq(operations.r_data),
            merge.i.valid.eq(operations.r_rdy),
            operations.r_en.eq(merge.i.ready),
        ]
        m.submodules.replies = replies = SyncFIFO(width=data.Layout.cast(Reply).size, depth=REPLIES)
        m.d.comb += [
            replies.w_data.eq(admit.replies.payload.as_value()),
            replies.w_en.eq(admit.replies.valid),
            replicate.replies.payload.as_value().eq(replies.r_data),
            replicate.replies.valid.eq(replies.r_rdy),
            replies.r_en.eq(replicate.replies.ready),
        ]

        m.d.sync += [
            admit.o_full.eq(operations.level > OPERATIONS - OPERATIONS_MARGIN),
            # Refusals, which anybody can ask for, leave half the room to the jobs' own answers.
            admit.replies_full.eq(replies.level > REPLIES - REPLIES_MARGIN),
            admit.refusals_full.eq(replies.level > REPLIES // 2 - REPLIES_MARGIN),
        ]

        # Tables. Admit reads and writes the worker table at phase 0 and the slot state at phase 1;
        # control takes the other phases.
        m.d.comb += [
            worker_table.check_job.eq(Mux(phase, control.debug_job, admit.check_job)),
            worker_table.check_worker.eq(Mux(phase, control.debug_worker, admit.check_worker)),
            admit.checked.eq(worker_table.checked),
            control.debug_entry.eq(worker_table.checked),
            route_table.check_job.eq(admit.check_job),
            admit.check_route.eq(route_table.checked),
            route_table.send_job.eq(replicate.send_job),
            replicate.send_route.eq(route_table.sent),
            route_table.write.eq(control.write_route),
            route_table.write_job.eq(control.clear_job),
            route_table.write_route.eq(control.route),
            control.parent_joined.eq(admit.parent_joined),
            control.parent_joined_job.eq(admit.parent_joined_job),
            worker_table.send_job.eq(replicate.send_job),
            worker_table.send_worker.eq(replicate.send_worker),
            replicate.sent.eq(worker_table.sent),
            worker_table.write.eq(admit.join | control.clear),
            worker_table.write_job.eq(Mux(control.clear, control.clear_job, admit.join_job)),
            worker_table.write_worker.eq(
                Mux(control.clear, control.clear_worker, admit.join_worker)
            ),
            slot_state.read_slot.eq(Mux(phase, admit.read_slot, control.debug_slot)),
            admit.state.eq(slot_state.state),
            control.debug_state.eq(slot_state.state),
            slot_state.send_slot.eq(replicate.send_slot),
            replicate.send_round.eq(slot_state.send_round),
            slot_state.write.eq(admit.write | control.initialise),
        ]
        with m.If(~control.clear):
            m.d.comb += worker_table.write_entry.eq(admit.join_entry)
        with m.If(control.initialise):
            m.d.comb += [
                slot_state.write_slot.eq(control.initialise_slot),
                slot_state.write_state.eq(control.initialise_state),
            ]
        with m.Else():
            m.d.comb += [
                slot_state.write_slot.eq(admit.write_slot),
                slot_state.write_state.eq(admit.write_state),
            ]

        # Data.
        for name in (
            "merge_block",
            "merge_words",
            "write_block",
            "write_block_address",
            "write_block_data",
            "write_words",
            "write_words_address",
            "write_words_data",
        ):
            m.d.comb += getattr(slot_memory, name).eq(getattr(merge, name))
        m.d.comb += [
            merge.merge_block_data.eq(slot_memory.merge_block_data),
            merge.merge_words_data.eq(slot_memory.merge_words_data),
            slot_memory.send_block.eq(transmit.send_block),
            slot_memory.send_words.eq(transmit.send_words),
            transmit.send_block_data.eq(slot_memory.send_block_data),
            transmit.send_words_data.eq(slot_memory.send_words_data),
            receive.read_address.eq(merge.receive_address),
            merge.receive_data.eq(receive.read_data),
            receive.release.eq(merge.release),
        ]

        # Frames out.
        m.d.comb += [
            queue.i.payload.eq(merge.o.payload),
            queue.i.valid.eq(merge.o.valid),
            queue.i_replay.eq(merge.o_replay),
            queue.done.eq(replicate.done),
            queue.done_delivery.eq(replicate.done_delivery),
        ]
        wiring.connect(m, queue.o, replicate.i)
        wiring.connect(m, replicate.o, transmit.i)
        m.d.comb += [
            self.tx.payload.eq(transmit.o.payload),
            self.tx.valid.eq(transmit.o.valid),
            transmit.o.ready.eq(self.tx.ready),
        ]

        # Registers and counters.
        m.d.comb += [
            control.address.eq(self.register_address),
            control.write.eq(self.register_write),
            control.write_data.eq(self.register_write_data),
            self.register_read_data.eq(control.read_data),
            counters.address.eq((self.register_address - registers.COUNTER_BASE)[2:]),
            control.counter_value.eq(counters.value),
            counters.receive_judged.eq(receive.judged),
            counters.receive_cause.eq(receive.cause),
            counters.admit_judged.eq(admit.judged),
            counters.admit_cause.eq(admit.cause),
            counters.frames_in.eq(receive.arrived),
            counters.blocks_accepted.eq(admit.accepted_blocks),
            counters.rounds.eq(admit.completed),
            counters.conflicts.eq(admit.conflicted),
            counters.overflows.eq(merge.overflows),
            counters.replays.eq(queue.replayed),
            counters.replays_dropped.eq(queue.replay_dropped),
            counters.replies_dropped.eq(admit.reply_dropped),
            counters.frames_out.eq(transmit.departed),
            counters.bytes_in.eq(receive.arrived_bytes),
            counters.bytes_out.eq(transmit.departed_bytes),
            control.receive_level.eq(receive.level),
            control.delivery_level.eq(queue.level),
        ]

        m.d.comb += self.idle.eq(
            receive.idle
            & admit.idle
            & ~operations.r_rdy
            & (operations.level == 0)
            & merge.idle
            & queue.idle
            & replicate.idle
            & transmit.idle
        )
        return m
