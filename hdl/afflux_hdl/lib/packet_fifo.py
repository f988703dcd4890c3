"""Packet FIFO: keeps or drops whole frames.

Proved: `tests/formal/node_streams.py`. Tested: `tests/hdl/test_node_parts.py`,
`tests/hdl/test_node_latency.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.ram import Ram

__all__ = ["PacketFifo"]


class PacketFifo(wiring.Component):
    """Stores frames; a frame comes out only when all of it is in and good.

    A frame's beats are written behind the frames that are already in. Its last beat either commits
    the frame or rolls the tail back to where the frame began.

    Latency: 2 cycles from a frame's last beat to its first beat on `o`. Throughput: one beat in
    each cycle in, one out, without a gap between frames. Overflow: a lossy FIFO never stalls and
    drops a frame that does not fit; the other kind stalls, and drops only a frame that is larger
    than the whole FIFO, unless `blocked` says that stalling would be for long: then it is lossy
    too. Either way the whole frame is dropped, and its end is marked on `overflowed`.

    With several network ports a beat is stored with its `net_ports` too.

    A beat is stored with `last` and with `keep` without bit 0, which is always set: 9/8 of its data
    bits, which is just the width of block RAMs.

    Args:
        bus_bits: Width of the packet streams.
        depth_bytes: Size: a power of two, at least two beats.
        lossy: Drop frames instead of stalling.
        ports: Network ports behind the streams.
        late_ready: `o.ready` comes late in a cycle: what follows is worked out for either case.

    Members:
        i: Frames in; `ready` is always 1 if the FIFO is lossy.
        o: Frames out; `error` is 0, but see `cut`.
        blocked: Nobody takes frames: do not stall.
        cut: In the first cycle after a reset: the reset has cut a frame off on `o`. A beat with
            `last` and `error` ends it; its bytes are not defined.
        committed, overflowed, refused: The frame that ends in this cycle is kept, did not fit, or
            had `error` set.
        gave_way: With `overflowed`: it would have fitted into an empty FIFO of the kind that
            stalls, but found it full while `blocked`.
        idle: Empty.
    """

    def __init__(
        self,
        *,
        bus_bits: int,
        depth_bytes: int,
        lossy: bool,
        ports: int = 1,
        late_ready: bool = False,
    ) -> None:
        depth = depth_bytes // (bus_bits // 8)
        if depth < 2 or depth_bytes != depth * (bus_bits // 8) or depth & (depth - 1):
            raise ValueError(
                f"depth_bytes must be a power of two of at least two beats, not {depth_bytes}"
            )
        self._bus_bits = bus_bits
        self._depth = depth
        self._lossy = lossy
        self._ports = ports
        self._late_ready = late_ready
        beat = PacketBeat(bus_bits, ports)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(beat)),
                "blocked": In(1),
                "cut": In(1),
                "committed": Out(1),
                "overflowed": Out(1),
                "refused": Out(1),
                "gave_way": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, keeps, address_bits = self._bus_bits, self._bus_bits // 8, ceil_log2(self._depth)

        width = bits + keeps + (self._ports if self._ports > 1 else 0)
        m.submodules.content = content = Ram(width=width, address_bits=address_bits)
        # One more bit than an address has tells a full FIFO from an empty one.
        # The first beat is a place where nothing is written until all others have been: what ends a
        # frame that a reset has cut off is read from there.
        tail, start, head = (
            Signal(address_bits + 1, name=name, init=1) for name in ("tail", "start", "head")
        )
        ending = Signal()
        full, gives_up, dropping, lost = Signal(), Signal(), Signal(), Signal()
        taken, ends = Signal(), Signal()
        m.d.comb += [
            full.eq((tail - head)[: address_bits + 1] == self._depth),
            taken.eq(self.i.valid & self.i.ready),
            ends.eq(taken & self.i.payload.last),
            lost.eq(dropping | gives_up),
            self.committed.eq(ends & ~lost & ~self.i.payload.error),
            self.refused.eq(ends & self.i.payload.error),
            self.overflowed.eq(ends & lost & ~self.i.payload.error),
            content.write.enable.eq(taken & ~lost),
            content.write.address.eq(tail),
            content.write.data.eq(
                Cat(
                    *(self.i.payload.data, self.i.payload.keep[1:], self.i.payload.last),
                    *([self.i.payload.net_ports] if self._ports > 1 else []),
                )
            ),
        ]
        if self._lossy:
            m.d.comb += [self.i.ready.eq(1), gives_up.eq(full)]
        else:
            too_large, gives_way, giving_way = Signal(), Signal(), Signal()
            m.d.comb += [
                # The frame fills the whole FIFO: none of it would ever be freed.
                too_large.eq((tail - start)[: address_bits + 1] == self._depth),
                gives_way.eq(giving_way | (full & self.blocked & ~too_large & ~dropping)),
                gives_up.eq(too_large | gives_way),
                self.i.ready.eq(~full | lost),
                self.gave_way.eq(self.overflowed & gives_way),
            ]
            with m.If(taken):
                m.d.sync += giving_way.eq(gives_way & ~self.i.payload.last)
        with m.If(taken):
            m.d.sync += dropping.eq(lost & ~self.i.payload.last)
            with m.If(self.committed):
                m.d.sync += [tail.eq(tail + 1), start.eq(tail + 1)]
            with m.Elif(self.i.payload.last):
                m.d.sync += tail.eq(start)
            with m.Elif(~lost):
                m.d.sync += tail.eq(tail + 1)

        # The memory always reads the beat that will be at the head in the next cycle.
        next_head = Signal.like(head)
        m.d.comb += [
            next_head.eq(Mux(self.cut, 0, head + (self.o.valid & self.o.ready))),
            content.read.address.eq(next_head),
            self.o.payload.data.eq(content.read.data[:bits]),
            self.o.payload.keep.eq(Cat(Const(1, 1), content.read.data[bits : bits + keeps - 1])),
            self.o.payload.last.eq(content.read.data[bits + keeps - 1] | ending),
            self.o.payload.error.eq(ending),
            self.idle.eq(tail == head),
        ]
        if self._ports > 1:
            m.d.comb += self.o.payload.net_ports.eq(content.read.data[bits + keeps :])
        m.d.sync += [head.eq(next_head), self.o.valid.eq(next_head != start)]
        if self._late_ready:
            behind = Signal.like(head)
            m.d.comb += behind.eq(head + 1)
            goes_on, has_one, leaves = behind != start, head != start, self.o.valid & self.o.ready
            # Not `Mux`: Yosys would make one comparison, behind the choice.
            left = (leaves & goes_on) | (~leaves & has_one)
            m.d.sync += self.o.valid.eq(Mux(self.cut, start.any(), left))
        with m.If(self.cut | self.o.ready):
            m.d.sync += ending.eq(self.cut)
        # For proofs.
        self.tail, self.start, self.head = tail, start, head
        return m
