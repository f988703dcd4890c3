"""Transmit: frames become the bytes that a gigabit PHY sends.

Tested: `tests/hdl/test_mac_transmit.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.mac.receive import FCS_BYTES, FRAME_BYTES_MIN, PREAMBLE, START

__all__ = ["GAP_BYTES", "PREAMBLE_BYTES", "Transmit"]

PREAMBLE_BYTES = 8
"""With the start delimiter."""

GAP_BYTES = 12
"""The least gap between frames (IEEE 802.3, clause 4A.4.2)."""


class Transmit(wiring.Component):
    """Puts preamble, padding, frame check sequence and gap around frames.

    A frame whose last beat has `error`, and one whose next beat is not there when it is due, gets a
    check sequence with all bits inverted, so every receiver drops it; of the latter, the rest is
    taken and left out. To avoid that, offer frames without pauses.

    Latency: 2 cycles from the first beat's offer to the first byte of the preamble, 10 to that of
    the frame. Throughput: a frame of n bytes takes max(n, 60) + 24 cycles: frames that wait leave
    with gaps of 12 bytes, the least that IEEE 802.3 allows.

    Members:
        i: Frames without check sequence, a byte in each beat.
        hold: No frame begins; one that has begun goes on.
        data, enable, error: As of GMII: TXD, TX_EN, TX_ER, the last one always 0.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(8))),
                "hold": In(1),
                "data": Out(8),
                "enable": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = catalog.CRC32_ETHERNET(data_width=8).create()
        beat = self.i.payload
        count = Signal(range(FRAME_BYTES_MIN))
        # `spoilt`: the check sequence is inverted. `stray`: the rest of the frame is left out.
        spoilt, stray = Signal(), Signal()
        # The checked byte has a signal of its own: else there would be a way from the check
        # sequence through the choice of the next byte back to itself, longer than any that is used.
        sends, byte, checked = Signal(), Signal(8), Signal(8)
        m.d.comb += crc.data.eq(checked)
        m.d.sync += [self.enable.eq(sends), self.data.eq(byte), count.eq(count + 1)]
        unpadded = FRAME_BYTES_MIN - FCS_BYTES
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += count.eq(0)
                with m.If(self.i.valid & ~stray & ~self.hold):
                    m.next = "PREAMBLE"
            with m.State("PREAMBLE"):
                ends = count == PREAMBLE_BYTES - 1
                m.d.comb += [
                    sends.eq(1),
                    byte.eq(Mux(ends, START, PREAMBLE)),
                    crc.start.eq(1),
                ]
                with m.If(ends):
                    m.d.sync += count.eq(0)
                    m.next = "FRAME"
            with m.State("FRAME"):
                missing = ~self.i.valid
                m.d.comb += [
                    sends.eq(1),
                    byte.eq(beat.data),
                    checked.eq(beat.data),
                    crc.valid.eq(1),
                    self.i.ready.eq(1),
                ]
                with m.If(count == unpadded - 1):
                    m.d.sync += count.eq(count)
                with m.If(missing | beat.last):
                    m.d.sync += [spoilt.eq(missing | beat.error), stray.eq(missing)]
                    with m.If(count == unpadded - 1):
                        m.d.sync += count.eq(0)
                        m.next = "CHECK"
                    with m.Else():
                        m.next = "PADDING"
            with m.State("PADDING"):
                m.d.comb += [sends.eq(1), crc.valid.eq(1)]
                with m.If(count == unpadded - 1):
                    m.d.sync += count.eq(0)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += [
                    sends.eq(1),
                    byte.eq(crc.crc.word_select(count[:2], 8) ^ spoilt.replicate(8)),
                ]
                with m.If(count == FCS_BYTES - 1):
                    m.d.sync += count.eq(0)
                    m.next = "GAP"
            with m.State("GAP"):
                # The state IDLE is the last byte of the gap.
                with m.If(count == GAP_BYTES - 2):
                    m.next = "IDLE"
        with m.If(stray):
            m.d.comb += self.i.ready.eq(1)
            with m.If(self.i.valid & beat.last):
                m.d.sync += stray.eq(0)
        return m
