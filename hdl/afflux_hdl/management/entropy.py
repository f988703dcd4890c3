"""Samples of an entropy source, sixteen at a time.

Tested: `tests/hdl/test_management_parts.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["EntropySampler"]

SAMPLES = 16


class EntropySampler(wiring.Component):
    """Collects bits that another clock, or none, makes.

    Args:
        spacing_bits: Binary logarithm of the cycles from sample to sample.

    Members:
        entropy: The source; it may change at any time.
        samples: The latest 16.
        fresh: All of them are new since the latest `take`.
        take: They have been read.
    """

    def __init__(self, *, spacing_bits: int) -> None:
        self._spacing_bits = spacing_bits
        super().__init__(
            {"entropy": In(1), "samples": Out(SAMPLES), "fresh": Out(1), "take": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Two registers, so that none but the first sees it change within its own setup time.
        settled, number = Signal(2), Signal(range(SAMPLES))
        m.d.sync += settled.eq(Cat(self.entropy, settled))
        samples = Signal()
        if self._spacing_bits:
            cycle = Signal(self._spacing_bits)
            m.d.sync += cycle.eq(cycle + 1)
            m.d.comb += samples.eq(cycle.all())
        else:
            m.d.comb += samples.eq(1)
        with m.If(self.take):
            m.d.sync += self.fresh.eq(0)
        # While nobody takes them they stay as they are.
        with m.If(samples & ~self.fresh):
            m.d.sync += [
                self.samples.eq(Cat(self.samples[1:], settled[1])),
                number.eq(number + 1),
                self.fresh.eq(number == SAMPLES - 1),
            ]
        return m
