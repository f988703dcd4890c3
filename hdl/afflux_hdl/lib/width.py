"""Width converters for packet streams: some narrow beats to a wide one, and back.

Tested: `tests/hdl/test_width.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["Narrow", "Widen"]


class Widen(wiring.Component):
    """Puts narrow beats together, the first in the low bits.

    Latency: 1 cycle from the narrow beat that completes a wide one. Throughput: a narrow beat in
    each cycle, as long as a wide one is taken in the cycle in which it is first offered; `i` waits
    while it is not.

    Args:
        narrow_bits, wide_bits: Widths; the wide one is twice the narrow one or more, by a power of
            two.
        domain: Clock domain.

    Raises:
        ValueError: If the widths do not go together.

    Members:
        i: Narrow beats.
        o: Wide beats. `error` is that of the last narrow beat.
    """

    def __init__(self, *, narrow_bits: int, wide_bits: int, domain: str = "sync") -> None:
        self._parts = _parts(narrow_bits, wide_bits)
        self._domain = domain
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(narrow_bits))),
                "o": Out(stream.Signature(PacketBeat(wide_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d, beat, out = m.d[self._domain], self.i.payload, self.o.payload
        bits, keeps = len(beat.data), len(beat.keep)
        # One at the place of the next part: no counter to be compared.
        place = Signal(self._parts, init=1)
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.o.ready):
            d += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            d += [
                out.last.eq(beat.last),
                out.error.eq(beat.error),
                self.o.valid.eq(beat.last | place[-1]),
                place.eq(Mux(beat.last, 1, place.rotate_left(1))),
            ]
            for n in range(self._parts):
                with m.If(place[n]):
                    d += out.data[bits * n : bits * (n + 1)].eq(beat.data)
                    d += out.keep[keeps * n :].eq(beat.keep)
        return m


class Narrow(wiring.Component):
    """Takes wide beats apart, the low bits first; narrow beats without bytes are left out.

    Latency: 1 cycle. Throughput: a narrow beat in each cycle; a wide one is taken with the last of
    the narrow ones of the one before. Whether it is taken depends on registers and on `o.ready`
    only, so that nothing of a beat is in the way of whoever reads it from a memory.

    Args:
        narrow_bits, wide_bits: Widths; the wide one is twice the narrow one or more, by a power of
            two.
        domain: Clock domain.

    Raises:
        ValueError: If the widths do not go together.

    Members:
        i: Wide beats.
        o: Narrow beats. `last` and `error` are with the last one only.
    """

    def __init__(self, *, narrow_bits: int, wide_bits: int, domain: str = "sync") -> None:
        self._parts = _parts(narrow_bits, wide_bits)
        self._domain = domain
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(wide_bits))),
                "o": Out(stream.Signature(PacketBeat(narrow_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d, beat, out = m.d[self._domain], self.i.payload, self.o.payload
        bits, keeps = len(out.data), len(out.keep)
        held = Signal.like(beat)
        # The low end holds the last part of a wide beat.
        final, moves = Signal(), Signal()
        m.d.comb += [
            moves.eq(self.o.ready & self.o.valid),
            self.i.ready.eq(~self.o.valid | (self.o.ready & final)),
            out.data.eq(held.data[:bits]),
            out.keep.eq(held.keep[:keeps]),
            out.last.eq(held.last & final),
            out.error.eq(held.error & final),
        ]
        with m.If(moves):
            d += [
                self.o.valid.eq(~final),
                held.data.eq(held.data[bits:]),
                held.keep.eq(held.keep[keeps:]),
                final.eq(~Cat(held.keep, 0)[2 * keeps]),
            ]
        with m.If(self.i.valid & self.i.ready):
            d += [held.eq(beat), self.o.valid.eq(1), final.eq(~beat.keep[keeps])]
        return m


def _parts(narrow_bits: int, wide_bits: int) -> int:
    parts = wide_bits // narrow_bits
    if narrow_bits % 8 or parts < 2 or wide_bits != parts * narrow_bits or parts & (parts - 1):
        raise ValueError(
            "wide_bits must be narrow_bits, which has whole bytes, times a power of two,"
            f" not {wide_bits} and {narrow_bits}"
        )
    return parts
