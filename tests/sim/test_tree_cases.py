"""The cases for groups and parents on the golden device: they hold, and they can fail."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import CONFLICT, DATA, Packet
from afflux_sim.golden.state import Job as JobState
from afflux_sim.golden.state import Parent
from tests.scenarios.cases import CASES, Case
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.golden_device import GoldenDevice
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform
from tests.scenarios.tree_cases import TREE_CASES

BUILT: Build = {"workers": 8, "lanes": 3, "jobs": 2, "slots": 8}
ALL_CASES = CASES | TREE_CASES


def play(cases: Iterable[Case], job: Job, engine_class: type[GoldenEngine] = GoldenEngine) -> None:
    """Play cases on the golden device; raise if anything is not as it should be."""
    director = Director(**BUILT)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for case in cases:
            yield from director.create(job)
            yield from case(director, job, random.Random(6))
        yield from director.check_counters()

    perform(GoldenDevice(engine_class=engine_class, **BUILT), scenario())


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2)], ids=str)
@pytest.mark.parametrize("name", ALL_CASES)
def test_case(name: str, shape: tuple[int, int, int]) -> None:
    workers, lanes, slots = shape
    play([ALL_CASES[name]], Job(number=0, workers=workers, lanes=lanes, slots=slots))


# Planted bugs, each of which one of the cases must notice.


class AnswersWhileWaiting(GoldenEngine):
    """Takes a full round for a complete one."""

    def _data(self, job: JobState, packet: Packet) -> tuple[str, list[bytes]]:
        slot = job.slots[packet.slot]
        if slot.waiting and slot.round == packet.round:
            return "duplicates", self._replay(job, packet)
        return super()._data(job, packet)


class SendsUpOnce(GoldenEngine):
    """A partial sum that is lost is lost."""

    def _data(self, job: JobState, packet: Packet) -> tuple[str, list[bytes]]:
        counter, sent = super()._data(job, packet)
        waiting = job.slots[packet.slot].waiting
        return counter, [] if counter == "duplicates" and waiting else sent


class TakesAnyRound(GoldenEngine):
    """Takes a result of another round of the same version."""

    def _parent_result(self, job: JobState, packet: Packet) -> tuple[str, list[bytes]]:
        slot = job.slots[packet.slot]
        if slot.waiting and (packet.round - slot.round) % 2 == 0:
            packet = replace(packet, round=slot.round)
        return super()._parent_result(job, packet)


class TrustsAnybody(GoldenEngine):
    """Does not look at where a parent's frame comes from."""

    def _judge_from_parent(self, number: int, frame: bytes) -> tuple[str, list[bytes]]:
        job = self.jobs[number]
        if job is not None and job.parent is not None:
            there = job.parent.endpoint
            frame = frame[:26] + there.packed_address + frame[30:]
            frame = frame[:34] + there.port.to_bytes(2, "big") + frame[36:]
        return super()._judge_from_parent(number, frame)


class HidesConflicts(GoldenEngine):
    """Sends every partial sum as DATA."""

    def _to_parent(self, job: JobState, parent: Parent, packet: Packet) -> bytes:
        if packet.type == CONFLICT:
            packet = replace(packet, type=DATA)
        return super()._to_parent(job, parent, packet)


class RemembersConflicts(GoldenEngine):
    """A leaf's own conflict outlives the parent's verdict."""

    def _parent_result(self, job: JobState, packet: Packet) -> tuple[str, list[bytes]]:
        if job.slots[packet.slot].versions[packet.round & 1].conflict:
            packet = replace(packet, type=CONFLICT)
        return super()._parent_result(job, packet)


class KnowsNoConflictOfAChild(GoldenEngine):
    """Takes a child's CONFLICT for DATA."""

    def _data(self, job: JobState, packet: Packet) -> tuple[str, list[bytes]]:
        return super()._data(job, replace(packet, type=DATA))


class ReplaysToTheGroup(GoldenEngine):
    """Sends replays to everybody."""

    def _replay(self, job: JobState, packet: Packet) -> list[bytes]:
        if job.group is None:
            return super()._replay(job, packet)
        self._count("replays")
        return [self._result(job, packet.slot, packet.round, 255, job.group.endpoint)]


class OnePortForAllParents(GoldenEngine):
    """Sends partial sums from its own port."""

    def _to_parent(self, job: JobState, parent: Parent, packet: Packet) -> bytes:
        frame = super()._to_parent(job, parent, packet)
        return frame[:34] + self.endpoint.port.to_bytes(2, "big") + frame[36:]


BUGS = (
    AnswersWhileWaiting,
    SendsUpOnce,
    TakesAnyRound,
    TrustsAnybody,
    HidesConflicts,
    RemembersConflicts,
    KnowsNoConflictOfAChild,
    ReplaysToTheGroup,
    OnePortForAllParents,
)


@pytest.mark.parametrize("engine_class", BUGS)
def test_planted_bugs_are_caught(engine_class: type[GoldenEngine]) -> None:
    job = Job(number=0, workers=3, lanes=2, slots=2)
    with pytest.raises(AssertionError):
        play(TREE_CASES.values(), job, engine_class)
