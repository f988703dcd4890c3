"""Verdict: what becomes of a frame, by the tables of `docs/protocol.md`, sections 5.2 to 5.6.

It falls in two steps, a cycle apart: `Screen` decides what needs no slot state, `Verdict` the rest.

Proved: `tests/formal/admission.py`. Tested: `tests/sim/test_engine_cases.py`,
`tests/sim/test_engine_random.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import Cause

__all__ = ["Checks", "RoundPosition", "Screen", "Screened", "Verdict"]

Checks = data.StructLayout(
    {
        "good": 1,
        "refused_version": 1,
        "checksum": 1,
        "from_parent": 1,
        "job": 1,
        "key": 1,
        "worker": 1,
        "address": 1,
        "settled": 1,
        "slot": 1,
        "lanes": 1,
        "empty": 1,
    }
)
"""The checks that a frame has passed, and where it comes from.

Members:
    good, refused_version, checksum: As in `FrameSummary`.
    from_parent: The frame came to a parent port.
    job, key, worker, address, slot: These are right.
    settled: The job's workers may not move any more, and this one has joined from elsewhere.
    lanes: No present bit is set beyond F.
    empty: No present bit is set at all.
"""

Screened = data.StructLayout(
    {
        "cause": Cause,
        "refusal": wire.Refusal,
        "join": 1,
        "parent_joined": 1,
        "contribution": 1,
        "probe": 1,
        "result": 1,
    }
)
"""A frame that has been screened. At most one of the last five members is set.

Members:
    cause: The counter that the frame increments, if none of the last three is set.
    refusal: Answer REFUSED for this cause; 0 for none.
    join: A worker joins.
    parent_joined: The parent has confirmed its JOIN.
    contribution, probe: A frame of this kind from a worker has passed all checks; the slot's state
        decides.
    result: The same of a result from the parent.
"""

RoundPosition = data.StructLayout(
    {
        "next": 1,
        "same": 1,
        "previous": 1,
        "early": 1,
        "held": 1,
        "full": 1,
        "waiting": 1,
        "own_seen": 1,
    }
)
"""Where a frame's round r lies relative to its slot's latest round R.

Members:
    next, same, previous: r is R + 1, R, or R - 1.
    early: r is later than R.
    held: Version r mod 2 holds a round.
    full: All contributions to R are in.
    waiting: The partial sum of R has gone to the parent, whose result is not in yet.
    own_seen: The worker's contribution to R is in.
"""


class Screen(wiring.Component):
    """Decides what needs no slot state. Combinational.

    Members:
        type: Packet type.
        checks: The checks that the frame has passed.
        o: The resulting decision.
    """

    def __init__(self) -> None:
        super().__init__({"type": In(4), "checks": In(Checks), "o": Out(Screened)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        checks, o = self.checks, self.o
        is_join, is_probe, is_joined, refusable = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            is_join.eq(self.type == wire.Type.JOIN),
            # A wrong field in a JOIN without a checksum may be damage, and a refusal is final.
            refusable.eq(is_join & checks.checksum),
            is_probe.eq(self.type == wire.Type.PROBE),
            is_joined.eq(self.type == wire.Type.JOINED),
        ]
        with m.If(~checks.good):
            with m.If(checks.refused_version & checks.checksum):
                m.d.comb += o.refusal.eq(wire.Refusal.VERSION)
        with m.Elif(~checks.job):
            m.d.comb += o.cause.eq(Cause.BAD_JOB)
            m.d.comb += o.refusal.eq(Mux(refusable, wire.Refusal.JOB, 0))
        with m.Elif(~checks.key):
            m.d.comb += o.cause.eq(Cause.BAD_KEY)
            m.d.comb += o.refusal.eq(Mux(refusable, wire.Refusal.KEY, 0))
        with m.Elif(~checks.worker):
            m.d.comb += o.cause.eq(Cause.BAD_WORKER)
            m.d.comb += o.refusal.eq(Mux(refusable, wire.Refusal.WORKER, 0))
        with m.Elif(is_join):
            with m.If(~checks.empty):
                m.d.comb += o.cause.eq(Cause.BAD_PRESENT)
            with m.Elif(checks.settled):
                m.d.comb += o.cause.eq(Cause.BAD_ADDRESS)
                m.d.comb += o.refusal.eq(Mux(refusable, wire.Refusal.ADDRESS, 0))
            with m.Else():
                m.d.comb += [o.cause.eq(Cause.JOINS), o.join.eq(1)]
        with m.Elif(~checks.address):
            m.d.comb += o.cause.eq(Cause.BAD_ADDRESS)
        with m.Elif(is_joined):
            with m.If(~checks.empty):
                m.d.comb += o.cause.eq(Cause.BAD_PRESENT)
            with m.Else():
                m.d.comb += [o.cause.eq(Cause.JOINS), o.parent_joined.eq(1)]
        with m.Elif(~checks.slot):
            m.d.comb += o.cause.eq(Cause.BAD_SLOT)
        with m.Elif(~checks.lanes | (is_probe & ~checks.empty)):
            m.d.comb += o.cause.eq(Cause.BAD_PRESENT)
        with m.Elif(checks.from_parent):
            m.d.comb += o.result.eq(1)
        with m.Elif(is_probe):
            m.d.comb += o.probe.eq(1)
        with m.Else():
            m.d.comb += o.contribution.eq(1)
        return m


class Verdict(wiring.Component):
    """Decides the rest. Combinational.

    Members:
        screened: The decision of `Screen`.
        position: Where the frame's round lies.
        cause: Counter that the frame increments; meaningless if the frame has not passed the checks
            of the receive stage.
        accept: A contribution: add it.
        opening: With `accept`: it opens its round.
        take: The parent's result: it completes the round.
        replay: Send the result of R or R - 1 again, to this worker; or, if R is waiting, the
            partial sum to the parent.
        answer: Short answer: MISSING or JOINED; 0 for none.
        missing_seen: With MISSING: the answer carries `seen`; otherwise an empty bitmap.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "screened": In(Screened),
                "position": In(RoundPosition),
                "cause": Out(Cause),
                "accept": Out(1),
                "opening": Out(1),
                "take": Out(1),
                "replay": Out(1),
                "answer": Out(wire.Type),
                "missing_seen": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        screened, position = self.screened, self.position
        current, replayable, complete, untimely = Signal(), Signal(), Signal(), Signal(Cause)
        m.d.comb += [
            current.eq(position.same & position.held),
            replayable.eq(position.previous & position.held),
            complete.eq(position.full & ~position.waiting),
            untimely.eq(Mux(position.early, Cause.PREMATURE, Cause.STALE)),
            self.cause.eq(screened.cause),
        ]
        # At most one of these is set.
        with m.If(screened.join):
            m.d.comb += self.answer.eq(wire.Type.JOINED)
        with m.If(screened.result):
            with m.If(current & position.waiting):
                m.d.comb += [self.cause.eq(Cause.PARENT_RESULTS), self.take.eq(1)]
            with m.Elif((current & complete) | replayable):
                m.d.comb += self.cause.eq(Cause.DUPLICATES)
            with m.Elif(current):
                m.d.comb += self.cause.eq(Cause.PREMATURE)
            with m.Else():
                m.d.comb += self.cause.eq(untimely)
        with m.If(screened.probe):
            m.d.comb += self.cause.eq(Cause.PROBES)
            with m.If(replayable | (current & complete)):
                m.d.comb += self.replay.eq(1)
            with m.Elif(current):
                m.d.comb += [self.answer.eq(wire.Type.MISSING), self.missing_seen.eq(1)]
            with m.Elif(position.next & complete):
                m.d.comb += self.answer.eq(wire.Type.MISSING)
            with m.Else():
                m.d.comb += self.cause.eq(untimely)
        with m.If(screened.contribution):
            with m.If(position.next & complete):
                m.d.comb += [self.cause.eq(Cause.ACCEPTED), self.accept.eq(1), self.opening.eq(1)]
            with m.Elif(current & ~position.own_seen):
                m.d.comb += [self.cause.eq(Cause.ACCEPTED), self.accept.eq(1)]
            with m.Elif(current):
                m.d.comb += [self.cause.eq(Cause.DUPLICATES), self.replay.eq(position.full)]
            with m.Elif(replayable):
                m.d.comb += [self.cause.eq(Cause.DUPLICATES), self.replay.eq(1)]
            with m.Else():
                m.d.comb += self.cause.eq(untimely)
        return m
