"""Jobs with random parameters, which share the pool of an engine."""

import random

from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job, ParentJob, ResultGroup

__all__ = ["draw_job", "renew_jobs"]


def draw_job(number: int, build: Build, choose: random.Random) -> Job:
    # Each job has a part of the pool to itself.
    share = build["slots"] // build["jobs"]
    slots = choose.randint(1, share)
    return Job(
        number=number,
        workers=choose.choice([1, 2, 3, 5]),
        lanes=choose.randint(1, build["lanes"]),
        slots=slots,
        slot_base=number * share + choose.randint(0, share - slots),
        first_round=choose.choice([0, 1, 2**31, 2**32 - 1, choose.getrandbits(32)]),
        key=choose.getrandbits(64),
        credit=choose.getrandbits(16),
        one_host=choose.random() < 0.3,
        group=draw_group(choose) if choose.random() < 0.3 else None,
        parent=draw_parent(choose) if choose.random() < 0.5 else None,
    )


def draw_group(choose: random.Random) -> ResultGroup:
    octets = [choose.randint(224, 239), *choose.randbytes(3)]
    return ResultGroup(".".join(map(str, octets)), choose.getrandbits(16))


def draw_parent(choose: random.Random) -> ParentJob:
    return ParentJob(
        mac=(b"\x02" + choose.randbytes(5)).hex(":"),
        address=f"10.0.{choose.randrange(256)}.{choose.randrange(1, 255)}",
        port=choose.getrandbits(16),
        number=choose.getrandbits(8),
        worker=choose.getrandbits(6),
        key=choose.getrandbits(64),
    )


def renew_jobs(director: Director, build: Build, choose: random.Random) -> Actions[list[Job]]:
    """Create every job anew, but for one that stays destroyed; all ask to join their parents."""
    jobs = [draw_job(number, build, choose) for number in range(build["jobs"])]
    for job in jobs:
        yield from director.destroy(job)
    gone = choose.choice(jobs)
    for job in jobs:
        if job is not gone:
            yield from director.create(job)
            if job.parent:
                yield from director.join_parent(job)
    return jobs
