"""Ranks and aggregators that are stopped in the midst of a step, and go on: no sum is wrong.

A rank is waited for, as long as its aggregator answers. An aggregator that answers nothing for
AFFLUX_PEER_TIMEOUT counts as dead, and what it says when it goes on is in no sum.
"""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import afflux
from afflux.group.reducers import continued_reducer, recovery
from tests.support.host.digests import digest
from tests.support.host.pausing import Pausing
from tests.support.host.ranks import caught, run_ranks, values
from tests.support.host.serving import software_engine

SIZE = 3
STOPPED = 1
RESULTS = 40
"""Of some 170 of the first sum at each rank."""

ENVIRONMENT = {"AFFLUX_SLOTS": "2", "AFFLUX_LANES": "2"}
SHORT = {"AFFLUX_PEER_TIMEOUT": "1"}
SHORT_S = 2.5

LONG_S = 20.0
"""With the peer timeout that users have, 5 s."""

PATIENCE_S = 60.0

LONG = [pytest.mark.long, pytest.mark.timeout(180)]


def sums(rank: int, numbers: range) -> list[str]:
    return [digest(10 * number + rank) for number in numbers]


def right(rank, _size):
    """Return the digests of a group that nothing happens to."""
    return sums(rank, range(4))


@pytest.fixture(scope="module")
def expected():
    return values(run_ranks(right, SIZE, environment={"AFFLUX_AGGREGATOR": "shm://"}))


def through_a_pause(rank, _size, folder, planted=False):
    """Sum twice, in the midst of which something is stopped, and twice when that goes on."""
    (folder / f"rank {rank}").write_text(str(os.getpid()), encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        if planted:
            patch.setattr(continued_reducer, "complete", sum_all_anew)
        found = sums(rank, range(2))
    wait_for(folder / "over")
    found += sums(rank, range(2, 4))
    statistics = afflux.statistics()
    return found, statistics["topology"], statistics["fail_overs"]


def wait_for(mark):
    deadline = time.monotonic() + 2 * LONG_S
    while not mark.exists():
        assert time.monotonic() < deadline, mark
        time.sleep(0.01)


def sum_all_anew(result, taken, *others):
    """Go on with blocks that are results already as if they were contributions."""
    recovery.complete(result, np.zeros_like(taken), *others)


def process_of(folder: Path) -> int:
    return int((folder / f"rank {STOPPED}").read_text(encoding="ascii"))


def run(body, pausing, environment, timeout_s, *arguments):
    environment = {**ENVIRONMENT, **environment, "AFFLUX_AGGREGATOR": pausing.url}
    found = run_ranks(body, SIZE, *arguments, environment=environment, timeout_s=timeout_s)
    assert pausing.stopped_s is not None
    return values(found)


@pytest.mark.parametrize(
    ("environment", "pause_s"),
    [
        pytest.param(SHORT, SHORT_S, id="short"),
        pytest.param({}, LONG_S, id="long", marks=LONG),
    ],
)
def test_a_rank_that_is_stopped_for_a_while_is_waited_for(environment, pause_s, expected, tmp_path):
    """For longer than AFFLUX_PEER_TIMEOUT: the aggregator answers, and says who is missing."""
    of_rank = partial(process_of, tmp_path)
    with (
        software_engine() as (url, _),
        Pausing(url, STOPPED, RESULTS, of_rank, pause_s, tmp_path / "over") as pausing,
    ):
        found = run(through_a_pause, pausing, environment, PATIENCE_S, tmp_path)
    assert found == [(digests, "aggregator", 0) for digests in expected]


@pytest.mark.parametrize(
    ("environment", "pause_s"),
    [
        pytest.param({}, 1.5, id="short"),
        pytest.param({"AFFLUX_PEER_TIMEOUT": "40"}, LONG_S, id="long", marks=LONG),
    ],
)
def test_an_aggregator_that_is_stopped_for_less_than_the_peer_timeout_is_waited_for(
    environment, pause_s, expected, tmp_path
):
    with (
        software_engine() as (url, process),
        Pausing(url, 0, RESULTS, lambda: process, pause_s, tmp_path / "over") as pausing,
    ):
        found = run(through_a_pause, pausing, environment, PATIENCE_S, tmp_path)
    assert found == [(digests, "aggregator", 0) for digests in expected]


@pytest.mark.parametrize(
    ("environment", "pause_s", "planted"),
    [
        pytest.param(SHORT, SHORT_S, False, id="short"),
        pytest.param(SHORT, SHORT_S, True, id="planted"),
        pytest.param({}, LONG_S, False, id="long", marks=LONG),
    ],
)
def test_one_that_is_stopped_for_longer_counts_as_dead_and_is_not_heard_again(
    environment, pause_s, planted, expected, tmp_path
):
    """Its results come late, those that it has sent before and those that it sends then."""
    with (
        software_engine() as (url, process),
        Pausing(url, 0, RESULTS, lambda: process, pause_s, tmp_path / "over", True) as pausing,
    ):
        found = run(through_a_pause, pausing, environment, PATIENCE_S, tmp_path, planted)
    assert ([digests for digests, *_ in found] == expected) is not planted
    assert all(each[1:] == ("streams", 1) for each in found)
    assert pausing.late > 0


def until_it_fails(rank, size, folder):
    """Sum, in the midst of which a rank is stopped for longer than the group waits."""
    text, kind, seconds = caught(lambda: through_a_pause(rank, size, folder))
    return text, kind, seconds, afflux.statistics()["fail_overs"]


@pytest.mark.parametrize(
    ("environment", "timeout_s"),
    [
        pytest.param(SHORT, 2.0, id="short"),
        pytest.param({}, LONG_S, id="long", marks=LONG),
    ],
)
def test_a_rank_that_is_stopped_for_longer_than_the_timeout_is_named_by_all(
    environment, timeout_s, tmp_path
):
    of_rank = partial(process_of, tmp_path)
    with (
        software_engine() as (url, _),
        Pausing(url, STOPPED, RESULTS, of_rank, timeout_s + 2.0, tmp_path / "over") as pausing,
    ):
        found = run(until_it_fails, pausing, environment, timeout_s, tmp_path)
    for text, kind, seconds, fail_overs in found:
        assert kind in ("RanksMissing", "GroupFailed"), text
        assert f"rank(s) {STOPPED}" in text
        assert timeout_s - 0.5 < seconds
        assert fail_overs == 0
