"""Proof: when a job is fenced, no frame that saw it enabled is left in the admit stage.

Admit and control as they are, in the engine's own wiring. Frames of any kind come at any time, and
registers are accessed at any time; all other parts answer as they like. From the fence until the
job is enabled again, admit orders nothing for it, lets nobody join it, and sets nothing of it.
"""

from amaranth.hdl import Assert, Cover, Elaboratable, Module, Value

from afflux_hdl.engine.layouts import OperationKind
from afflux_hdl.engine.parameters import Parameters
from tests.formal import seams
from tests.formal.boxes import BoxedEngine
from tests.formal.watched import CONTROL, RegisterMemory, watching

__all__ = ["DrainHarness"]


class DrainHarness(Elaboratable):
    """See above."""

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with watching(*CONTROL, kind=RegisterMemory):
            engine = BoxedEngine(m, self._parameters, ("Admit", "Control"), platform)
        for name in ("receive", "merge", "queue", "replicate", "transmit", "slot_state"):
            engine.anything(engine[name])
        for name in ("slot_memory", "worker_table", "route_table", "counters"):
            engine.anything(engine[name])
        admit, control, index = engine["admit"], engine["control"], engine["control.index"]
        operation = admit.o.payload
        seams.PHASE.guarantee(m, control.phase, admit.phase)
        fsm = engine.inside.fragment.find_subfragment("control").generated["fsm"]

        def state(*names: str) -> Value:
            return sum(fsm.state == fsm.encoding[name] for name in names) != 0

        fenced = state("FENCE", "FENCED", "COMPARE", "FORGET", "INITIALISE", "ENABLE")
        of_job = {
            "order": admit.o.valid
            & (operation.kind != OperationKind.RELEASE)
            & (operation.delivery.job == index),
            "parent joined": admit.parent_joined & (admit.parent_joined_job == index),
            "started": admit.started & (admit.started_job == index),
            "worker": admit.write_worker.enable & (admit.write_worker.address.job == index),
        }
        m.d.comb += [
            Assert(fsm.state < len(fsm.encoding)),
            *(Assert(~(fenced & what), name) for name, what in of_job.items()),
            Cover(fenced & (control.jobs[0].generation == 2)),
        ]
        for n, job in enumerate(control.jobs):
            closed = (state("DRAIN") | fenced) & (index == n)
            m.d.comb += Assert(~closed | ~job.enabled, "disabled")
        return m
