"""`afflux.Options`: what a group is told beside the environment."""

import re

import pytest
import torch.distributed as dist

import afflux
from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.options import settings_for
from afflux.group.settings import Settings, SettingsError
from tests.support.host.ranks import caught, run_ranks, values


def test_given_values_count_instead_of_the_environment(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "soft://")
    monkeypatch.setenv("AFFLUX_SLOTS", "7")
    environment = Settings.from_environment()
    assert settings_for(None) == settings_for(afflux.Options()) == environment
    options = afflux.Options(aggregator="udp://h", lanes=3, peer_timeout_s=2)
    found = settings_for(options)
    assert found.aggregator == AggregatorUrl("udp", "h", 4700)
    assert (found.lanes, found.slots, found.peer_timeout_s) == (3, 7, 2.0)


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"slots": 0}, SettingsError, "afflux.Options(slots=0): must be an integer from 1 to 512"),
        ({"lanes": 2.5}, TypeError, "afflux.Options(lanes=2.5): must be an integer, not float"),
        ({"aggregator": 5}, TypeError, "afflux.Options(aggregator=5): must be a text, not int"),
        ({"close_timeout_s": True}, TypeError, "must be a number, not bool"),
        ({"aggregator": "tcp://h"}, SettingsError, "unknown scheme; expected auto, shm://"),
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
