"""Waves of the simulated engine behind ranks: by `afflux serve`, and by `rtl://`."""

import re

import pytest
import torch
import torch.distributed as dist
from pywellen import Waveform

from tests.support.host.ranks import run_ranks, values
from tests.support.host.serving import finish, start

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def reduce_twice(rank, size):
    tensor = torch.full((100,), rank + 1.0)
    for _ in range(2):
        dist.all_reduce(tensor)
    return tensor[0].item()


def edges(path, signal):
    return [int(time) for time, _ in Waveform(str(path))[f"engine.{signal}"].tv]


def test_serve_writes_waves_until_it_is_ended(tmp_path):
    path = tmp_path / "served.fst"
    sizes = ["--bus-bits", "32", "--workers", "2", "--lanes", "1", "--jobs", "2", "--slots", "8"]
    process, line = start("--port", "0", *sizes, "--waves", str(path), engine=["rtl"])
    try:
        url = re.fullmatch(r"afflux: rtl engine on (udp://\S+)\n", line)[1]
        sums = values(run_ranks(reduce_twice, 2, environment={"AFFLUX_AGGREGATOR": url}))
        assert sums == [6, 6]
    finally:
        process.terminate()
        said = process.stderr.read()
        assert finish(process) == 0
    assert f"the engine's waves are in {path}" in said
    # Two rounds from each of two ranks at least, and their results.
    assert len(edges(path, "rx_valid")) > 8
    assert len(edges(path, "tx_valid")) > 8


def test_an_engine_beside_rank_0_writes_a_window(tmp_path):
    url = f"rtl://?bus_bits=32&waves={tmp_path}/rank.vcd&waves_window=200:300"
    assert values(run_ranks(reduce_twice, 2, environment={"AFFLUX_AGGREGATOR": url})) == [6, 6]
    clock = edges(tmp_path / "rank.vcd", "clk")
    assert clock == [200 * 4 + 2 * edge for edge in range(200)]
