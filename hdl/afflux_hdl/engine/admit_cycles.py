"""The registers of each cycle of the admit stage, and its decision.

Names end in the number of the cycle. Proved and tested with `afflux_hdl.engine.admit`.
"""

from typing import NamedTuple

from amaranth.hdl import Signal, Value
from amaranth.lib import data

from afflux_hdl.engine.layouts import FrameSummary, JobEntry, Route
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_state import SlotState, VersionState
from afflux_hdl.engine.verdict import Checks, RoundPosition, Screened, Verdict

__all__ = ["Cycle1", "Cycle2", "Cycle3", "Decision"]


class Cycle1:
    """Cycle 1, in which the tables answer.

    Attributes:
        valid: There is a frame.
        frame, job: It, and the entry of its job.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.valid = Signal(name="valid1")
        self.frame = Signal(FrameSummary(parameters), name="frame1")
        self.job = Signal(JobEntry(parameters), name="job1")


class Cycle2:
    """Cycle 2, in which the slot's state is here.

    Attributes:
        valid, frame, job: As in cycle 1.
        slot: The frame's slot.
        group: To whom the job's results go, if not to each worker.
        checks: Its checks, but for those that are still in parts.
        key, address: Parts of the key, and of where it comes from, that are right.
        started: A contribution to the job had been accepted two frames before.
        follows: The frame before is of the same job.
        before, after: The rounds next to the frame's, so that they only have to be compared.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self.valid = Signal(name="valid2")
        self.frame = Signal(FrameSummary(p), name="frame2")
        self.job = Signal(JobEntry(p), name="job2")
        self.slot = Signal(p.slot_bits, name="slot2")
        self.group = Signal(Route["group"].shape, name="group2")
        self.checks = Signal(Checks, name="checks2")
        self.key, self.address = Signal(4), Signal(4)
        self.started, self.follows = Signal(), Signal(name="follows2")
        self.before, self.after = Signal(32), Signal(32, name="after2")


class Cycle3:
    """Cycle 3, in which the verdict is passed.

    Attributes:
        valid, frame, job, slot, group: As in cycle 2.
        checks, screened: The checks, and what they have led to.
        state, position: The slot's state, and where in it the frame's round lies.
        held: The contents of the version of the frame's round.
        own: The bit of the frame's worker.
        differs: Parts in which the frame's operation differs from the version's.
        borrow: Of the lower halves of the two rounds.
        left_opened, left_joined: Contributions that are missing after this one, if it opens the
            round, and if it does not.
        one_worker, one_left: These are none.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self.valid, self.frame = Signal(), Signal(FrameSummary(p), name="frame3")
        self.job = Signal(JobEntry(p), name="job3")
        self.slot = Signal(p.slot_bits, name="slot3")
        self.group = Signal(Route["group"].shape, name="group3")
        self.checks = Signal(Checks, name="checks3")
        self.screened = Signal(Screened, name="screened3")
        self.state = Signal(SlotState(p), name="state3")
        self.position = Signal(RoundPosition, name="position3")
        self.held = Signal(VersionState(p), name="this3")
        self.own = Signal(p.workers, name="own3")
        self.differs = Signal(3, name="differs3")
        self.borrow = Signal(name="borrow3")
        bits = p.count_bits
        self.left_opened, self.left_joined = Signal(bits), Signal(bits, name="left_joined3")
        self.one_worker, self.one_left = Signal(), Signal(name="one_left3")


class Decision(NamedTuple):
    """The decision of cycle 3 on its frame.

    Attributes:
        verdict: The frame's.
        overwrites: It is the first of its round, or the round's result.
        filled: It is the round's last contribution.
        completed: It completes the round.
        held: The contents of the version of its round from now on.
    """

    verdict: Verdict
    overwrites: Value
    filled: Signal
    completed: Signal
    held: data.View
