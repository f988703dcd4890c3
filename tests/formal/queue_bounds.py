"""Proof: the queues of operations and of short answers never overflow.

The engine's own wiring, its queues and the admit stage as they are. Frames of any kind come at any
time; the merge stage takes an operation whenever it likes, or none; so does the replicate stage.
"""

from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover, Elaboratable, Module, Signal

from afflux_hdl.engine import engine as real
from afflux_hdl.engine.delivery_queue import REPLIES
from afflux_hdl.engine.engine import OPERATIONS
from afflux_hdl.engine.parameters import Parameters
from tests.formal import seams
from tests.formal.boxes import BoxedEngine
from tests.formal.watched import watching

__all__ = ["QueueBoundsHarness"]

CONTROLS = 2
"""Orders of control that may be under way."""


class QueueBoundsHarness(Elaboratable):
    """See above.

    Args:
        of: The queue: `operations` or `replies`.
        operations, replies: Depths of the queues. As the engine is built, unless a bug is to show
            after fewer frames; the margins stay the engine's own.
        sizes: Parameters of the engine that are not the default.
    """

    def __init__(
        self, of: str, operations: int = OPERATIONS, replies: int = REPLIES, **sizes: int
    ) -> None:
        self._parameters = Parameters(**sizes)
        self._of, self._operations, self._replies = of, operations, replies

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # What the queues hold does not matter here: their reads may give anything.
        with (
            watching("amaranth.lib.fifo"),
            patch.object(real, "OPERATIONS", self._operations),
            patch.object(real, "REPLIES", self._replies),
        ):
            engine = BoxedEngine(m, self._parameters, ("Admit",), platform)
        for name in ("receive", "merge", "queue", "replicate", "transmit", "slot_state"):
            engine.anything(engine[name])
        for name in ("slot_memory", "worker_table", "route_table", "control", "counters"):
            engine.anything(engine[name])
        admit, replies = engine["admit"], engine["replies.fifo"]
        parts = ("control", "admit", "merge", "transmit", "slot_memory")
        seams.PHASE.guarantee(m, *(engine[part].phase for part in parts))

        if self._of == "operations":
            self._of_operations(m, engine)
        else:
            m.d.comb += [
                Assert(~replies.w_en | replies.w_rdy, "replies: no overflow"),
                Assert(replies.level + admit.replies.valid <= self._replies, "none under way"),
                Cover(admit.replies_full),
            ]
        # For the induction: frames are two cycles apart.
        for n in range(1, 5):
            in_step = admit.phase == n % 2
            m.d.comb += Assert(~engine[f"admit.valid{n}"] | in_step, "in step with the phase")
        return m

    def _of_operations(self, m: Module, engine: BoxedEngine) -> None:
        """Count those of control apart: admit does not leave room for them only."""
        admit, control, operations = engine["admit"], engine["control"], engine["operations.fifo"]
        # How many in the queue are control's: any of them may be the next to leave.
        own, next_own = Signal(range(CONTROLS + 1)), Signal()
        leaves = operations.r_rdy & operations.r_en
        m.d.comb += next_own.eq((own != 0) & (AnySeq(1) | (operations.level == own)))
        m.d.sync += own.eq(own + control.orders.valid - (leaves & next_own))
        since = Signal(2)
        seams.CONTROL_ORDERS.require(m, control.orders, control.fenced, admit.phase, since)
        seams.FENCED.require(m, own, control.fenced)
        in_flight = sum(engine[f"admit.valid{n}"] for n in (1, 2, 3, 4))
        others = Signal(range(self._operations + 1))
        m.d.comb += [
            others.eq(operations.level - own),
            Assert(~operations.w_en | operations.w_rdy, "operations: no overflow"),
            Assert(~(admit.o.valid & control.orders.valid), "one writer at a time"),
            Cover(admit.o_full),
            # For the induction: room for all that is under way.
            Assert((own <= operations.level) & (own <= since) & (since <= CONTROLS)),
            Assert(operations.r_rdy | (engine["operations.fifo.inner_level"] <= 1)),
            Assert(others + in_flight <= self._operations - CONTROLS, "room for all under way"),
        ]
