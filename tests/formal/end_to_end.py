"""Bounded proof: a contribution from `rx` to `tx`, through the whole engine, is in exactly one sum.

The engine as it is, narrow, in its own wiring. It begins as a reset leaves it: registers as
initialised, memories with anything in them. Then comes a prefix that is always the same: addresses,
a create, and the JOINs of two workers. From then on, in each cycle: frames of any content (see
`end_to_end_frames.py`) at the times of a schedule, and at any time a command, a stop of the
network, a link that is down, a reset.

One round of one slot is watched, and what the two workers contribute to it: any values. As these
are any, and may come again at any time, a result is right for all of them only if each is in it
exactly once; and as any round may be the one that is watched, none of them is in another one.

What is bounded is the number of cycles: see the catalogue. `unrolling.py` carries it out.
"""

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetInserter,
    Signal,
    Value,
)
from amaranth.lib import memory

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import Command
from afflux_hdl.engine import (
    delivery_queue,
    engine,
    parameters,
    receive,
    replicate,
    seal,
    slot_memory,
    transmit,
)
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.frame_boundary import CutByReset, WholeFrames
from afflux_hdl.lib.ram import Ram
from tests.formal.end_to_end_frames import (
    ADDRESS,
    FIRST_ROUND,
    KEY,
    MAC,
    Contribution,
    FramesIn,
    ResultsOut,
)
from tests.formal.inside import Inside

__all__ = ["EndToEndHarness"]

DEPTHS = (
    (engine, "OPERATIONS", 8),
    (receive, "SUMMARY_DEPTH", 8),
    (receive, "SUMMARY_MARGIN", 6),
    (delivery_queue, "REPLAYS_PER_JOB", 2),
    (delivery_queue, "REPLIES", 6),
    (engine, "REPLIES", 6),
    (replicate, "HEADERS", 4),
    (parameters, "PIPELINE_BEATS", 16),
    (seal, "DEPTH", 12),
    (transmit, "DEPTH", 12),
)
"""Queues with few places: they fill up within the bound. Their margins stay as they are, but that
of the summaries: at 512 bits, frames of two beats are in flight to that queue, four at a time."""

FIRST_CREATE = (
    ("local_mac_low", MAC & 0xFFFF_FFFF),
    ("local_mac_high", MAC >> 32),
    ("local_address", ADDRESS),
    ("local_port", wire.PORT),
    ("job_key_low", KEY),
    ("job_workers", 2),
    ("job_lanes", 1),
    ("job_slot_count", 2),
    ("job_round", FIRST_ROUND),
    ("job_credit", 4),
    ("job_command", Command.CREATE),
)

SUM_BITS = 4
"""Bits of the sum that are looked at. How often a contribution is in it shows in these, modulo 16,
and there are fewer frames than that; `merge` and `lane alu` look at all 32."""

CREATE_CYCLES = 48
"""Longer than a create takes."""

JOIN_CYCLES = 28
"""Longer than it takes from a JOIN to the end of its answer."""


class OneWordRam(Ram):
    """A memory whose words keep their first 32 bits. Reads of all others give anything."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.content = content = memory.Memory(
            shape=32, depth=1 << self._address_bits, init=[]
        )
        write, read = content.write_port(), content.read_port()
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data[:32]),
            read.addr.eq(self.read.address),
            self.read.data.eq(Cat(read.data, AnySeq(self._width - 32))),
        ]
        return m


class EndToEndHarness(Elaboratable):
    """See above.

    Args:
        ends: Cycles, counted from the end of the prefix, in which a frame ends. Between two that
            are far enough apart the second may have a block.
        at_any_time: What may happen in any cycle: `commands` (create again, with another key, other
            slots and another first round, or not; destroy), `stops` (the network does not take a
            beat), `link` (down, or output discarded by command), `resets`.
        sizes: Parameters of the engine.
    """

    def __init__(self, ends: list[int], at_any_time: list[str], **sizes: int) -> None:
        self._ends, self._free = ends, at_any_time
        narrow = {"workers": 2, "lanes": 1, "jobs": 1, "slots": 2, "link_timeout": 32}
        self._parameters = Parameters(**{**narrow, **sizes})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with ExitStack() as stack:
            for module, name, value in DEPTHS:
                stack.enter_context(patch.object(module, name, value))
            for module in (receive, slot_memory):
                stack.enter_context(patch.object(module, "Ram", OneWordRam))
            whole = Engine(p)
            self._inside = Inside(whole, platform)
        reset = Signal()
        parts = Module()
        parts.submodules.engine = self._inside.fragment
        # As in `verilog.Top`.
        parts.submodules.rx = rx = WholeFrames(bus_bits=p.bus_bits)
        parts.submodules.tx_cut = tx_cut = CutByReset()
        m.submodules.parts = ResetInserter(reset)(parts)
        m.d.comb += [
            whole.rx.payload.eq(rx.o.payload),
            whole.rx.valid.eq(rx.o.valid),
            rx.o.ready.eq(1),
            tx_cut.taken.eq(whole.tx.valid & whole.tx.ready),
            tx_cut.last.eq(whole.tx.payload.last),
            whole.tx_cut.eq(tx_cut.cut),
        ]

        # What happens when.
        joins = len(FIRST_CREATE) + CREATE_CYCLES
        join_beats = 2 * p.header_beats
        start = joins + 2 * join_beats + JOIN_CYCLES
        time, free = Signal(range(1024)), Signal()
        m.d.sync += time.eq(Mux(time == 1023, 1023, time + 1))
        m.d.comb += free.eq(time >= start)

        def sometimes(what: str) -> Value:
            return free & AnySeq(1) if what in self._free else Const(0)

        command = self._write_registers(m, whole, time, joins, sometimes)
        m.d.comb += [
            reset.eq(sometimes("resets")),
            whole.tx.ready.eq(~sometimes("stops")),
            whole.link_down.eq(sometimes("link")),
        ]
        long, short = Signal(), Signal()
        before = -p.frame_beats_max
        with m.Switch(time):
            for end in self._ends:
                if end - before >= p.frame_beats_max:
                    with m.Case(start + end - p.frame_beats_max):
                        m.d.comb += long.eq(1)
                with m.Case(start + end - join_beats):
                    m.d.comb += short.eq(1)
                before = end

        watched = Contribution.chosen(m)
        got = Signal(2)
        frames = FramesIn(
            m,
            p,
            rx.i,
            watched,
            joins=[time == joins + n * join_beats for n in range(2)],
            starts_long=long,
            starts_short=short,
            got=got,
        )
        results = ResultsOut(m, p, whole.tx, watched)
        self._results(m, watched, frames, results, got)
        completes = self._due(m, whole, watched, results, command | reset, free)
        self._fence(m, reset, completes)
        m.d.comb += Cover((time == start) & self._inside["control"].jobs[0].enabled)
        return m

    def _write_registers(
        self,
        m: Module,
        whole: Engine,
        time: Signal,
        joins: int,
        sometimes: Callable[[str], Value],
    ) -> Signal:
        """Write registers: the first create, and then commands. Return whether there is one."""
        command, writes, is_command, bit = Signal(), Signal(), AnySeq(1), AnySeq(1)
        # While a command is carried out, these are latched. So another create than the first one
        # finds them as they are set before: it may change all of them, or nothing.
        then = (
            ("job_key_low", Const(KEY, 32) ^ AnyConst(1)),
            ("job_slot_base", AnyConst(1)),
            ("job_slot_count", 1 + AnyConst(1)),
            ("job_round", (FIRST_ROUND + AnyConst(1))[:32]),
        )
        script = [*enumerate(FIRST_CREATE), *((joins + n, one) for n, one in enumerate(then))]
        with m.Switch(time):
            for cycle, (name, value) in script:
                with m.Case(cycle):
                    m.d.comb += [
                        whole.register_write.eq(1),
                        whole.register_address.eq(registers.address_of(name)),
                        whole.register_write_data.eq(value),
                    ]
            with m.Default():
                m.d.comb += [
                    writes.eq(Mux(is_command, sometimes("commands"), sometimes("link"))),
                    command.eq(writes & is_command),
                    whole.register_write.eq(writes),
                    whole.register_address.eq(
                        Mux(
                            is_command,
                            registers.address_of("job_command"),
                            registers.address_of("transmit_control"),
                        )
                    ),
                    whole.register_write_data.eq(
                        Mux(is_command, Mux(bit, Command.CREATE, Command.DESTROY), bit)
                    ),
                ]
        return command

    def _results(
        self,
        m: Module,
        watched: Contribution,
        frames: FramesIn,
        results: ResultsOut,
        got: Signal,
    ) -> None:
        """State what results there are, and what is in them."""
        header = results.header
        m.d.comb += [
            Assert(
                ~results.leaves
                | (
                    (header.type == wire.Type.RESULT)
                    & (header.present == Cat(watched.presents).any())
                ),
                "a result has the lanes of its contributions",
            ),
            Assert(
                ~(results.leaves & header.present[0])
                | (results.word[:SUM_BITS] == watched.sum[:SUM_BITS]),
                "a result is the sum of each worker's contribution, once",
            ),
        ]
        for n in range(2):
            asked, gives = Signal(3, name=f"asked_{n}"), Signal(name=f"gives_{n}")
            m.d.comb += [
                gives.eq(results.leaves & (header.worker == n)),
                Assert(~gives | (asked != 0), "no more results than frames that ask for one"),
            ]
            with m.If(frames.asks[n] & ~gives & (asked != 7)):
                m.d.sync += asked.eq(asked + 1)
            with m.Elif(gives & ~frames.asks[n]):
                m.d.sync += asked.eq(asked - 1)
            with m.If(gives):
                m.d.sync += got[n].eq(1)

    def _due(
        self,
        m: Module,
        whole: Engine,
        watched: Contribution,
        results: ResultsOut,
        ends: Value,
        free: Signal,
    ) -> Signal:
        """State that the result of a round that is complete is sent, unless it is not to be.

        Returns: whether it is complete in this cycle.
        """
        inside = self._inside
        due, sent, completes = Signal(), Signal(2), Signal()
        m.d.comb += completes.eq(
            inside["admit.valid3"]
            & inside["admit.completed"]
            & watched.is_of(inside["admit.frame3"].header)
        )
        with m.If(completes):
            m.d.sync += [due.eq(1), sent.eq(0)]
        for n in range(2):
            with m.If(results.leaves & (results.header.worker == n)):
                m.d.sync += sent[n].eq(1)
        # Nothing is promised to a job that a command ends, from the command on.
        with m.If(ends | inside["control.busy"] | inside["control"].discarding):
            m.d.sync += due.eq(0)
        was_down = Signal()
        with m.If(free & inside["control"].discarding):
            m.d.sync += was_down.eq(1)
        m.d.comb += [
            Assert(~(whole.idle & due) | sent.all(), "what is complete is sent to both"),
            Cover(completes, "the round is complete"),
            Cover(results.leaves, "its result leaves"),
            Cover(due & sent.all(), "and the other one's"),
            Cover(results.leaves & was_down, "the link was down before"),
        ]
        return completes

    def _fence(self, m: Module, reset: Signal, completes: Signal) -> None:
        """State that nothing of a job reads its slots from the end of its fence on."""
        inside = self._inside
        closed = Signal()
        with m.If(inside["control"].fenced):
            m.d.sync += closed.eq(1)
        with m.If(inside["control"].jobs[0].enabled | reset):
            m.d.sync += closed.eq(0)
        was_complete = Signal()
        with m.If(completes):
            m.d.sync += was_complete.eq(1)
        reads = (inside["transmit.in_words"] | inside["transmit.in_blocks"]) & ~inside[
            "transmit.order"
        ].reply
        m.d.comb += [
            Assert(~(closed & reads), "a fence waits for what is under way"),
            Cover(
                was_complete & closed & inside["control"].write_state.enable,
                "the job is created again after the round was complete",
            ),
        ]
