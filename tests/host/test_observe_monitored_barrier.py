"""The monitored barrier, over Gloo groups: all ranks come, one does not, several do not."""

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from afflux.group.reducers.monitored_barrier import monitored_barrier
from afflux.group_statistics import group_of
from afflux_drivers.errors import RanksMissing
from tests.support.host.ranks import run_ranks, values

MEMBERS = (1, 2, 3)


def meet(rank, _size):
    found = []
    for missing, wait_all_ranks in [((), False), ((2,), False), ((1, 2), True), ((0,), False)]:
        # Without rank 0 of the group, its own timeout counts.
        group = dist.new_group(list(MEMBERS), timedelta(seconds=3), backend="gloo")
        outcome: Any = None
        if rank in MEMBERS:
            own = MEMBERS.index(rank)
            gloo = group._get_backend(torch.device("cpu"))
            started = time.monotonic()
            if own not in missing:
                try:
                    monitored_barrier(gloo, MEMBERS, timedelta(seconds=1), wait_all_ranks)
                    outcome = "passed"
                except RuntimeError as error:
                    ranks = error.ranks if isinstance(error, RanksMissing) else ()
                    outcome = ranks, str(error), time.monotonic() - started
        found.append(outcome)
        # Nobody leaves while others wait.
        dist.barrier()
    return found


def test_who_is_missing_is_named_by_rank_in_the_group_and_in_the_world():
    outcomes = values(run_ranks(meet, 4, environment={"AFFLUX_AGGREGATOR": "shm://"}))
    assert [each[0] for each in outcomes] == [None, "passed", "passed", "passed"]
    # One is missing.
    ranks, text, seconds = outcomes[1][1]
    assert ranks == (2,)
    assert "Rank 2 failed to pass monitoredBarrier in 1000 ms" in text
    assert "in the world: 3" in text
    assert seconds < 3
    ranks, text, _ = outcomes[2][1]
    assert ranks == ()
    assert "Rank 1 successfully reached monitoredBarrier, but received errors" in text
    # All that are missing.
    ranks, text, _ = outcomes[1][2]
    assert ranks == (1, 2)
    assert "Ranks 1, 2 failed to pass monitoredBarrier" in text
    assert "in the world: 2, 3" in text
    # Rank 0 itself: nobody can say more than that it does not answer.
    for rank in (2, 3):
        ranks, text, _ = outcomes[rank][3]
        assert ranks == ()
        assert "waiting for send/recv from rank 0" in text


def meet_behind_a_queue(rank, size):
    core = group_of(None)
    if rank == 1:
        run_gloo = core._calls.run_gloo

        def late(*arguments):
            time.sleep(0.3)
            return run_gloo(*arguments)

        patch = pytest.MonkeyPatch()
        patch.setattr(core._calls, "run_gloo", late)
    into = [torch.empty(3) for _ in range(size)] if rank == 0 else None
    work = dist.gather(torch.full((3,), float(rank)), into, async_op=True)
    time.sleep(0.1)
    dist.monitored_barrier(timeout=timedelta(seconds=5))
    work.wait()
    return [each[0].item() for each in into or ()]


def test_what_was_asked_for_before_comes_first():
    """Gloo numbers its calls: ranks that have them in another order wait for one another."""
    outcomes = run_ranks(meet_behind_a_queue, 2, environment={"AFFLUX_AGGREGATOR": "shm://"})
    assert values(outcomes) == [[0.0, 1.0], []]


def wait_behind_what_takes_long(rank, size):
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["raised"])
        dist.all_reduce(torch.ones(1 << 20))
        return ""
    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
    said = "passed"
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=0.5))
    except RuntimeError as error:
        said = str(error)
    store.set("raised", "")
    work.wait()
    return said


def test_what_is_not_over_is_named():
    outcomes = run_ranks(
        wait_behind_what_takes_long, 2, environment={"AFFLUX_AGGREGATOR": "shm://"}
    )
    said = values(outcomes)[0]
    assert "monitored_barrier timed out after 0.5 s: all_reduce sum float32" in said
    assert said.endswith("was called before, and is not over")
