"""Link watch: notices that nobody takes what a stream offers.

Tested: `tests/hdl/test_frame_boundary.py`, `tests/sim/test_engine_link.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LinkWatch"]


class LinkWatch(wiring.Component):
    """Holds a link to be down from `cycles` cycles of waiting on, until a beat is taken.

    Latency: `down` rises in the cycle after the last of `cycles` cycles in a row in which a beat
    waited, and falls in the cycle after the one in which it is taken. Throughput: every cycle.

    Args:
        cycles: So long may a link that is up make a beat wait.

    Members:
        valid, ready: Those of the stream.
        down: The link is down.
    """

    def __init__(self, *, cycles: int) -> None:
        self._cycles = cycles
        super().__init__({"valid": In(1), "ready": In(1), "down": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waited = Signal(range(self._cycles))
        with m.If(~self.valid | self.ready):
            m.d.sync += [waited.eq(0), self.down.eq(0)]
        with m.Elif(waited == self._cycles - 1):
            m.d.sync += self.down.eq(1)
        with m.Else():
            m.d.sync += waited.eq(waited + 1)
        return m
