"""Threads that move a rank's data between hosts, and connections for each."""

import pytest

import afflux
from afflux.group.settings.thread_count import thread_count
from afflux.group.settings.variables import Settings, SettingsError
from tests.support.host.all_reduces import are_right
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values


def with_threads(rank, size):
    return are_right(rank, size), afflux.statistics()["threads"]


@pytest.mark.parametrize("size", [2, 4])
def test_the_least_that_a_rank_wants(size):
    environment = {
        "AFFLUX_AGGREGATOR": "auto", "AFFLUX_THREADS": "3",
        "BAD_RANK": "1", "BAD": "AFFLUX_THREADS=2",
    }  # fmt: skip
    with network(hosts=2, aggregators=0, gbit=None) as made:
        outcomes = run_ranks(with_threads, size, hosts=made.hosts, environment=environment)
        for right, threads in values(outcomes):
            assert all(right)
            assert threads == 2


def test_an_interface_that_names_no_speed_gets_one_thread():
    assert thread_count("127.0.0.1", 1) == 1
    assert thread_count("203.0.113.7", 1) == 1


@pytest.mark.parametrize("text", ["0", "17", "many"])
def test_other_numbers_are_refused(text):
    with pytest.raises(SettingsError, match=r"AFFLUX_THREADS=.*from 1 to 16, or auto"):
        Settings.from_environment({"AFFLUX_THREADS": text})


def test_auto_is_the_default():
    assert Settings.from_environment({"AFFLUX_THREADS": "auto"}).threads is None
    assert Settings.from_environment({"AFFLUX_THREADS": "3"}).threads == 3
