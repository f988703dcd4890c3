"""Answers of the admit stage to one worker: their header and words (`docs/protocol.md` 5.4).

Tested: `tests/sim/test_engine_cases.py`.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.admit_cycles import Cycle3
from afflux_hdl.engine.verdict import Verdict
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.rate_limit import RateLimit

__all__ = ["REFUSALS_BURST", "REFUSAL_PERIOD_BITS", "compose", "refusal_limit"]

REFUSALS_BURST = 64
"""Refusals that may follow one another at once: all workers of a job with a wrong key."""

REFUSAL_PERIOD_BITS = 16
"""Binary logarithm of the cycles for each further refusal: 3,815 a second at 250 MHz."""


def refusal_limit() -> RateLimit:
    """Return what limits the rate of refusals."""
    return RateLimit(burst=REFUSALS_BURST, period_bits=REFUSAL_PERIOD_BITS)


def compose(m: Module, reply: data.View, of: Cycle3, verdict: Verdict) -> None:
    """Compose an answer, which is there one cycle later.

    Args:
        m: Where to add it.
        reply: A register, of `layouts.Reply`.
        of: The frame that is answered.
        verdict: The frame's.
    """
    words, job, group, state = reply.words, of.job, of.group, of.state
    refused = of.screened.refusal != 0
    m.d.sync += [
        reply.peer.eq(of.frame.source),
        reply.header.eq(of.frame.header),
        reply.header.version.eq(wire.VERSION),
        reply.header.type.eq(Mux(refused, wire.Type.REFUSED, verdict.answer)),
        reply.header.present.eq(0),
        words.eq(0),
    ]
    with m.If(refused):
        m.d.sync += [words[0].eq(of.screened.refusal), words[1].eq(wire.VERSION)]
    with m.Elif(of.screened.join):
        m.d.sync += [
            words[0].eq(job.workers),
            words[1].eq(job.lanes),
            words[2].eq(job.count),
            words[3].eq(job.credit),
        ]
        with m.If(job.group):
            m.d.sync += [
                words[4].eq(reversed_octets(group.address)),
                words[5].eq(reversed_octets(group.port)),
                words[6].eq(group.key[:32]),
                words[7].eq(group.key[32:]),
            ]
    with m.Else():
        with m.If(verdict.missing_seen):
            m.d.sync += [words[0].eq(state.seen[:32]), words[1].eq(state.seen[32:])]
        m.d.sync += words[2].eq(state.round)
