"""Count crossing: events of one clock domain, counted in another.

Tested: `tests/hdl/test_whole_frame_crossing.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["CountCrossing"]


class CountCrossing(wiring.Component):
    """Counts events modulo a power of two, in another clock domain than that in which they happen.

    The count crosses in Gray code: of the bits that are sampled, one at most is changing, so the
    sampled value is the count before the change or after it. No reset of either domain has an
    effect: a count that began anew at one end would be a jump at the other.

    Latency: 3 to 4 cycles of `o_domain`. Throughput: one event in each cycle of `i_domain`; the
    count seen may go up by several at once.

    Args:
        bits: Of the count, at least 2.
        i_domain: Where the events happen.
        o_domain: Where the count is seen.

    Raises:
        ValueError: If there are fewer than 2 bits.

    Members:
        advance: There is an event in this cycle.
        count: So many there have been, modulo 2**bits.
    """

    def __init__(self, *, bits: int, i_domain: str, o_domain: str) -> None:
        if bits < 2:
            raise ValueError(f"bits must be at least 2, not {bits}")
        self._bits = bits
        self._i_domain = i_domain
        self._o_domain = o_domain
        super().__init__({"advance": In(1), "count": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self._bits
        binary, gray = (Signal(bits, name=name, reset_less=True) for name in ("binary", "gray"))
        following = Signal(bits)
        m.d.comb += following.eq(binary + self.advance)
        m.d[self._i_domain] += [binary.eq(following), gray.eq(following ^ (following >> 1))]

        seen, count = Signal(bits), Signal(bits, reset_less=True)
        m.submodules.cdc = FFSynchronizer(gray, seen, o_domain=self._o_domain)
        m.d[self._o_domain] += count.eq(Cat(seen[place:].xor() for place in range(bits)))
        m.d.comb += self.count.eq(count)
        return m
