"""The gigabit MAC: GMII bytes in two clock domains on one side, packet streams on the other.

::

    rx domain                       sync                             tx domain

    data ─► Receive ─► Widen ─► Crossing ─► o    i ─► PacketFifo ─► Crossing ─► Narrow ─► Queue ─┐
                                                                            data ◄─ Transmit ◄───┘

LiteEth 2024.12 from PyPI was looked at first. Its MAC core, 32 bits wide with an 8-bit PHY, was run
in Migen's simulator: frames back to back, gaps down to one byte and preambles cut to three came
through, and padding and gaps were right. But

* a wrong check sequence was marked only if the PHY drives `last_be`, which LiteEth's own RGMII PHY
  for the ECP5 does not do: such frames came out as good ones;
* that PHY takes RX_DV from RX_CTL, and never looks at RX_ER;
* a pause of the sender in mid-frame cuts the frame in two on the wire;
* `error` of the last beat is ignored at the sender: a frame that is cut off left with a right check
  sequence, which the node must be able to rely on not happening (`docs/hardware.md`, section 2);
* runts and giants pass.

Each could be fixed around it, by more gateware than the MAC itself takes; so it is here.

Tested: `tests/hdl/test_mac_gigabit.py`.
"""

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.lib.crossing import Crossing
from afflux_hdl.lib.link_watch import LinkWatch
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.width import Narrow, Widen
from afflux_hdl.mac.receive import Receive
from afflux_hdl.mac.transmit import Transmit

__all__ = ["GigabitMac"]

CROSSING_BEATS = 16
"""Four times what the round trip of the counters takes at 32 bits; so short a memory is of LUTs."""


class GigabitMac(wiring.Component):
    """Frames between a gigabit PHY and streams in the domain `sync`.

    `sync` must run at 1 Gbit/s divided by the bus width, and some: 32 bits need more than 31.25
    MHz; 50 MHz are 1.6 Gbit/s. Then nothing overflows on the way in while `o` is taken in every
    cycle, and nothing runs dry on the way out: frames leave from a buffer in which they are whole.

    Received frames come as they arrive, cut through; a bad one has `error` in its last beat (see
    `Receive`). If `o` is not taken, frames are cut, and end with `error`, or dropped whole. A
    frame to be sent that ends with `error` is dropped, and so is one that is larger than the
    buffer.

    Either `rx` or `sync` may be reset alone, and all three domains together: frames that are cut
    off then are dropped, or leave with a wrong check sequence. `tx` may not be reset alone: what
    waits for it would leave without its beginning.

    Latency: in, from a byte to the beat that it completes on `o`, 8 cycles of `rx` and 3 to 4 of
    `sync`. Out, from a frame's last beat on `i` to its preamble, 3 cycles of `sync` and 8 to 9 of
    `tx`. Throughput: 1 Gbit/s in, with the least gap. Out the same as long as the next frame is in
    the buffer when one has left; a buffer of twice the largest frame is certainly large enough.

    Args:
        bus_bits: Width of the streams.
        bytes_max: Longest frame received, with check sequence.
        buffer_bytes: Size of the buffer of frames to be sent, a power of two.
        rx, tx: Clock domains of the PHY's two directions.
        give_way_after: After so many cycles of `sync` in which nothing of the buffer could be sent,
            `i` no longer waits: what does not fit is dropped. None: it waits for ever.

    Members:
        i: Frames to be sent, without check sequence.
        o: Frames received, without check sequence.
        rx_data, rx_valid, rx_error: As of GMII: RXD, RX_DV, RX_ER, in the domain `rx`.
        tx_data, tx_enable, tx_error: As of GMII: TXD, TX_EN, TX_ER, in the domain `tx`.
        tx_hold: In the domain `tx`: no frame begins to be sent, so `i` is no longer taken soon.
        overflowed: In the domain `rx`, for a cycle: a frame was cut or dropped.
        unsent: With `give_way_after`, for a cycle: a good frame was dropped instead of being sent.
    """

    def __init__(
        self,
        *,
        bus_bits: int = 32,
        bytes_max: int = 2000,
        buffer_bytes: int = 2048,
        rx: str = "rx",
        tx: str = "tx",
        give_way_after: int | None = None,
    ) -> None:
        self._bus_bits = bus_bits
        self._bytes_max = bytes_max
        self._buffer_bytes = buffer_bytes
        self._rx, self._tx = rx, tx
        self._give_way_after = give_way_after
        beat = PacketBeat(bus_bits)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(beat)),
                "rx_data": In(8),
                "rx_valid": In(1),
                "rx_error": In(1),
                "tx_data": Out(8),
                "tx_enable": Out(1),
                "tx_error": Out(1),
                "tx_hold": In(1),
                "overflowed": Out(1),
                **({} if give_way_after is None else {"unsent": Out(1)}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._receive(m)
        self._transmit(m)
        return m

    def _receive(self, m: Module) -> None:
        receive = Receive(bytes_max=self._bytes_max)
        m.submodules.receive = DomainRenamer(self._rx)(receive)
        m.submodules.widen = widen = Widen(narrow_bits=8, wide_bits=self._bus_bits, domain=self._rx)
        m.submodules.rx_crossing = crossing = Crossing(
            bus_bits=self._bus_bits,
            depth=CROSSING_BEATS,
            writer=self._rx,
            reader="sync",
            lossy=True,
        )
        connect(m, widen.o, crossing.i)
        connect(m, crossing.o, flipped(self.o))
        m.d.comb += [
            receive.data.eq(self.rx_data),
            receive.valid.eq(self.rx_valid),
            receive.error.eq(self.rx_error),
            # The crossing takes a wide beat at once, so `widen` takes every byte.
            widen.i.payload.eq(receive.o.payload),
            widen.i.valid.eq(receive.o.valid),
            self.overflowed.eq(crossing.overflowed),
        ]

    def _transmit(self, m: Module) -> None:
        m.submodules.buffer = buffer = PacketFifo(
            bus_bits=self._bus_bits, depth_bytes=self._buffer_bytes, lossy=False
        )
        m.submodules.tx_crossing = crossing = Crossing(
            bus_bits=self._bus_bits, depth=CROSSING_BEATS, writer="sync", reader=self._tx
        )
        m.submodules.narrow = narrow = Narrow(
            narrow_bits=8, wide_bits=self._bus_bits, domain=self._tx
        )
        transmit = Transmit()
        m.submodules.transmit = DomainRenamer(self._tx)(transmit)
        connect(m, flipped(self.i), buffer.i)
        connect(m, buffer.o, crossing.i)
        if self._give_way_after is not None:
            m.submodules.link_watch = watch = LinkWatch(cycles=self._give_way_after)
            m.d.comb += [
                watch.valid.eq(buffer.o.valid),
                watch.ready.eq(buffer.o.ready),
                buffer.blocked.eq(watch.down),
                self.unsent.eq(buffer.overflowed),
            ]
        connect(m, crossing.o, narrow.i)
        # So that what the pins' side asks for does not reach into the crossing's memory in the same
        # cycle: these may be at opposite ends of the part.
        waiting = Queue(PacketBeat(8), depth=2, buffered=False)
        m.submodules.waiting = DomainRenamer(self._tx)(waiting)
        connect(m, narrow.o, waiting.i)
        connect(m, waiting.o, transmit.i)
        m.d.comb += [
            transmit.hold.eq(self.tx_hold),
            self.tx_data.eq(transmit.data),
            self.tx_enable.eq(transmit.enable),
            self.tx_error.eq(transmit.error),
        ]
