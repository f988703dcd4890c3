"""Bounded proof: a contribution from `rx` to `tx`, through the whole engine, is in exactly one sum.

The engine as it is, narrow, in its own wiring (`narrow_engine.py`). It begins as a reset leaves it:
registers as initialised, memories with anything in them. Then comes a prefix that is always the
same: addresses, a create, and the JOINs of two workers. From then on, in each cycle: frames of any
content (see `end_to_end_frames.py`) at the times of a schedule, and at any time a command, a stop
of the network, a link that is down.

One round of one slot is watched, and what the two workers contribute to it: any values. As these
are any, and may come again at any time, a result is right for all of them only if each is in it
exactly once; and as any round may be the one that is watched, none of them is in another one.

The job may have a second life within the run: a reset falls at any step of the first one, or a
command creates the job again. Then the contributions of each life are others, and none of the first
one's is in a sum of the second.

The number of cycles is bounded: see the catalogue. `unrolling.py` carries it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Const, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import Command
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from tests.formal.end_to_end_frames import (
    FIRST_ROUND,
    KEY,
    WORKERS,
    Contribution,
    FramesIn,
    ResultsOut,
    frame_beats,
)
from tests.formal.narrow_engine import CREATE_CYCLES, JOIN_CYCLES, NarrowEngine, configuration

__all__ = ["EndToEndHarness"]

TIME_BITS = 10

FEW_FRAMES = 4
"""More than these fill the queue between admit and merge."""

SUM_BITS = 4
"""Bits of the sum that are looked at. How often a contribution is in it shows in these, modulo 16,
and there are fewer frames than that; `merge` and `lane alu` look at all 32."""


class EndToEndHarness(Elaboratable):
    """See above.

    Args:
        ends: Cycles, counted from the end of the prefix, in which a frame ends. Between two that
            are far enough apart the second may have a block.
        at_any_time: Events that may happen in any cycle: `commands` (create again, with another
            key, other slots and another first round, or not; destroy), `stops` (the network does
            not take a beat), `link` (down, or output discarded by command).
        again: If the job begins a second life: after so many `cycles` behind the prefix, `by` a
            `reset` or a `create`; with the `ends` of its frames, counted from when its workers have
            joined again, and what may then happen `at_any_time`. A reset falls at any step of these
            cycles and lasts until their end; the whole prefix follows it. The cycle of the
            `command` that creates the job again is fixed; the JOINs come after `cycles`.
        sizes: Parameters of the engine.
    """

    def __init__(
        self,
        ends: list[int],
        at_any_time: list[str],
        again: dict[str, Any] | None = None,
        **sizes: int,
    ) -> None:
        narrow = {"workers": 2, "lanes": 1, "jobs": 1, "slots": 2, "link_timeout": 32}
        self._parameters = p = Parameters(**{**narrow, **sizes})
        self._again = again or {}
        join_beats = 2 * p.header_beats
        script = len(configuration(p)) + CREATE_CYCLES
        first = script + WORKERS * join_beats + JOIN_CYCLES
        self._scripts, self._joins = [0], [script]
        self._lives = [_Life(first, 1 << TIME_BITS, ends, at_any_time)]
        if again is not None:
            end = first + again["cycles"]
            begin = end + WORKERS * join_beats
            self._joins.append(end)
            if again["by"] == "reset":
                self._scripts.append(end)
                self._joins[1], begin = end + script, end + first
            self._lives[0].end = end
            self._lives.append(_Life(begin, 1 << TIME_BITS, again["ends"], again["at_any_time"]))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        reset = Signal()
        narrow = NarrowEngine(m, p, reset, platform)
        whole = narrow.engine
        self._inside, self._cut = narrow.inside, whole.tx_cut

        # The events and their times.
        time = Signal(TIME_BITS)
        m.d.sync += time.eq(Mux(time == (1 << TIME_BITS) - 1, time, time + 1))

        def sometimes(what: str) -> Value:
            free = [life.lasts(time) for life in self._lives if what in life.at_any_time]
            return Cat(free).any() & AnySeq(1)

        command = self._write_registers(m, whole, time, sometimes)
        m.d.comb += [
            reset.eq(self._resets(m, time)),
            whole.tx.ready.eq(~sometimes("stops")),
            whole.link_down.eq(sometimes("link")),
        ]
        join_beats = 2 * p.header_beats
        long, short = Signal(), Signal()
        with m.Switch(time):
            for life in self._lives:
                before = -frame_beats(p)
                for end in life.ends:
                    if end - before >= frame_beats(p):
                        with m.Case(life.begin + end - frame_beats(p)):
                            m.d.comb += long.eq(1)
                    with m.Case(life.begin + end - join_beats):
                        m.d.comb += short.eq(1)
                    before = end

        watched = Contribution.chosen(m)
        life, got = self._life(m, time, reset), Signal(WORKERS)
        frames = FramesIn(
            m,
            p,
            narrow.rx,
            watched,
            joins=[
                Cat(time == joins + n * join_beats for joins in self._joins).any()
                for n in range(WORKERS)
            ],
            starts_long=long,
            starts_short=short,
            got=got,
            life=life,
        )
        results = ResultsOut(m, p, whole.tx, watched)
        self._results(m, watched, frames, results, got, life, reset)
        completes = self._due(m, whole, watched, results, command | reset, life)
        self._fence(m, reset, completes, watched, life)
        for name in ("operations", "replies"):
            queue = self._inside[f"{name}.fifo"]
            m.d.comb += Assert(~queue.w_en | queue.w_rdy, "nothing comes into a full queue")
        if len(self._lives[0].ends) > FEW_FRAMES:
            m.d.comb += Cover(self._inside["admit"].o_full, "admit waits for merge")
        if self._again.get("by") == "reset":
            self._cover_resets(m, reset, watched, completes, results, life)
        for each in self._lives:
            enabled = self._inside["control"].jobs[0].enabled
            m.d.comb += Cover((time == each.begin) & enabled, "the workers have joined")
        return m

    def _resets(self, m: Module, time: Signal) -> Value:
        """Return whether there is a reset: from any step of the first life on until its end."""
        if self._again.get("by") != "reset":
            return Const(0)
        first, resets, was = self._lives[0], Signal(), Signal()
        m.d.comb += resets.eq(first.lasts(time) & (AnySeq(1) | was | (time == first.end - 1)))
        m.d.sync += was.eq(resets)
        return resets

    def _life(self, m: Module, time: Signal, reset: Signal) -> Value:
        """Return which life it is: the second one from the reset, or from the command, on."""
        if not self._again:
            return Const(0, 1)
        life, begins = Signal(), Signal()
        if self._again["by"] == "reset":
            m.d.comb += begins.eq(reset)
        else:
            m.d.comb += begins.eq(time == self._lives[0].begin + self._again["command"])
        with m.If(begins):
            m.d.sync += life.eq(1)
        return life

    def _write_registers(
        self,
        m: Module,
        whole: Engine,
        time: Signal,
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
        script: list[tuple[int, tuple[str, Any]]] = []
        for start in self._scripts:
            writings = configuration(self._parameters)
            script += [(start + n, one) for n, one in enumerate(writings)]
        script += [(self._joins[0] + n, one) for n, one in enumerate(then)]
        if self._again.get("by") == "create":
            at = self._lives[0].begin + self._again["command"]
            script.append((at, ("job_command", Command.CREATE)))
            m.d.comb += command.eq(time == at)
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
        return command | (writes & is_command)

    def _results(
        self,
        m: Module,
        watched: Contribution,
        frames: FramesIn,
        results: ResultsOut,
        got: Signal,
        life: Value,
        reset: Signal,
    ) -> None:
        """State what results there are, and what is in them."""
        header = results.header
        of_life = header.operation[0]
        total = watched.sum_in(of_life)
        every = (1 << self._parameters.lanes) - 1
        lanes = Mux(watched.presents_in(of_life).any(), every, 0)
        m.d.comb += [
            Assert(
                ~results.leaves | ((header.type == wire.Type.RESULT) & (header.present == lanes)),
                "a result has the lanes of its contributions",
            ),
            Assert(
                ~(results.leaves & header.present[0])
                | (results.word[:SUM_BITS] == total[:SUM_BITS]),
                "a result is the sum of each worker's contribution, once",
            ),
        ]
        for n in range(2):
            asked, gives = Signal(4, name=f"asked_{n}"), Signal(name=f"gives_{n}")
            m.d.comb += [
                gives.eq(results.leaves & (header.worker == n)),
                Assert(~gives | (asked != 0), "no more results than frames that ask for one"),
            ]
            with m.If(reset):
                m.d.sync += asked.eq(0)
            with m.Elif(frames.asks[n] & ~gives & (asked != 15)):
                m.d.sync += asked.eq(asked + 1)
            with m.Elif(gives & ~frames.asks[n]):
                m.d.sync += asked.eq(asked - 1)
            with m.If(gives & (of_life == life)):
                m.d.sync += got[n].eq(1)
        was = Signal.like(life)
        m.d.sync += was.eq(life)
        with m.If(was != life):
            m.d.sync += got.eq(0)

    def _due(
        self,
        m: Module,
        whole: Engine,
        watched: Contribution,
        results: ResultsOut,
        ends: Value,
        life: Value,
    ) -> Signal:
        """State that the result of a round that is complete is sent, unless it is not to be.

        Returns: whether it is complete in this cycle.
        """
        inside = self._inside
        due, sent, completes = Signal(), Signal(2), Signal()
        last = len(self._lives) - 1
        of_life = results.leaves & (results.header.operation[0] == life)
        m.d.comb += completes.eq(
            inside["admit"].cycle3.valid
            & inside["admit"].decision.completed
            & watched.is_of(inside["admit"].cycle3.frame.header)
        )
        with m.If(completes):
            m.d.sync += [due.eq(1), sent.eq(0)]
        for n in range(2):
            with m.If(of_life & (results.header.worker == n)):
                m.d.sync += sent[n].eq(1)
        # Nothing is promised to a job that a command ends, from the command on.
        with m.If(ends | inside["control.busy"] | inside["control"].discarding):
            m.d.sync += due.eq(0)
        was_down = Signal()
        with m.If(inside["control"].discarding):
            m.d.sync += was_down.eq(1)
        m.d.comb += [
            Assert(~(whole.idle & due) | sent.all(), "what is complete is sent to both"),
            Cover(completes & (life == last), "the round is complete"),
            Cover(of_life & (life == last), "its result leaves"),
            Cover(due & sent.all() & (life == last), "and the other one's"),
        ]
        if "link" in self._lives[-1].at_any_time:
            m.d.comb += Cover(results.leaves & was_down, "the link was down before")
        return completes

    def _fence(
        self, m: Module, reset: Signal, completes: Signal, watched: Contribution, life: Value
    ) -> None:
        """State that nothing of a job reads its slots from the end of its fence on."""
        inside = self._inside
        order = inside["transmit.order"]
        closed, of_life = Signal(), Signal()
        with m.If(inside["control"].fenced):
            m.d.sync += [closed.eq(1), of_life.eq(life)]
        with m.If(inside["control"].jobs[0].enabled | reset):
            m.d.sync += closed.eq(0)
        was_complete = Signal()
        with m.If(completes):
            m.d.sync += was_complete.eq(1)
        reads = (inside["transmit.in_words"] | inside["transmit.in_blocks"]) & ~order.reply
        m.d.comb += Assert(~(closed & reads), "a fence waits for what is under way")
        if self._again.get("by") == "create":
            late = reads & watched.is_of(order.header) & (order.header.operation[0] != of_life)
            m.d.comb += [
                Assert(~late, "what is sent from a slot is of the job's present life"),
                Cover(closed & was_complete, "the job is closed after its round was complete"),
            ]
        elif "commands" in self._lives[-1].at_any_time:
            m.d.comb += Cover(
                was_complete & closed & inside["control"].write_state.enable,
                "the job is created again after the round was complete",
            )

    def _cover_resets(
        self,
        m: Module,
        reset: Signal,
        watched: Contribution,
        completes: Signal,
        results: ResultsOut,
        life: Value,
    ) -> None:
        """Show at which times the reset may fall."""
        inside = self._inside
        begins, half, was_half, was_queued = (Signal(name=name) for name in _RESET_SIGNALS)
        state = inside["admit"].write_state
        queued = inside["queue.rings"].occupied[0]
        m.d.comb += begins.eq(reset & ~life)
        with m.If(state.enable & watched.is_of(inside["admit"].cycle3.frame.header)):
            m.d.sync += half.eq(~completes)
        with m.If(begins):
            m.d.sync += [was_half.eq(half), was_queued.eq(queued)]
        m.d.comb += [
            Cover(begins & half, "a reset while a slot has one of two contributions"),
            Cover(begins & queued, "a reset while a result is queued"),
            Cover(life & self._cut, "a reset cuts a frame off that leaves"),
            Cover(results.leaves & was_half, "the result after a reset at half a round"),
            Cover(results.leaves & was_queued, "the result after a reset with one queued"),
        ]


_RESET_SIGNALS = ("begins", "half", "was_half", "was_queued")


@dataclass
class _Life:
    """A life of the job, once its workers have joined.

    Attributes:
        begin, end: Its first cycle, and the one behind its last.
        ends: When frames end, from its first cycle on.
        at_any_time: Events that may happen.
    """

    begin: int
    end: int
    ends: list[int]
    at_any_time: list[str]

    def lasts(self, time: Signal) -> Value:
        """Return whether it is now."""
        return (time >= self.begin) & (time < self.end)
