"""`afflux.Options`: what a group is told beside the environment."""

import re
from datetime import timedelta

import pytest
import torch.distributed as dist

import afflux
from afflux.adapters import native
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.options import settings_for
from afflux.group.settings.variables import Settings, SettingsError
from afflux.group_statistics import group_of
from tests.support.host.ranks import caught, run_ranks, values


def test_given_values_count_instead_of_the_environment(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "soft://")
    monkeypatch.setenv("AFFLUX_SLOTS", "7")
    environment = Settings.from_environment()
    assert settings_for(None) == settings_for(afflux.Options()) == environment
    monkeypatch.setenv("AFFLUX_SPARE", "udp://elsewhere")
    options = afflux.Options(
        aggregator="udp://h", spare="udp://one,udp://other:7", lanes=3, peer_timeout_s=2
    )
    found = settings_for(options)
    assert found.aggregator == AggregatorUrl("udp", "h", 4700)
    assert found.spare == (AggregatorUrl("udp", "one", 4700), AggregatorUrl("udp", "other", 7))
    assert (found.lanes, found.slots, found.peer_timeout_s) == (3, 7, 2.0)


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"slots": 0}, SettingsError, "afflux.Options(slots=0): must be an integer from 1 to 512"),
        ({"lanes": 2.5}, TypeError, "afflux.Options(lanes=2.5): must be an integer, not float"),
        ({"aggregator": 5}, TypeError, "afflux.Options(aggregator=5): must be a text, not int"),
        ({"spare": ("udp://h",)}, TypeError, "must be a text, not tuple"),
        ({"spare": "soft://"}, SettingsError, "afflux.Options(spare='soft://'): must be udp://"),
        ({"close_timeout_s": True}, TypeError, "must be a number, not bool"),
        ({"aggregator": "tcp://h"}, SettingsError, "unknown scheme 'tcp'; did you mean udp://h?"),
    ],
)
def test_wrong_values_are_named(values, error, says):
    with pytest.raises(error, match=re.escape(says)):
        afflux.Options(**values)


@pytest.mark.parametrize("other", [object(), dist.ProcessGroupGloo._Options(), {"slots": 3}])
def test_other_options_are_refused(other):
    with pytest.raises(TypeError, match=r"takes pg_options=afflux.Options\(...\), not ") as caught:
        settings_for(other)
    assert type(other).__qualname__ in str(caught.value)


def with_options(rank, _size):
    group = dist.new_group(pg_options=afflux.Options(aggregator="soft://", slots=3))
    dist.barrier(group=group)
    found = afflux.statistics(group)
    foreign = caught(lambda: dist.new_group(pg_options=object() if rank == 1 else None))
    urls = ["shm://", "auto"]
    apart = caught(lambda: dist.new_group(pg_options=afflux.Options(aggregator=urls[rank])))
    return found["engine"], found["slots"], foreign, apart


def test_options_of_a_group():
    for rank, (engine, slots, foreign, apart) in enumerate(values(run_ranks(with_options, 2))):
        assert (engine, slots) == ("soft", 3)
        assert foreign[1] == ("RendezvousError", "TypeError")[rank]
        assert "rank 1: the backend afflux takes pg_options=afflux.Options(...)" in foreign[0]
        assert apart[1] == "RendezvousError"
        assert "rank 0: shm://; rank 1: auto" in apart[0]


def without_options(rank, size):
    store = dist.distributed_c10d._get_default_store()

    def begin(backend, options=None):
        # Gloo fails at a rank that still connects to one that has left.
        dist.barrier()
        dist.destroy_process_group()
        own = dist.PrefixStore(backend, store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, pg_options=options)

    begin("afflux", afflux.Options(slots=3, close_timeout_s=4.0))
    inherited = afflux.statistics(dist.new_group())["slots"]
    given = dist.new_group(pg_options=afflux.Options(slots=5))
    # The method that torch's split_group calls; some versions refuse it for CPUs.
    own = dist.PrefixStore("split", store)
    ranks = list(range(size))
    split = native._split(group_of(given), own, ranks, timedelta(seconds=20), "split").core
    slots = [inherited, afflux.statistics(given)["slots"], split.settings.slots]
    split.shutdown()
    # A default group that has ended has no say any more.
    begin("gloo")
    after = afflux.statistics(dist.new_group(backend="afflux"))["slots"]
    return slots, after


def test_groups_start_from_the_options_of_the_group_that_they_are_made_of():
    soft = {"AFFLUX_AGGREGATOR": "soft://", "AFFLUX_SLOTS": "2"}
    found = run_ranks(without_options, 2, environment=soft, tcp_store=True)
    assert values(found) == [([3, 5, 5], 2)] * 2
