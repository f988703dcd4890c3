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
latency, its throughput, and its action on input that it cannot take.

Tested: `tests/sim/test_engine_random.py`, `tests/sim/test_cocotb_engine.py`,
`tests/hdl/test_latency.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract import registers
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.block_notes import BlockNotes
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS, Control
from afflux_hdl.engine.counters import Counters
from afflux_hdl.engine.delivery_queue import REPLIES, DeliveryQueue
from afflux_hdl.engine.layouts import Reply, SlotOperation
from afflux_hdl.engine.merge import Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive import Receive
from afflux_hdl.engine.replicate import Replicate
from afflux_hdl.engine.slot_memory import SlotMemory
from afflux_hdl.engine.slot_state import SlotStateMemory
from afflux_hdl.engine.tables import PortTable, RouteTable, WorkerTable
from afflux_hdl.engine.transmit import Transmit
from afflux_hdl.lib.link_watch import LinkWatch
from afflux_hdl.lib.memory_ports import connect_in_turn, connect_writers
from afflux_hdl.lib.packet_stream import Local, PacketBeat
from afflux_hdl.lib.queue import Queue

__all__ = ["Engine", "Parameters"]

OPERATIONS = 64
"""Operations between admit and merge: two-beat frames that arrive while a largest one is merged."""

OPERATIONS_MARGIN = 6
"""Operations that may be in flight in the admit stage when it takes another frame."""

REPLIES_MARGIN = 3
"""Short answers that may be in flight to their queue."""


class Engine(wiring.Component):
    """The aggregation engine of `docs/protocol.md`, section 5.

    Latency from the last beat of a round's last contribution to the first beat of its first
    result: 35 cycles at 512 bits, whatever its size; one cycle more if the frame ends at the wrong
    phase. On a narrow bus so many without blocks, and with some those until the delivery leaves
    `Merge`: 83 at 32 bits. Throughput: one beat in and one beat out in each cycle.

    Members:
        rx: Frames from the MAC, without frame check sequence.
        tx: Frames for the MAC, without frame check sequence.
        register_address, register_write, register_write_data, register_read_data: Registers;
            read data follow one cycle after the address.
        register_refused: The write of the cycle before was refused; see `Control`.
        link_down: The network's link beyond `tx` is down: frames are discarded. The engine finds
            that out by itself too, by how long `tx` makes it wait.
        link_watched: `link_down` says all about the link: `tx` may wait for frames of others, which
            says nothing of it.
        tx_cut: In the first cycle after a reset: `tx` was in the middle of a frame, which is to be
            ended with an error.
        local: The addresses that the registers hold.
        idle: Nothing of any frame is left inside.

    Attributes:
        stages: The stages by name once elaborated, for tests that look inside in simulation.
    """

    stages: dict[str, wiring.Component]

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        beat = PacketBeat(parameters.bus_bits, parameters.ports)
        super().__init__(
            {
                "rx": In(stream.Signature(beat, always_ready=True)),
                "tx": Out(stream.Signature(beat)),
                "register_address": In(REGISTER_ADDRESS_BITS),
                "register_write": In(1),
                "register_write_data": In(32),
                "register_read_data": Out(32),
                "register_refused": Out(1),
                "link_down": In(1),
                "link_watched": In(1),
                "tx_cut": In(1),
                "local": Out(Local),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters

        m.submodules.control = control = Control(p)
        m.submodules.counters = counters = Counters(p)
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

        # Each part has a phase register of its own, so that no register drives half the engine.
        phase = Signal()
        m.d.sync += phase.eq(~phase)
        for part in (control, admit, merge, queue, transmit, slot_memory):
            own_phase = Signal()
            m.d.sync += own_phase.eq(~own_phase)
            m.d.comb += part.phase.eq(own_phase)
        m.d.comb += [part.local.eq(control.local) for part in (receive, replicate, transmit, self)]
        m.d.comb += [part.jobs.eq(control.jobs) for part in (admit, queue, replicate)]

        # Frames in. Admit writes the operations at phase 0, control at phase 1.
        m.submodules.operations = operations = Queue(
            SlotOperation(p), depth=OPERATIONS, always_ready=True
        )
        m.submodules.replies = replies = Queue(
            Reply(p), depth=REPLIES, buffered=False, always_ready=True
        )
        connect(m, flipped(self.rx), receive.i)
        connect(m, receive.o, admit.i)
        m.d.comb += [
            operations.i.payload.eq(admit.o.payload),
            operations.i.valid.eq(admit.o.valid | control.orders.valid),
        ]
        with m.If(control.orders.valid):
            m.d.comb += operations.i.payload.eq(control.orders.payload)
        connect(m, admit.replies, replies.i)
        m.d.sync += [
            admit.o_full.eq(operations.level > OPERATIONS - OPERATIONS_MARGIN),
            # Anybody can cause refusals: they leave half the space to the jobs' own answers.
            admit.replies_full.eq(replies.level > REPLIES - REPLIES_MARGIN),
            admit.refusals_full.eq(replies.level > REPLIES // 2 - REPLIES_MARGIN),
        ]
        m.d.comb += control.orders_full.eq(admit.o_full)
        connect(m, operations.o, merge.i)

        # Frames out.
        connect(m, merge.o, queue.i)
        connect(m, queue.o, replicate.i)
        connect(m, replies.o, replicate.replies)
        connect(m, replicate.o, transmit.i)
        connect(m, transmit.o, flipped(self.tx))
        m.submodules.link_watch = watch = LinkWatch(cycles=p.link_timeout)
        m.d.comb += [
            watch.valid.eq(self.tx.valid & ~self.link_watched),
            watch.ready.eq(self.tx.ready),
            control.discarding.eq(control.discard | watch.down | self.link_down),
            transmit.discard.eq(control.discarding),
            transmit.cut.eq(self.tx_cut),
        ]
        m.d.comb += [
            queue.i_replay.eq(merge.o_replay),
            queue.answers.eq(replies.o.valid),
            queue.room.eq(replicate.room),
            queue.busy_jobs.eq(replicate.busy_jobs),
            # Slots that a create initialises have no result queued.
            queue.forget.eq(control.write_state.enable),
            queue.forgotten.eq(control.write_state.address),
            replicate.done.eq(transmit.done),
            replicate.done_job.eq(transmit.done_job),
            control.fenced.eq(queue.fenced),
            admit.state_broken.eq(slot_state.broken),
        ]

        # Tables. Admit reads and writes the worker table at phase 0 and the slot state at phase 1;
        # control takes the other phases.
        connect_in_turn(m, phase, admit.read_worker, control.read_worker, worker_table.check)
        connect_in_turn(m, phase, control.read_state, admit.read_state, slot_state.read)
        connect_writers(m, control.write_worker, admit.write_worker, worker_table.write)
        connect_writers(m, control.write_state, admit.write_state, slot_state.write)
        connect(m, replicate.read_worker, worker_table.send)
        connect(m, replicate.read_round, slot_state.send)
        connect(m, admit.read_route, route_table.check)
        connect(m, replicate.read_route, route_table.send)
        connect(m, control.write_route, route_table.write)
        m.d.comb += [
            control.parent_joined.eq(admit.parent_joined),
            control.parent_joined_job.eq(admit.parent_joined_job),
            control.started.eq(admit.started),
            control.started_job.eq(admit.started_job),
        ]

        if p.ports > 1:
            m.submodules.port_table = self.port_table = port_table = PortTable(p)
            joining = worker_table.write
            m.d.comb += [
                port_table.write.enable.eq(joining.enable),
                port_table.write.address.eq(joining.address.job),
                port_table.write.data.eq(Mux(joining.data.joined, joining.data.peer.net_ports, 0)),
                port_table.parent.enable.eq(admit.parent_joined),
                port_table.parent.address.eq(admit.parent_joined_job),
                port_table.parent.data.eq(admit.parent_ports),
            ]
            connect(m, replicate.read_ports, port_table.send)

        # Data.
        connect(m, merge.receive, receive.read)
        m.d.comb += receive.release.eq(merge.release)
        for name in ("block", "words"):
            connect(m, getattr(merge, f"read_{name}"), getattr(slot_memory, f"merge_{name}"))
            connect(m, getattr(merge, f"write_{name}"), getattr(slot_memory, f"write_{name}"))
            connect(m, getattr(transmit, f"read_{name}"), getattr(slot_memory, f"send_{name}"))

        m.submodules.block_notes = notes = BlockNotes(p)
        connect(m, merge.read_exponents, notes.merge_exponents)
        connect(m, merge.write_words, notes.write_words)
        connect(m, merge.read_loss, notes.merge_loss)
        connect(m, merge.write_note, notes.write_note)
        connect(m, transmit.read_note, notes.send_note)

        self._count(m, control, counters)
        m.d.comb += self.idle.eq(
            Cat(part.idle for part in self.stages.values()).all()
            & ~operations.o.valid
            & (operations.level == 0)
            & ~replies.o.valid
        )
        # For proofs.
        self.control, self.counters, self.receive, self.admit = control, counters, receive, admit
        self.merge, self.queue, self.replicate, self.transmit = merge, queue, replicate, transmit
        self.slot_state, self.slot_memory, self.worker_table = slot_state, slot_memory, worker_table
        self.route_table, self.operations, self.replies = route_table, operations, replies
        return m

    def _count(self, m: Module, control: Control, counters: Counters) -> None:
        """Connect the registers, and count what becomes of frames."""
        receive, admit, merge, queue, replicate, transmit = self.stages.values()
        m.d.comb += [
            control.address.eq(self.register_address),
            control.write.eq(self.register_write),
            control.write_data.eq(self.register_write_data),
            self.register_read_data.eq(control.read_data),
            self.register_refused.eq(control.refused),
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
            counters.results_dropped.eq(queue.result_dropped),
            counters.results_discarded.eq(queue.emptied + replicate.discarded),
            counters.refusals_dropped.eq(admit.refusal_dropped),
            counters.frames_out.eq(transmit.departed),
            counters.bytes_in.eq(receive.arrived_bytes),
            counters.bytes_out.eq(transmit.departed_bytes),
            counters.frames_discarded.eq(transmit.discarded),
            counters.data_errors.eq(transmit.mismatch),
            counters.address.eq((self.register_address - registers.COUNTER_BASE)[2:]),
            control.counter_value.eq(counters.value),
            control.receive_level.eq(receive.level),
            control.delivery_level.eq(queue.level),
        ]
