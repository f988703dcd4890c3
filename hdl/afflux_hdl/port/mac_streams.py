"""The two streams of a MAC as packet streams: beats from it, which cannot wait, and beats to it.

They follow what verilog-ethernet's `eth_mac_10g`, AMD's CMAC and others have in common: received
beats have no `ready`; `tuser` with `tlast` marks a frame that is bad, or that is to be spoiled; a
frame that has begun to be sent goes on in every cycle in which the MAC is ready.

Tested: `tests/hdl/test_mac_streams.py`, `tests/sim/test_cocotb_port.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["AxisFrom", "AxisTo", "FromMac", "PadFrames", "ToMac"]

FRAME_BYTES_MIN = 60
"""Bytes of the shortest frame of IEEE 802.3, without its check sequence."""


class AxisFrom(wiring.Signature):
    """Frames that a MAC has received, as the MAC sees the stream.

    Args:
        bits: Width of `data`.
    """

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "data": Out(bits),
                "keep": Out(bits // 8),
                "valid": Out(1),
                "last": Out(1),
                "user": Out(1),
            }
        )


class AxisTo(wiring.Signature):
    """Frames for a MAC to send, as the sender sees the stream.

    Args:
        bits: Width of `data`.
    """

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "data": Out(bits),
                "keep": Out(bits // 8),
                "valid": Out(1),
                "ready": In(1),
                "last": Out(1),
                "user": Out(1),
            }
        )


class FromMac(wiring.Component):
    """Beats from a MAC as a packet stream.

    A reset of the MAC in the middle of a frame ends it: the beat behind has `last` and `error`.
    So what follows is never taken for the rest of it.

    A last beat without bytes, which AXI4-Stream allows, gets `error` too: behind this part beats
    carry the number of their bytes, which begins at one (`Crossing`).

    Latency: none. Throughput: a beat in each cycle. Overflow: `o` must always be taken.

    Args:
        bits: Width of the streams.
        domain: The MAC's clock of receiving, which no reset of the MAC may reset.

    Members:
        i: The MAC's stream.
        reset: The MAC is being reset: what it shows means nothing.
        o: Frames.
    """

    def __init__(self, *, bits: int, domain: str) -> None:
        self._domain = domain
        super().__init__(
            {
                "i": In(AxisFrom(bits)),
                "reset": In(1),
                "o": Out(stream.Signature(PacketBeat(bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal()
        m.d.comb += [
            self.o.payload.data.eq(self.i.data),
            self.o.payload.keep.eq(self.i.keep),
            self.o.payload.last.eq(self.i.last),
            self.o.payload.error.eq(self.i.last & (self.i.user | ~self.i.keep[0])),
            self.o.valid.eq(self.i.valid),
        ]
        with m.If(self.reset):
            m.d.comb += [
                self.o.payload.keep.eq(1),
                self.o.payload.last.eq(1),
                self.o.payload.error.eq(1),
                self.o.valid.eq(inside),
            ]
        with m.If(self.o.valid):
            m.d[self._domain] += inside.eq(~self.o.payload.last)
        return m


class PadFrames(wiring.Component):
    """Makes each frame as long as its first beat allows, up to the least that Ethernet has.

    At 512 bits no frame leaves shorter than 60 bytes: CMAC does not pad. At 256 bits none leaves
    shorter than 32 bytes, which is enough for a MAC that pads by itself but counts on a second beat
    of 64 bits. The added bytes are zeros, whatever the bus held there.

    Latency: none. Throughput: a beat in each cycle.

    Args:
        bus_bits: Width of the packet streams.

    Members:
        i: Frames in, in the domain `sync`.
        o: Frames out.
    """

    def __init__(self, *, bus_bits: int) -> None:
        beat = PacketBeat(bus_bits)
        super().__init__({"i": In(stream.Signature(beat)), "o": Out(stream.Signature(beat))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal(reset_less=True)
        beat, size = self.i.payload, len(self.i.payload.keep)
        least = Const((1 << min(size, FRAME_BYTES_MIN)) - 1, size)
        m.d.comb += [
            self.o.payload.eq(beat),
            self.o.payload.data.eq(
                Cat(Mux(kept, beat.data[8 * n : 8 * n + 8], 0) for n, kept in enumerate(beat.keep))
            ),
            self.o.payload.keep.eq(Mux(inside, beat.keep, beat.keep | least)),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(~beat.last)
        return m


class ToMac(wiring.Component):
    """A packet stream as beats to a MAC.

    A frame that is under way when the MAC is reset is dropped to its end, so that its rest is not
    sent as a frame of its own. While the reset lasts nothing is taken beyond that.

    Latency: 1 cycle. Throughput: a beat in each cycle; `o` pauses within a frame only where `i`
    does.

    Args:
        bits: Width of the streams.
        domain: The MAC's clock of sending, which no reset of the MAC may reset.

    Members:
        i: Frames.
        reset: The MAC is being reset.
        o: The MAC's stream.
        paused: A frame has begun and `o` has no beat: the MAC has run dry. Must never be.
    """

    def __init__(self, *, bits: int, domain: str) -> None:
        self._domain = domain
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(bits))),
                "reset": In(1),
                "o": Out(AxisTo(bits)),
                "paused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d, beat = m.d[self._domain], self.i.payload
        # `entering`: the beat before on `i` was not a frame's last. `sending`: likewise on `o`.
        entering, sending, dropping = Signal(), Signal(), Signal()
        room, taken = Signal(), Signal()
        m.d.comb += [
            room.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(Mux(dropping, 1, room & ~self.reset)),
            taken.eq(self.i.valid & self.i.ready),
            self.paused.eq(sending & ~self.o.valid),
        ]
        with m.If(room):
            d += [
                self.o.valid.eq(taken & ~dropping),
                self.o.data.eq(beat.data),
                self.o.keep.eq(beat.keep),
                self.o.last.eq(beat.last),
                self.o.user.eq(beat.last & beat.error),
            ]
        with m.If(taken):
            d += entering.eq(~beat.last)
        with m.If(taken & beat.last):
            d += dropping.eq(0)
        with m.If(self.o.valid & self.o.ready):
            d += sending.eq(~self.o.last)
        with m.If(self.reset):
            d += [self.o.valid.eq(0), sending.eq(0)]
            # The last beat may have been taken just now: then there is no rest.
            with m.If(entering & ~(taken & beat.last)):
                d += dropping.eq(1)
        return m
