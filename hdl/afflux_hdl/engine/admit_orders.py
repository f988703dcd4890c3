"""Orders of the admit stage to the merge stage: the operation that comes of a decision.

Tested: `tests/sim/test_engine_cases.py`, `tests/sim/test_engine_tree.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.admit_cycles import Cycle3, Decision
from afflux_hdl.engine.layouts import OperationKind, SlotOperation
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import VersionState

__all__ = ["order"]


def order(
    m: Module, parameters: Parameters, now: Cycle3, decision: Decision
) -> tuple[data.View, Signal]:
    """Compose the operation, which is there in cycle 4; return it, and whether there is one.

    Args:
        m: Where to add it.
        parameters: The engine's.
        now: The frame in cycle 3.
        decision: On it.
    """
    p = parameters
    verdict = decision.verdict
    header = now.frame.header
    changes, up = Signal(), Signal()
    sum_again = verdict.replay & now.position.same & now.position.waiting
    m.d.comb += [
        changes.eq(verdict.accept | verdict.take),
        up.eq(Mux(verdict.accept, now.job.parent, sum_again)),
    ]
    valid4 = Signal()
    operation4 = Signal(SlotOperation(p), name="operation4")
    delivery = operation4.delivery
    states = (decision.held.as_value(), now.held.as_value())
    sent = data.View(VersionState(p), Mux(changes, *states))
    with m.If(changes):
        m.d.sync += operation4.kind.eq(OperationKind.MERGE)
    with m.Elif(verdict.replay):
        m.d.sync += operation4.kind.eq(OperationKind.REPLAY)
    with m.Else():
        m.d.sync += operation4.kind.eq(OperationKind.RELEASE)
    m.d.sync += [
        valid4.eq(now.valid),
        operation4.start.eq(now.frame.start),
        operation4.end.eq(now.frame.end),
        operation4.present.eq(header.present),
        operation4.fresh.eq(header.present & ~Mux(decision.overwrites, 0, now.held.present)),
        operation4.opening.eq(decision.overwrites),
        operation4.opcode.eq(header.opcode),
        operation4.version.eq(header.round[0]),
        operation4.complete.eq(decision.filled | verdict.take),
        delivery.up.eq(up),
        delivery.everyone.eq(changes),
        delivery.worker.eq(header.worker),
        delivery.job.eq(now.frame.job),
        delivery.generation.eq(now.job.generation),
        delivery.slot.eq(now.slot),
        delivery.header.eq(header),
        delivery.header.version.eq(wire.VERSION),
        delivery.header.type.eq(
            Mux(sent.conflict, wire.Type.CONFLICT, Mux(up, wire.Type.DATA, wire.Type.RESULT))
        ),
        # A parent's frame has its parent's job and key.
        delivery.header.job.eq(now.frame.job),
        delivery.header.key.eq(now.job.key),
        delivery.header.present.eq(sent.present),
        delivery.header.operation.eq(sent.operation),
        delivery.header.opcode.eq(sent.opcode),
        delivery.header.dtype.eq(sent.dtype),
    ]
    # Sums go up unrounded, so they have a dtype of their own. All results come from the parent, if
    # there is one.
    partial = Signal()
    m.d.comb += partial.eq(up & sent.opcode[3] & ~sent.conflict)
    m.d.sync += [
        operation4.partial.eq(now.frame.partial),
        delivery.in_all.eq(sent.in_all),
        delivery.partial.eq(partial),
        delivery.rounded.eq(now.job.parent & ~up),
    ]
    with m.If(partial):
        # `layouts.PartialDtype` of float32 has one more bit than those of the others.
        m.d.sync += delivery.header.dtype.eq(Cat(sent.dtype[:2], ~sent.dtype[1], 1))
    return operation4, valid4
