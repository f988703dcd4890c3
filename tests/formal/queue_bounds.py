"""Proof: the queues of operations and of short answers never overflow.

The engine's own wiring, its queues and the admit stage as they are. Frames of any kind come at any
time; the merge stage takes an operation whenever it likes, or none; so does the replicate stage.
"""

from unittest.mock import patch

from amaranth.hdl import Assert, Cover, Elaboratable, Module, Value

from afflux_hdl.engine import engine as real
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.delivery_queue import REPLIES
from afflux_hdl.engine.engine import OPERATIONS
from afflux_hdl.engine.parameters import Parameters
from tests.formal import seams
from tests.formal.boxes import BoxedEngine
from tests.formal.watched import watching

__all__ = ["QueueBoundsHarness"]


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
        # The queues' content does not matter here: their reads may give anything.
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
        parts = ("control", "admit", "merge", "queue", "transmit", "slot_memory")
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
        for n, valid in enumerate(_stages(admit), 1):
            m.d.comb += Assert(~valid | (admit.phase == n % 2), "in step with the phase")
        return m

    def _of_operations(self, m: Module, engine: BoxedEngine) -> None:
        admit, control, operations = engine["admit"], engine["control"], engine["operations.fifo"]
        seams.CONTROL_ORDERS.require(m, control.orders, admit.o_full, admit.phase)
        in_flight = sum(_stages(admit))
        m.d.comb += [
            Assert(~operations.w_en | operations.w_rdy, "operations: no overflow"),
            Assert(~(admit.o.valid & control.orders.valid), "one writer at a time"),
            Cover(admit.o_full),
            # For the induction: room for all that is under way.
            Assert(operations.r_rdy | (engine["operations.fifo.inner_level"] <= 1)),
            Assert(
                operations.level + in_flight + control.orders.valid <= self._operations,
                "room for all under way",
            ),
        ]


def _stages(admit: Admit) -> list[Value]:
    """Return for cycles 1 to 4 whether there is a frame."""
    return [admit.cycle1.valid, admit.cycle2.valid, admit.cycle3.valid, admit.o.valid]
