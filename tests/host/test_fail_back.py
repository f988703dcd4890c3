"""Ranks that have lost their aggregator use it again when it is back, all from the same call on."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import rendezvous
from afflux.group.forming.lookout import pause_before
from afflux.group.reducers import host_worker
from afflux.group.reducers.fail_back import FailBack
from afflux.group_statistics import group_of
from afflux_drivers.errors import AffluxError
from afflux_drivers.worker.worker import Worker
from tests.support.host import serving
from tests.support.host.aggregators import closed_port, streams_aggregator
from tests.support.host.freeing import destroyed_and_freed
from tests.support.host.mixed_sums import bits, contribution, expected
from tests.support.host.mortal import Mortal
from tests.support.host.mortal_streams import MortalStreams
from tests.support.host.ranks import caught, run_ranks, values

SIZE = 3
HOSTS = (0, 0, 1, 1, 1)
RESULTS = 49

OFTEN = {
    "AFFLUX_FAIL_BACK": "0.2",
    "AFFLUX_PEER_TIMEOUT": "30",
    "AFFLUX_SLOTS": "2",
    "AFFLUX_LANES": "2",
}

PATIENCE_S = 30.0


@contextlib.contextmanager
def aggregator(*options: str, engine: str = "soft") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL of an aggregator, and its process, which a test may kill."""
    port = () if "--port" in options else ("--port", "0")
    process, line = serving.start("--no-secret", *port, *options, engine=(engine,))
    scheme = "streams" if engine == "streams" else "udp"
    try:
        yield f"{scheme}://" + line.rpartition("://")[2].strip(), process
    finally:
        process.kill()
        serving.finish(process)


class Again:
    """Begins an aggregator at the address of one that has died, in one rank. A `with` statement."""

    def __init__(self, url: str) -> None:
        host, port = url.partition("://")[2].split(":")
        self._engine = "streams" if url.startswith("streams") else "soft"
        self._options = "--host", host, "--port", port
        self._held = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._held.close()

    def begin(self) -> subprocess.Popen[str]:
        """Begin it; return its process."""
        held = aggregator(*self._options, engine=self._engine)
        return self._held.enter_context(held)[1]


def right(tensor, number):
    return bits(tensor) == expected(number)


def until(rank, _size, url, hasty=0.0):
    """Sum until the group has come back; return by which way each sum went, and the counters."""
    choose = random.Random(rank)
    ways: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    with Again(url) as again:
        while True:
            number = len(ways)
            tensor = contribution(rank, number % 4)
            dist.all_reduce(tensor)
            assert right(tensor, number % 4), number
            statistics = afflux.statistics()
            if rank == 0 and statistics["fail_overs"] and "streams" not in ways:
                again.begin()
            ways.append(statistics["topology"])
            if choose.random() < hasty:
                time.sleep(choose.random() * 0.05)
            if number % 3 == 2:
                moved = torch.full((5,), float(rank))
                dist.broadcast(moved, number % SIZE)
                assert moved.tolist() == [number % SIZE] * 5
            done = all_say(statistics["fail_backs"] == 1)
            if done or time.monotonic() > deadline:
                break
        for last in range(3):
            tensor = contribution(rank, last)
            dist.all_reduce(tensor)
            assert right(tensor, last)
    return ways, statistics["fail_overs"], statistics["fail_backs"], afflux.statistics()


def came_back(outcomes):
    """Judge what `until` returns; return the way of each sum at rank 0."""
    found = values(outcomes)
    for _, fail_overs, fail_backs, statistics in found:
        assert (fail_overs, fail_backs) == (1, 1)
        assert statistics["topology"] == "aggregator"
    return found[0][0]


@pytest.mark.parametrize("results", [RESULTS // 2, RESULTS - 1])
def test_back_at_an_aggregator_that_has_begun_again(results):
    with aggregator() as (url, _), Mortal(url, 0, results) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(until, SIZE, mortal.url, 0.3, environment=environment)
    assert "streams" in came_back(outcomes)
    for *_, statistics in values(outcomes):
        # Those of the first one, and of the last three sums at least.
        assert statistics["rounds"] > RESULTS
        assert statistics["topology_reason"] == f"{mortal.url} answers again"


def test_back_at_an_aggregator_of_streams():
    with streams_aggregator() as url, MortalStreams(url, 0, 1) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_THREADS": "1"}
        outcomes = run_ranks(until_large, SIZE, mortal.url, environment=environment)
    for found, fail_overs, fail_backs, bytes_each in values(outcomes):
        assert found == values(outcomes)[0][0]
        assert (fail_overs, fail_backs) == (1, 1)
        assert bytes_each


def until_large(rank, _size, url):
    """Sum what an aggregator of streams sums until the group has come back, and once more."""
    deadline = time.monotonic() + PATIENCE_S
    count, found, begun = 420_003, [], False
    with Again(url) as again:
        for number in range(1000):
            tensor = torch.full((count,), float(rank + number))
            dist.all_reduce(tensor)
            assert tensor.eq(3.0 * (1 + number)).all()
            statistics = afflux.statistics()
            if rank == 1 and statistics["fail_overs"] and not begun:
                again.begin()
                begun = True
            # Calls that need not all ranks, in which one may be ahead of the others.
            for root in (0, 0, 0):
                moved = torch.full((3,), float(rank))
                dist.broadcast(moved, root)
                assert moved.tolist() == [root] * 3
            found.append(all_say(statistics["fail_backs"] == 1))
            if found[-1] or time.monotonic() > deadline:
                break
        tensor = torch.full((count,), float(rank))
        dist.all_reduce(tensor)
        assert tensor.eq(3.0).all()
    return found, statistics["fail_overs"], statistics["fail_backs"], statistics["bytes_sent"]


def over_and_over(rank, _size, url, pid, cycles):
    """Lose the aggregator, and use it again, so many times; return what calls pass through."""
    number = 0
    depths = set()
    with Again(url) as again:
        for cycle in range(1, cycles + 1):
            if rank == 0:
                os.kill(pid, signal.SIGKILL)
                await_end(pid)
                pid = again.begin().pid
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                tensor = contribution(rank, number % 4)
                dist.all_reduce(tensor)
                assert right(tensor, number % 4)
                number += 1
                statistics = afflux.statistics()
                if all_say(statistics["fail_backs"] == cycle):
                    break
            depths.add(depth())
        all_say(True)
    return statistics["fail_overs"], statistics["fail_backs"], max(depths)


def await_end(pid):
    """Wait until a process has ended, whoever is to reap it."""
    state = ""
    while state != "Z":
        time.sleep(0.01)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def all_say(yes):
    """Return whether this holds at all ranks, which all go by the same."""
    said = torch.tensor([yes], dtype=torch.int32)
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return bool(said.item())


def depth():
    """Return through how many reducers a call passes."""
    reducer: Any = group_of(None).reducer
    passed = 0
    while reducer is not None:
        passed, reducer = passed + 1, getattr(reducer, "_other", None)
    return passed


def test_as_often_as_it_ends():
    with aggregator("--host", "127.0.0.97") as (url, process):
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "2"}
        outcomes = run_ranks(over_and_over, SIZE, url, process.pid, 3, environment=environment)
    for fail_overs, fail_backs, most in values(outcomes):
        assert (fail_overs, fail_backs) == (3, 3)
        assert most <= 3


def test_at_a_spare_one_that_begins_later():
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        spare = f"udp://127.0.0.96:{closed_port()}"
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url, "AFFLUX_SPARE": spare}
        outcomes = run_ranks(until, SIZE, spare, environment=environment)
    assert "streams" in came_back(outcomes)
    for *_, statistics in values(outcomes):
        assert statistics["topology_reason"] == f"{spare} answers again"


def cannot_join_at_first(rank, size, url):
    """Come back where one rank cannot join the first time; return the attempts of rank 0, too."""
    attempts = []
    with pytest.MonkeyPatch.context() as patch:
        as_it_is = FailBack._make

        def make(self, group, interrupted):
            attempts.append(self._attempt)
            with pytest.MonkeyPatch.context() as once:
                if rank == 1 and len(attempts) == 1:
                    once.setattr(Worker, "join", no_way)
                return as_it_is(self, group, interrupted)

        patch.setattr(FailBack, "_make", make)
        return until(rank, size, url), attempts


def no_way(_self, _timeout_s):
    raise AffluxError("no way")


def test_all_stay_where_they_are_if_one_cannot_join():
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = values(
            run_ranks(cannot_join_at_first, SIZE, mortal.url, environment=environment)
        )
    for (_, fail_overs, fail_backs, statistics), attempts in outcomes:
        assert attempts == [1, 2]
        assert (fail_overs, fail_backs, statistics["topology"]) == (1, 1, "aggregator")


def dies_on_the_way(rank, size, url):
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(FailBack, "_make", lambda *_: os._exit(1))
        return caught(lambda: until(rank, size, url))


def test_a_rank_that_dies_on_the_way_back_is_named():
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(
            dies_on_the_way, SIZE, mortal.url, environment=environment, timeout_s=300.0,
            tcp_store=True,
        )  # fmt: skip
    for outcome in outcomes[::2]:
        text, kind, _ = outcome.value
        assert "rank(s) 1 ended" in text
        assert kind in ("RanksEnded", "GroupFailed")


def idle_or_stopped(rank, _size, url, how):
    """Come back while a rank calls nothing, or is stopped; return counts before and after."""
    with Again(url) as again:
        for number in range(2):
            tensor = contribution(rank, number)
            dist.all_reduce(tensor)
            assert right(tensor, number)
        assert afflux.statistics()["fail_overs"] == 1
        if rank == 0:
            again.begin()
        if rank == 1 or how == "all idle":
            if how == "stopped":
                subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
                os.kill(os.getpid(), signal.SIGSTOP)
            elif how == "in Gloo":
                dist.recv(torch.empty(1), 0)
            else:
                time.sleep(2)
        if rank == 0 and how == "in Gloo":
            time.sleep(2)
            dist.send(torch.ones(1), 1)
        back = afflux.statistics()["fail_backs"]
        tensor = contribution(rank, 2)
        dist.all_reduce(tensor)
        assert right(tensor, 2)
        all_say(True)
    return back, afflux.statistics()["fail_backs"]


@pytest.mark.parametrize(
    "how",
    [
        "all idle",
        "stopped",
        *(pytest.param(how, marks=pytest.mark.long) for how in ("idle", "in Gloo")),
    ],
)
def test_where_a_rank_is(how):
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(
            idle_or_stopped, SIZE, mortal.url, how, environment=environment, tcp_store=True
        )
    found = values(outcomes)
    assert {after for _, after in found} == {1}
    # Nobody has to call anything.
    assert how != "all idle" or {before for before, _ in found} == {1}


def three(rank, _size, url):
    with Again(url) as again:
        for number in range(3):
            tensor = contribution(rank, number)
            dist.all_reduce(tensor)
            assert right(tensor, number)
            if rank == 0 and number == 1:
                again.begin()
            time.sleep(0.5)
    return afflux.statistics()["topology"], afflux.statistics()["fail_backs"]


def test_never():
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {"AFFLUX_FAIL_BACK": "0", "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(three, SIZE, mortal.url, environment=environment)
    assert values(outcomes) == [("streams", 0)] * SIZE


def test_attempts_become_rarer():
    pauses = [pause_before(attempt, 5.0) for attempt in (1, 2, 3, 7, 8, 100_000)]
    assert pauses == [5.0, 10.0, 20.0, 300.0, 300.0, 300.0]
    assert pause_before(9, 1000.0) == 1000.0


def freed(rank, size, url):
    until(rank, size, url)
    return destroyed_and_freed()


def test_a_group_that_has_come_back_is_freed():
    with aggregator() as (url, _), Mortal(url, 0, RESULTS // 2) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": mortal.url}
        outcomes = run_ranks(freed, SIZE, mortal.url, environment=environment, tcp_store=True)
    assert values(outcomes) == [True] * SIZE


def by_host(rank, _size, url):
    """Come back where hosts have several ranks, which have one worker each host again."""
    host_worker.PIECE_BYTES = 4608
    rendezvous.host_identity = lambda: f"host {HOSTS[rank]}"
    interface = f"127.0.0.{HOSTS[rank] + 2}"
    own = afflux.Options(aggregator=url, interface=interface, fail_back_s=0.2)
    group = dist.new_group(backend="afflux", pg_options=own)
    ways: list[str] = []
    with Again(url) as again:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and ways[-1:] != ["back"]:
            number = len(ways) % 3
            tensor = contribution(rank, number)
            dist.all_reduce(tensor, group=group)
            assert bits(tensor) == expected(number, size=len(HOSTS))
            statistics = afflux.statistics(group)
            if rank == 0 and statistics["fail_overs"] and "streams" not in ways:
                again.begin()
            ways.append(statistics["topology"])
            if all_say(statistics["fail_backs"] == 1):
                ways.append("back")
        tensor = contribution(rank, 0)
        dist.all_reduce(tensor, group=group)
        assert bits(tensor) == expected(0, size=len(HOSTS))
        all_say(True)
    dist.destroy_process_group(group)
    return ways


def test_hosts_with_several_ranks():
    with aggregator() as (url, _), Mortal(url, 0, 100) as mortal:
        environment = {**OFTEN, "AFFLUX_AGGREGATOR": "gloo://"}
        outcomes = run_ranks(by_host, len(HOSTS), mortal.url, environment=environment)
    for ways in values(outcomes):
        assert "streams" in ways
        assert ways[-2:] == ["aggregator by host", "back"]
