"""Synchroniser: takes a level over to another clock.

Amaranth's own leaves out, unless it knows the device, what tells a placer that these registers
belong side by side.

Tested: `tests/hdl/test_box_parts.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Synchroniser"]


class Synchroniser(wiring.Component):
    """Two registers in a row, in domain `sync`.

    Latency: 2 cycles, or one more if the level changes near a clock edge.

    Args:
        init: Level after configuration. A reset leaves these registers alone.

    Members:
        i: The level, from a register of any clock.
        o: The same at this one.
    """

    def __init__(self, *, init: int = 0) -> None:
        self._init = init
        super().__init__({"i": In(1), "o": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = [
            Signal(name=f"stage{n}", init=self._init, reset_less=True, attrs={"ASYNC_REG": "TRUE"})
            for n in range(2)
        ]
        m.d.sync += [stages[0].eq(self.i), stages[1].eq(stages[0])]
        m.d.comb += self.o.eq(stages[1])
        return m
