"""A group that cannot be made: the same clear error at every rank, soon."""

import re

import pytest

from tests.support.host.aggregators import aggregator, answering, closed_port
from tests.support.host.ranks import run_ranks


def nothing(_rank, _size):
    return "initialised"


def errors_of(environment, size=3, **limits):
    outcomes = run_ranks(nothing, size, environment=environment, limit_s=30, **limits)
    for outcome in outcomes:
        assert outcome.failed, f"rank {outcome.rank} was given a group"
        assert outcome.kind not in ("killed", "died"), f"rank {outcome.rank}: {outcome.message}"
        assert outcome.seconds < 10
    return outcomes


def test_unreachable_aggregator():
    port = closed_port()
    for outcome in errors_of({"AFFLUX_AGGREGATOR": f"udp://127.0.0.1:{port}"}):
        assert f"127.0.0.1:{port}" in outcome.message
        assert "refused" in outcome.message.lower()


def test_silent_aggregator():
    with answering(None) as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
        for outcome in errors_of(environment):
            assert "no answer in 1 s" in outcome.message
            assert url.removeprefix("udp://") in outcome.message


def test_control_channel_answers_but_packets_do_not_arrive():
    # The behaviour of a firewall for UDP.
    answer = {
        "ok": True, "job": 0, "key": "0123456789abcdef", "round": 7, "workers": 2, "lanes": 4,
        "slots": 4, "credit": 4, "port": closed_port(), "engine": "soft",
    }  # fmt: skip
    with answering(answer) as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
        for outcome in errors_of(environment, size=2):
            assert "join" in outcome.message
            assert "rank 0" in outcome.message
            assert "rank 1" in outcome.message


def test_wrong_protocol_version():
    answer = {"ok": False, "error": "protocol 1 is not supported, only 2"}
    with answering(answer) as url:
        for outcome in errors_of({"AFFLUX_AGGREGATOR": url}):
            assert "protocol 1 is not supported, only 2" in outcome.message


def test_something_else_listens_there():
    with answering({"hello": "I am a web server"}) as url:
        for outcome in errors_of({"AFFLUX_AGGREGATOR": url}):
            assert url.removeprefix("udp://") in outcome.message


def test_more_workers_than_the_engine_was_built_for():
    with aggregator(workers=2) as url:
        for outcome in errors_of({"AFFLUX_AGGREGATOR": url}):
            assert "3 workers" in outcome.message
            assert "2" in outcome.message


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tcp://10.0.0.1:4700", "unknown scheme"),
        ("udp://", "a host"),
        ("udp://host:99999", "the port 99999: it must be from 1 to 65535"),
        ("soft://somewhere", "takes no host"),
        ("shm://somewhere", "takes no host"),
        ("rtl://?bus_bits=64", "bus_bits must be 32 or 512"),
        ("rtl://?waves=x.lxt", "waves 'x.lxt': the name must end with .fst or .vcd"),
        ("rtl://?waves=x.vcd&waves_window=8:7", "waves_window '8:7': there is no cycle in it"),
    ],
)
def test_wrong_url(url, says):
    for outcome in errors_of({"AFFLUX_AGGREGATOR": url}, size=2):
        assert f"rank {outcome.rank}: AFFLUX_AGGREGATOR={url!r}: " in outcome.message
        assert says in outcome.message
        assert re.search("; (expected|did you mean) ", outcome.message)


def test_waves_where_no_file_can_be():
    for outcome in errors_of({"AFFLUX_AGGREGATOR": "rtl://?waves=/no/where.fst"}, size=2):
        assert "rtl://: waves /no/where.fst: No such file or directory" in outcome.message


def test_a_name_that_does_not_resolve():
    url = "udp://no-such-host.invalid:4700"
    for outcome in errors_of({"AFFLUX_AGGREGATOR": url}, size=2):
        assert f"rank {outcome.rank}: AFFLUX_AGGREGATOR={url}: " in outcome.message


def test_bad_setting():
    for outcome in errors_of({"AFFLUX_LANES": "17"}, size=2):
        assert f"rank {outcome.rank}: AFFLUX_LANES='17': " in outcome.message
        assert "an integer from 1 to 16" in outcome.message


def test_engine_that_does_not_start():
    # No address of this machine: it cannot bind and says why.
    environment = {
        "AFFLUX_AGGREGATOR": "soft://",
        "MASTER_ADDR": "127.0.0.1",
        "PYTHONPATH": "/nonexistent",
        "PYTHONHOME": "/none",
    }
    for outcome in errors_of(environment, size=2):
        assert "soft://" in outcome.message
        assert "before it was ready" in outcome.message


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("AFFLUX_SLOTS=0", "AFFLUX_SLOTS='0': must be an integer from 1 to 512"),
        (
            "AFFLUX_AGGREGATOR=tcp://x",
            "AFFLUX_AGGREGATOR='tcp://x': unknown scheme 'tcp'; did you mean udp://x?",
        ),
    ],
)
@pytest.mark.parametrize("one", [0, 1])
def test_a_setting_that_is_bad_at_one_rank_only(one, bad, says):
    # The ranks' own environments, as on several hosts.
    for outcome in errors_of({"BAD_RANK": str(one), "BAD": bad}, size=2):
        assert outcome.message.count(f"rank {one}: {says}") == 1
