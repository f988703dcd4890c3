"""`afflux info --forecast`: it measures what it says, and its cores follow from that.

Nothing here looks at how fast anything is.
"""

import json

import numpy as np
import pytest

from afflux.commands import cli
from afflux.commands.forecast import ports, streams, whole
from afflux.commands.forecast.ports import Forecast, cores_for, payload_share
from afflux.commands.forecast.stages import (
    Stages,
    aggregator_stages,
    measure_stages,
    worker_stages,
)
from afflux.commands.forecast.streams import measure_streams
from afflux.commands.forecast.whole import Whole, measure_whole
from afflux.commands.info import cores
from afflux_drivers import _native
from afflux_drivers.errors import AffluxError

SMALL = 256 << 10
STAGES = Stages(
    scan=1, encode=2, decode=3, copy=4, merge=5, join=10, send=6, receive=7, join_gathered=20,
    send_gathered=8, send_uncut=16, receive_unjoined=17, call=1000, memcpy=9,
)  # fmt: skip
WHOLE = Whole(4e-9, 2e-9, 1e-9, 0.001, 0.002, 0.0)


def test_a_full_port_is_blocks_and_headers():
    # As docs/benchmarks.md has it for the gateware.
    assert payload_share(16) == pytest.approx(4096 / 4248)
    assert payload_share(5) == pytest.approx(1280 / 1432)


def test_cores_follow_from_the_costs_of_a_byte():
    assert cores_for(8.0, 0.5, 2e-9) == pytest.approx(1.0)
    found = Forecast(16, STAGES, WHOLE)
    assert found.worker_cores(10.0) == pytest.approx(1.25 * payload_share(16) * 4)
    assert found.aggregator_cores(100.0) == pytest.approx(10 * found.worker_cores(10.0) / 2)
    # The additional cost of sending and receiving.
    assert STAGES.without_offloads == 16 + 17 - 6 - 7
    more = found.worker_cores(10.0, offloads=False) - found.worker_cores(10.0)
    assert more == pytest.approx(cores_for(10.0, payload_share(16), 20))


def test_stages_are_those_of_the_path():
    assert sum(worker_stages(STAGES, 0.001).values()) == 1 + 2 + 3 + 4 + 10 + 6 + 7 + 1
    assert sum(aggregator_stages(STAGES, 0.002).values()) == 5 + 7 + 20 + 8 + 2


@pytest.mark.parametrize("lanes", [5, 16])
def test_every_stage_is_measured(lanes):
    found = measure_stages(lanes, 8, SMALL, repeats=1)
    for name, cost in vars(found).items():
        assert 0 <= cost < 1e-3, name
    assert found.memcpy > 0
    assert found.call > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_whole_all_reduce_is_measured(threads):
    found = measure_whole(5, SMALL, 2, threads=threads)
    for name in ("worker", "aggregator", "wall", "worker_calls", "aggregator_calls"):
        assert getattr(found, name) > 0, name
    assert 0 <= found.handed_off <= 1


def test_wrong_sums_are_no_figures(monkeypatch):
    def all_reduce(_self, elements, *_arguments, **_options):
        elements *= 2
        elements[7] += 1

    monkeypatch.setattr(whole.Worker, "all_reduce", all_reduce)
    with pytest.raises(AffluxError, match="1 of 65536 sums over the loopback are wrong"):
        measure_whole(5, SMALL, 1)


def test_streams_are_measured_and_checked(monkeypatch):
    assert 0 < measure_streams(SMALL, 2) < 1e-3
    monkeypatch.setattr(streams.StreamsWorker, "run", lambda *_arguments: None)
    with pytest.raises(AffluxError, match="65536 of 65536 sums over the loopback are wrong"):
        measure_streams(SMALL, 1)


def test_what_fails_at_a_rank_is_raised(monkeypatch):
    def all_reduce(*_arguments, **_options):
        raise AffluxError("not here")

    monkeypatch.setattr(whole.Worker, "all_reduce", all_reduce)
    with pytest.raises(AffluxError, match="not here"):
        measure_whole(5, SMALL, 1)


def test_info_shows_the_cores(monkeypatch, capsys):
    monkeypatch.setattr(ports, "_TENSOR_BYTES", SMALL)
    assert cli.main(["info", "--forecast", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["forecast"]
    assert found["rates_gbit"] == [10, 25, 100]
    assert [(each["what"], each["lanes"]) for each in found["cores"]] == [
        ("ranks", 5), ("aggregator", 5), ("ranks", 16), ("aggregator", 16),
    ]  # fmt: skip
    for each in found["cores"]:
        assert len(each["offloads"]) == len(each["no_offloads"]) == 3
        assert each["offloads"][2] == pytest.approx(10 * each["offloads"][0])
        assert np.less_equal(each["offloads"], each["no_offloads"]).all()
    of_streams = found["streams"]
    assert of_streams["cores"][2] == pytest.approx(10 * of_streams["cores"][0])
    assert of_streams["cores"][0] == pytest.approx(1.25 * 1448 / 1538 * of_streams["ns_per_byte"])
    for each in found["stages"]:
        assert each["whole_ns_per_byte"] > 0
        assert "kernel, sending" in each["ns_per_byte"]
    assert cli.main(["info", "--forecast"]) == 0
    text = capsys.readouterr().out
    for words in (
        "forecast",
        "ranks, streams",
        "ranks, MTU 1,500",
        "aggregator, jumbo frames",
        "Gbit/s",
    ):
        assert words in text


def test_info_measures_only_if_asked(monkeypatch, capsys):
    def never():
        raise AssertionError("it was measured")

    monkeypatch.setattr(cores, "forecast", never)
    assert cli.main(["info"]) == 0
    assert "forecast" not in capsys.readouterr().out


def test_a_forecast_that_fails_says_why(monkeypatch, capsys):
    def fails():
        raise OSError("no sockets today")

    monkeypatch.setattr(cores, "forecast", fails)
    assert cli.main(["info", "--forecast"]) == 1
    assert capsys.readouterr().err == "afflux info: no forecast: no sockets today\n"


def test_stages_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="lanes"):
        _native.copy_packets(17, SMALL)
    with pytest.raises(ValueError, match="at least one packet"):
        _native.exchange_packets(16, 0, SMALL, False, True)
