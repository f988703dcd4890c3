"""Request crossing: one request at a time to another clock, and its response back.

::

    domain `outer`                         domain `sync`
    i ─► request ──────────────────────────► asked
           │ toggle ──► synchroniser ──────► is there one?
    o ◄────┤        ◄── synchroniser ◄────── toggle
           └─ response ◄──────────────────── answered

Tested: `tests/hdl/test_box_parts.py`, `tests/sim/test_box.py`.
"""

from amaranth.hdl import Cat, DomainRenamer, Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.synchroniser import Synchroniser

__all__ = ["RequestCrossing"]

SETTLED = 8
"""Cycles of `outer` for which `away` has held when the other end is in reset too."""


class RequestCrossing(wiring.Component):
    """Carries a request over and its response back.

    Frequency and phase of the two clocks do not matter as long as one is at most twice as fast as
    the other: only toggles pass synchronisers, and the data that they announce stands still while
    it is looked at.

    Every request is answered, also one that a reset of the other end overtakes, so that a bus, and
    with it a CPU, does not wait for ever.

    Latency: 3 cycles of `sync` and 3 of `outer`, besides what the other end takes. Throughput: one
    request in that time.

    Args:
        request, response: Shapes.
        lost: Response to a request that cannot be carried over.

    Members:
        i: Requests.
        refuse: With `i`: do not carry this one over.
        o: Responses, one for each request.
        away: The other end is in reset, or will be in 5 cycles of `sync` at most. Holds for at
            least 24 cycles of either clock.
        asked: Requests, at the other end.
        answered: Responses there, one for each, later than its request.
    """

    def __init__(self, request: ShapeLike, response: ShapeLike, *, lost: object) -> None:
        self._request, self._response, self._lost = request, response, lost
        super().__init__(
            {
                "i": In(stream.Signature(request)),
                "refuse": In(1),
                "o": Out(stream.Signature(response)),
                "away": In(1),
                "asked": Out(stream.Signature(request)),
                "answered": In(stream.Signature(response)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, response = Signal(self._request), Signal(self._response)
        asked, asked_there = Signal(), Signal()
        served, served_here = Signal(), Signal()
        there, here = Synchroniser(), Synchroniser()
        m.submodules.there = there
        m.submodules.here = DomainRenamer("outer")(here)
        m.d.comb += [
            there.i.eq(asked),
            asked_there.eq(there.o),
            here.i.eq(served),
            served_here.eq(here.o),
        ]

        # The toggle goes back to its initial value only when the other end has done so: earlier,
        # that would be one more request.
        away_for = Signal(SETTLED)
        m.d.outer += away_for.eq(Cat(self.away, away_for))
        with m.If(self.away & away_for.all()):
            m.d.outer += asked.eq(0)
        with m.FSM(domain="outer"):
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.outer += request.eq(self.i.payload)
                    with m.If(self.refuse | self.away | away_for.any()):
                        m.d.outer += self.o.payload.eq(self._lost)
                        m.next = "ANSWER"
                    with m.Else():
                        m.d.outer += asked.eq(~asked)
                        m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.away):
                    m.d.outer += self.o.payload.eq(self._lost)
                    m.next = "ANSWER"
                with m.Elif(served_here == asked):
                    m.d.outer += self.o.payload.eq(response)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    self.asked.valid.eq(asked_there != served),
                    self.asked.payload.eq(request),
                ]
                with m.If(self.asked.valid & self.asked.ready):
                    m.next = "SERVE"
            with m.State("SERVE"):
                m.d.comb += self.answered.ready.eq(1)
                with m.If(self.answered.valid):
                    m.d.sync += [response.eq(self.answered.payload), served.eq(asked_there)]
                    m.next = "IDLE"
        return m
