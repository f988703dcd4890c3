"""Checks of whose frames leave an engine next, where several jobs have some."""

from collections.abc import Sequence

from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.slow_network import STUCK
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = ["check_turns"]

SETTLED_CYCLES = 600
"""The time by which all input is queued, and the part with room after the queue has left it."""

MOST_AHEAD = 24
"""More frames than have room behind the queue."""

Sent = tuple[int, int]
"""A frame's job, and its cost in units of 128 bytes."""


def check_turns(engine: VerilatedEngine, build: Build) -> None:
    """Check that jobs take turns by size, frame by frame, as a model of the scheduler says.

    The network takes nothing until each job has results queued, of all sizes, and some that its
    workers have asked for again: of its first slot, whose result they have.
    """
    jobs, slots = min(3, build["jobs"]), build["slots"] // build["jobs"]
    workers, lanes = min(5, build["workers"]), build["lanes"]
    for shift in range(3):
        director = Director(**build)
        engine.reset()
        perform(engine, director.configure())
        job_of: dict[bytes, int] = {}
        again: list[list[bytes]] = []
        for number in range(jobs):
            job = Job(
                number=number, workers=workers, lanes=lanes, slots=slots, slot_base=slots * number
            )
            perform(engine, director.create(job))
            blocks = {lane: [worker_word(number, 0)] * 64 for lane in range(shift % (lanes + 1))}
            again.append([job.data(worker, 0, 0, blocks) for worker in range(workers)])
            results = [answer for one in again[-1] for answer in director.golden.receive(one)]
            assert sorted(engine.play(again[-1])) == sorted(results)
            job_of |= dict.fromkeys(results, number)
        # The first job's go as far as they can, before the others come.
        for number in range(jobs):
            job = Job(
                number=number, workers=workers, lanes=lanes, slots=slots, slot_base=slots * number
            )
            for step in range(2):
                for slot in range(1, slots):
                    count = (number + shift + 2 * slot + step) * lanes // 3 % (lanes + 1)
                    blocks = {lane: [worker_word(number, slot)] * 64 for lane in range(count)}
                    frames = [job.data(worker, slot, step, blocks) for worker in range(workers)]
                    for frame in frames:
                        for answer in director.golden.receive(frame):
                            job_of[answer] = number
                    engine.play(frames, STUCK)
            engine.play(again[number], STUCK)
            for _ in range(SETTLED_CYCLES):
                engine.read(address_of("identity"))
        sent = [(job_of[frame], 1 + 2 * (len(frame) // 256)) for frame in engine.play([])]
        assert len(sent) == jobs * workers * (2 * (slots - 1) + 1)
        # Those that were chosen while the first job was alone say little.
        quantum = 1 + 4 * lanes
        assert any(
            fits(sent[ahead:], balance, quantum)
            for ahead in range(MOST_AHEAD)
            for balance in range(1, quantum + 1)
            if all(job == 0 for job, _ in sent[:ahead])
        ), sent


def worker_word(number: int, slot: int) -> int:
    """Return a word that differs from job to job and from slot to slot."""
    return number << 8 | slot


def fits(sent: Sequence[Sent], balance: int, quantum: int) -> bool:
    """Return whether frames are in the order of surplus round robin.

    Args:
        sent: All frames in their order, of jobs that all have some.
        balance: The rest of the turn of the first one's job.
        quantum: Units of a turn.
    """
    left = [sum(job == number for job, _ in sent) for number in range(1 + max(sent)[0])]
    debts = [0] * len(left)
    turn = sent[0][0]
    for job, cost in sent:
        if job != turn:
            return False
        left[job] -= 1
        balance -= cost
        if left[job] and balance > 0:
            continue
        owed = min(balance, 0)
        others = [n % len(left) for n in range(turn + 1, turn + len(left)) if left[n % len(left)]]
        debts[turn] = owed
        turn = others[0] if others else turn
        balance = debts[turn] + quantum
    return True
