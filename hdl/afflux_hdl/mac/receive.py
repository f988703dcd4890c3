"""Receive: the bytes of a gigabit PHY become frames.

Tested: `tests/hdl/test_mac_receive.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["FCS_BYTES", "FRAME_BYTES_MIN", "PREAMBLE", "START", "Receive"]

FRAME_BYTES_MIN = 64
"""The shortest frame, with its frame check sequence (IEEE 802.3, clause 4A.4.2)."""

FCS_BYTES = 4

PREAMBLE = 0x55

START = 0xD5
"""The start frame delimiter, behind the preamble."""


class Receive(wiring.Component):
    """Finds frames between preamble and gap, and checks and strips their frame check sequence.

    The frame begins after the start delimiter, however much of the preamble the PHY has left, even
    none; but between gap and delimiter there may be nothing else. A delimiter further on is one of
    somebody's payload: where noise has spoilt the true one, or a reset ends within a frame, a frame
    in the payload of another one would be taken for one from this network, with a check sequence
    that is right if its author has seen to that. The gap may be as short as a cycle.

    A frame ends with `error` if its check sequence is
    wrong, if it is shorter than 64 bytes or longer than `bytes_max` (both with check sequence), or
    if the PHY has reported an error since its preamble began. Of one that is too long the rest is
    left out; one of fewer than 5 bytes has nothing to be marked, and leaves no trace.

    Latency: 6 cycles from a byte to its beat; a frame's last beat comes 2 cycles after the cycle in
    which `valid` has fallen. Throughput: a byte in each cycle; there is no back-pressure.

    Args:
        bytes_max: Longest frame, with check sequence. 2,000 is that of an envelope frame (IEEE
            802.3, clause 3.2.7).

    Members:
        data, valid, error: As of GMII: RXD, RX_DV, RX_ER.
        o: Frames without check sequence, a byte in each beat.
    """

    def __init__(self, *, bytes_max: int = 2000) -> None:
        if bytes_max <= FRAME_BYTES_MIN:
            raise ValueError(f"bytes_max must be more than {FRAME_BYTES_MIN}, not {bytes_max}")
        self._bytes_max = bytes_max
        super().__init__(
            {
                "data": In(8),
                "valid": In(1),
                "error": In(1),
                "o": Out(stream.Signature(PacketBeat(8), always_ready=True)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = catalog.CRC32_ETHERNET(data_width=8).create()
        # `hunting`: since the gap there was nothing but preamble.
        hunting, inside, over = Signal(), Signal(), Signal()
        # The last bytes of the frame: one that is passed on when another one follows, and the four
        # that may be the check sequence.
        held = Signal(8 * (FCS_BYTES + 1))
        filled = Signal(FCS_BYTES + 1)
        bytes_ = Signal(range(self._bytes_max + 2))
        long_enough, too_long, reported = Signal(), Signal(), Signal()
        ends, passes = Signal(), Signal()
        m.d.comb += [
            crc.data.eq(self.data),
            crc.start.eq(~inside),
            crc.valid.eq(inside & self.valid),
            # `over`: the frame is known to be too long, its last beat has gone.
            ends.eq(inside & ~over & (~self.valid | too_long)),
            passes.eq(inside & ~over & filled[-1]),
        ]
        with m.If(~self.valid):
            m.d.sync += [hunting.eq(1), inside.eq(0), over.eq(0), reported.eq(0)]
        with m.Else():
            with m.If(self.error):
                m.d.sync += reported.eq(1)
            with m.If(self.data != PREAMBLE):
                m.d.sync += hunting.eq(0)
            with m.If(~inside):
                m.d.sync += [
                    inside.eq(hunting & (self.data == START)),
                    filled.eq(0),
                    bytes_.eq(0),
                    long_enough.eq(0),
                    too_long.eq(0),
                ]
            with m.Elif(~over):
                m.d.sync += [
                    held.eq(Cat(self.data, held[:-8])),
                    filled.eq(Cat(1, filled[:-1])),
                    bytes_.eq(bytes_ + 1),
                    too_long.eq(bytes_ == self._bytes_max - 1),
                    over.eq(too_long),
                ]
                with m.If(bytes_ == FRAME_BYTES_MIN - 1):
                    m.d.sync += long_enough.eq(1)
        m.d.sync += [
            self.o.valid.eq(passes),
            self.o.payload.data.eq(held[-8:]),
            self.o.payload.keep.eq(1),
            self.o.payload.last.eq(ends),
            self.o.payload.error.eq(
                ends & (~crc.match_detected | ~long_enough | (too_long & self.valid) | reported)
            ),
        ]
        return m
