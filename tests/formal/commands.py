"""Proof: control enables only jobs that fit and that share no slot; its orders find room.

Control as it is, with any register accesses at any time, in the middle of commands too, and any
answers of the other parts. The comparison of a new job's slots with those of all other jobs takes
several cycles; shown is what holds of the job table in every cycle.
"""

from amaranth.hdl import Assert, Cover, Elaboratable, Module

from afflux_hdl.engine.control import Control
from afflux_hdl.engine.parameters import Parameters
from tests.formal import seams
from tests.formal.inside import Inside
from tests.formal.stage_streams import drive
from tests.formal.watched import CONTROL, RegisterMemory, watching

__all__ = ["CommandsHarness"]


class CommandsHarness(Elaboratable):
    """See above."""

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        control = Control(p)
        with watching(*CONTROL, kind=RegisterMemory):
            inside = Inside(control, platform)
            m.submodules.control = inside.fragment
        drive(m, control)
        seams.PHASE.require(m, control.phase)
        jobs = [control.jobs[n] for n in range(p.jobs)]
        built = {"workers": p.workers, "lanes": p.lanes, "slots": p.slots}
        seams.JOBS.guarantee(m, jobs, **built)
        seams.CONTROL_ORDERS.guarantee(m, control.orders, control.orders_full, control.phase)
        seams.OPERATION.guarantee(m, control.orders, lanes=p.lanes)

        # A command's findings when it comes to enable its job.
        fields, state = inside["fields"], inside.state
        index, step = inside["index"], inside["step"]
        workers, lanes = fields["job_workers"], fields["job_lanes"]
        base, count = fields["job_slot_base"], fields["job_slot_count"]
        end = base + count
        fits = (
            ((workers >= 1) & (workers <= p.workers))
            & ((lanes >= 1) & (lanes <= p.lanes))
            & ((count >= 1) & (end <= p.slots))
        )
        comparing = state("COMPARE")
        passed = state("FORGET") | state("INITIALISE") | state("ENABLE")
        closed = state("DRAIN") | state("FENCE") | state("FENCED")
        m.d.comb += [
            Assert(inside.in_a_state),
            Assert(inside["busy"] == (inside["asked"] | ~state("IDLE")), "busy"),
            Assert(~inside["busy"] | (inside["slots_end"] == end), "of these slots"),
            Assert(~(comparing | passed) | fits, "fits"),
            Assert(~comparing | (step <= p.jobs + 1)),
        ]
        if p.jobs > 1:
            m.d.comb += Assert(state("IDLE") | (index < p.jobs))
        for n, job in enumerate(jobs):
            known = inside["ranges"].words[n]
            apart = (end <= job.base) | (job.base + job.count <= base)
            compared = passed | (comparing & (n + 3 <= step))
            m.d.comb += [
                Assert(~job.enabled | (known.base == job.base)),
                Assert(~job.enabled | (known.end == job.base + job.count)),
                Assert(~(compared & job.enabled) | apart, "compared"),
                Assert(~((closed | comparing | passed) & (index == n)) | ~job.enabled, "disabled"),
            ]
        m.d.comb += Cover(jobs[0].enabled)
        return m
