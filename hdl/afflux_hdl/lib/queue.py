"""Queue: payloads of any shape, first in, first out, from stream to stream.

Proved, where it is `always_ready`, not to overflow: `tests/formal/stage_streams.py`,
`tests/formal/sending.py`. Tested: `tests/hdl/test_queue.py`.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Keeps payloads in order.

    Latency: 2 cycles, or 1 if not `buffered`. Throughput: one payload in and one out in each cycle.
    Overflow: `i` waits while the queue is full; if it is `always_ready`, a payload that finds the
    queue full is lost: the writer must leave room for payloads under way, by `level`.

    Args:
        shape: Shape of a payload.
        depth: Payloads that the queue holds; at least 3 if it is buffered.
        buffered: Block RAM with a register behind it. Otherwise a payload is read from memory in
            the cycle in which it is taken, which suits short queues.
        always_ready: `i` is never stopped.

    Raises:
        ValueError: If the depth is too small.

    Members:
        i: Payloads in.
        o: Payloads out.
        level: Payloads in the queue.
    """

    def __init__(
        self, shape: ShapeLike, *, depth: int, buffered: bool = True, always_ready: bool = False
    ) -> None:
        # Amaranth's buffered FIFO of depth 2 is full with one payload in it.
        if depth < (3 if buffered else 1):
            raise ValueError(f"depth must be at least {3 if buffered else 1}, not {depth}")
        self._shape = shape
        self._depth = depth
        self._fifo = SyncFIFOBuffered if buffered else SyncFIFO
        self._always_ready = always_ready
        super().__init__(
            {
                "i": In(stream.Signature(shape, always_ready=always_ready)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fifo = fifo = self._fifo(
            width=Shape.cast(self._shape).width, depth=self._depth
        )
        m.d.comb += [
            fifo.w_data.eq(Value.cast(self.i.payload)),
            fifo.w_en.eq(self.i.valid),
            Value.cast(self.o.payload).eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.level),
        ]
        if not self._always_ready:
            m.d.comb += self.i.ready.eq(fifo.w_rdy)
        # For proofs.
        self.fifo = fifo
        return m
