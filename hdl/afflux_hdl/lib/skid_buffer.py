"""Skid buffer: a register in the path that stops a stream.

Tested: `tests/hdl/test_box_parts.py`.
"""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SkidBuffer"]


class SkidBuffer(wiring.Component):
    """Takes the beat that comes while its output stops, and only then stops its input.

    `i.ready` comes from a register, so what decides on `o.ready` has a cycle of its own, however
    much logic is before `i`.

    Latency: none. Throughput: one beat in each cycle.

    Args:
        shape: Of the payload.

    Members:
        i: Stream in.
        o: Stream out.
    """

    def __init__(self, shape: ShapeLike) -> None:
        self._shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held, waits = Signal(self._shape), Signal()
        payloads = Value.cast(held), Value.cast(self.i.payload)
        m.d.comb += [
            self.i.ready.eq(~waits),
            self.o.valid.eq(self.i.valid | waits),
            Value.cast(self.o.payload).eq(Mux(waits, *payloads)),
        ]
        m.d.sync += waits.eq(self.o.valid & ~self.o.ready)
        with m.If(~waits):
            m.d.sync += held.eq(self.i.payload)
        return m
