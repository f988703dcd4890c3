"""How often ranks that lose their aggregator wait for one another through the store: counted.

A rank's request is a write or a read of a key. A write is in the round behind the latest one of
which its rank has read anything, since the ranks have heard that the aggregator has ended. So the
number of rounds is that of the store's round trips which come after one another, whichever rank's.
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming.replacement import Replacement
from afflux.group.store.bounded import BoundedStore
from tests.support.host.aggregators import streams_aggregator
from tests.support.host.mortal import Mortal
from tests.support.host.mortal_streams import MortalStreams
from tests.support.host.ranks import run_ranks, values
from tests.support.host.serving import software_engine

SIZE = 3
OPTIONS: dict[str, Any] = {"slots": 2, "lanes": 2, "peer_timeout_s": 30.0}
CHANGE = "/fail-over/1/"

TO_STREAMS = {"ways": 1, "state": 1, "port": 2, "streams": 3}
TO_A_SPARE = {"ways": 1, "state": 1, "way": 2, "job": 3, "joined": 4}
TO_A_SPARE_OF_STREAMS = {**TO_STREAMS, "aggregator": 4}

LARGE = 420_003
"""For one of streams: 33 pieces, too much for one hop at any link."""


def recorded(patch):
    """Return a list to which this rank's requests come that find or write something, in order."""
    found = []

    def path(store, key=""):
        return getattr(store, "path", "") + key

    def deriving(name, original):
        def derive(store, argument):
            made = original(store, argument)
            made.path = path(store, f"{argument}/" if name == "under" else "")
            return made

        return derive

    def reading(_name, original):
        def read(store, keys):
            answer = original(store, keys)
            if answer not in (None, False):
                keys = [keys] if isinstance(keys, str) else keys
                found.append(("read", [path(store, key) for key in keys]))
            return answer

        return read

    def writing(_name, original):
        def write(store, key, value):
            found.append(("write", [path(store, key)]))
            original(store, key, value)

        return write

    ways = {deriving: ("under", "until"), reading: ("check", "find", "get"), writing: ("set",)}
    for way, names in ways.items():
        for name in names:
            patch.setattr(BoundedStore, name, way(name, getattr(BoundedStore, name)))
    return found


def offer_late(patch):
    """Name what may take the aggregator's place only when all states are there."""
    offer, call = Replacement.offer, Replacement.__call__
    patch.setattr(Replacement, "offer", lambda _self, _limit_s: None)

    def late(self, reason, limit_s, look):
        offer(self, limit_s)
        return call(self, reason, limit_s, look)

    patch.setattr(Replacement, "__call__", late)


def through_the_end(rank, _size, options, count, planted):
    """Sum while the aggregator dies; return the sum, the requests, and how often it went over."""
    with pytest.MonkeyPatch.context() as patch:
        requests = recorded(patch)
        if planted:
            offer_late(patch)
        group = dist.new_group(pg_options=afflux.Options(**OPTIONS, **options))
        tensor = torch.full((count,), rank + 1, dtype=torch.int32)
        dist.all_reduce(tensor, group=group)
        dist.barrier(group=group)
        requests = list(requests)
    return tensor.unique().tolist(), requests, afflux.statistics(group)["fail_overs"]


def rounds(logs):
    """Return the round of each step of the change, the last one of all ranks."""
    depths: dict[str, int] = {}
    before: dict[str, int] | None = None
    while depths != before:
        before = dict(depths)
        for log in logs:
            seen = 0
            for kind, keys in log:
                names = [each.partition(CHANGE)[2] for each in keys]
                # That the aggregator has ended is where it begins.
                names = [each for each in names if each not in ("", "declared", "notice")]
                if kind == "read":
                    seen = max([seen, *(depths.get(each, 0) for each in names)])
                else:
                    depths |= dict.fromkeys(names, seen + 1)
    steps: dict[str, int] = {}
    for name, depth in depths.items():
        step = name.rstrip("0123456789/").rpartition("/")[2]
        steps[step] = max(depth, steps.get(step, 0))
    return steps


def run(options, count, planted=False):
    outcomes = run_ranks(through_the_end, SIZE, options, count, planted, tcp_store=True)
    found = values(outcomes)
    assert [each[::2] for each in found] == [([6], 1)] * SIZE
    return [requests for _, requests, _ in found]


@pytest.mark.parametrize("planted", [False, True])
def test_three_rounds_to_streams_for_ranks_in_the_same_call(planted):
    with software_engine() as (url, _), Mortal(url, 0, 10) as mortal:
        logs = run({"aggregator": mortal.url}, 2_500, planted)
    assert (rounds(logs) == TO_STREAMS) is not planted
    if not planted:
        assert [writes(log) for log in logs] == [4, 3, 3]


def writes(log):
    """Return how many keys a rank has written, but for the declaration that wakes the others."""
    keys = [keys[0].partition(CHANGE)[2] for kind, keys in log if kind == "write"]
    return sum(each not in ("", "notice") for each in keys)


def test_three_rounds_to_streams_where_a_rank_gives_results_to_others():
    with software_engine() as (url, _), Mortal(url, 0, 1) as mortal:
        logs = run({"aggregator": mortal.url}, 10)
    assert rounds(logs) == {**TO_STREAMS, "results": 2}


def test_four_rounds_to_a_spare_aggregator():
    with (
        software_engine() as (url, _),
        software_engine() as (spare, _),
        Mortal(url, 0, 10) as mortal,
    ):
        logs = run({"aggregator": mortal.url, "spare": spare}, 2_500)
    assert rounds(logs) == TO_A_SPARE


def test_three_rounds_from_an_aggregator_of_streams():
    with streams_aggregator() as url, MortalStreams(url, 0, 10) as mortal:
        logs = run({"aggregator": mortal.url}, LARGE)
    assert rounds(logs) == TO_STREAMS
    assert [writes(log) for log in logs] == [4, 3, 3]


def test_four_rounds_to_a_spare_aggregator_of_streams():
    with (
        streams_aggregator() as url,
        streams_aggregator() as spare,
        MortalStreams(url, 0, 10) as mortal,
    ):
        logs = run({"aggregator": mortal.url, "spare": spare}, LARGE)
    assert rounds(logs) == TO_A_SPARE_OF_STREAMS
