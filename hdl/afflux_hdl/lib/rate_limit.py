"""Rate limit: a token bucket for what strangers can ask for.

Tested: `tests/hdl/test_rate_limit.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RateLimit"]


class RateLimit(wiring.Component):
    """Says whether another event is within the rate.

    The bucket holds up to `burst` tokens and is full after reset. Every event takes one, and every
    2**`period_bits` cycles one is added, unless the bucket is full. So in any T cycles there are at
    most `burst` + 1 + T / 2**`period_bits` events.

    Latency: `ready` takes the events up to the cycle before into account. Throughput: one event in
    each cycle, while there are tokens.

    Args:
        burst: Events that may follow one another at once.
        period_bits: Binary logarithm of the cycles for each further event.

    Raises:
        ValueError: If one of these is less than 1.

    Members:
        take: An event takes place in this cycle; `ready` must be set.
        ready: Another event is within the rate.
    """

    def __init__(self, *, burst: int, period_bits: int) -> None:
        if burst < 1 or period_bits < 1:
            raise ValueError(f"burst {burst} and period_bits {period_bits} must be at least 1")
        self._burst = burst
        self._period_bits = period_bits
        super().__init__({"take": In(1), "ready": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tokens = Signal(range(self._burst + 1), init=self._burst)
        after = Signal.like(tokens)
        cycle = Signal(self._period_bits)
        adds = cycle.all() & (tokens != self._burst)
        m.d.comb += after.eq(tokens + adds - self.take)
        m.d.sync += [cycle.eq(cycle + 1), tokens.eq(after), self.ready.eq(after != 0)]
        return m
