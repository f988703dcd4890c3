"""The monitored barrier, over Gloo groups: all ranks come, one does not, several do not."""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from afflux.group.monitored_barrier import monitored_barrier
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
