"""The table of sizes: from figures to lines, and from lines to the tuner's choice at each node."""

import json
from pathlib import Path
from typing import Any

import pytest

from afflux.commands.nccl_sizes import read_times, table_line, winning
from benchmarks.network import nccl as benchmark
from benchmarks.network.namespaces import missing
from benchmarks.network.nccl_tables import TABLES, measured_sizes
from tests.support.host.aggregators import aggregator
from tests.support.nccl.node import Node, PluginError, run_nodes
from tests.support.nccl.tuner import ALL_REDUCE, CHAIN, Tuner

NCCL_TESTS = """
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
           8             2     float     sum      -1    {0}    0.00    0.00      0    30.11
        1024           256     float     sum      -1    {1}    0.03    0.06      0    36.02
       65536         16384     float     sum      -1    {2}    0.71    1.34      0    93.98
     1048576        262144     float     sum      -1    {3}    1.31    2.45      0   801.20
# Avg bus bandwidth    : 1.0
"""


def test_a_line_comes_from_two_outputs_of_nccl_tests(tmp_path):
    ring, network = tmp_path / "ring", tmp_path / "network"
    ring.write_text(NCCL_TESTS.format(31.0, 40.0, 90.0, 800.0))
    network.write_text(NCCL_TESTS.format(20.0, 39.9, 80.5, 500.0))
    ranges = winning(read_times(ring), read_times(network))
    assert ranges == "0:8,65536:"
    assert table_line("soft", 25.0, 4, ranges).split() == ["soft", "25", "4", ranges]
    assert winning(read_times(network), read_times(ring)) == "none"
    ring.write_text("mpirun: not found\n")
    with pytest.raises(ValueError, match="all_reduce_perf"):
        read_times(ring)


def figure(way: str, gbit: float | None, size: int, seconds: float) -> dict[str, Any]:
    """Return a row of the benchmark."""
    row: dict[str, Any] = {"bench": "nccl", "way": way, "hosts": 4, "rate_gbit": gbit}
    return row | {"bytes": size, "seconds": seconds, "processor_s": 1e-3}


def test_the_table_that_ships_takes_what_beats_the_faster_ring():
    rows = [
        figure(way, 25.0, size, seconds)
        for size, times in ((8, (1e-7, 9e-7, 2e-7, 3e-7)), (1024, (6e-7, 6e-7, 9e-7, 6e-7)))
        for way, seconds in zip(("soft", "mesh", "ring", "socket"), times, strict=True)
    ]
    # Without a limit it is not a network's, nor where a ring is far slower than its links.
    rows += [figure(way, rate, 1024, 1.0) for way in ("soft", "ring") for rate in (None, 50.0)]
    first, *lines = measured_sizes(rows).splitlines()
    assert first.startswith("#")
    assert [line.split() for line in lines] == [
        ["soft", "25", "4", "0:8"],
        ["mesh", "25", "4", "none"],
    ]
    assert "| 25 Gbit/s | 4 | 1 KiB | 0.6 µs |" in TABLES["choices"](rows)
    assert "| 4 | 1 KiB | 1000.0 ms | 1.00 ms |" in TABLES["transports"](rows)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_benchmark_runs(tmp_path, capsys):
    if reason := missing():
        pytest.skip(reason)
    output = tmp_path / "nccl.json"
    words = ["--hosts", "2", "--gbit", "1", "--sizes", "8", "300000", "--rounds", "1"]
    assert benchmark.main([*words, "--output", str(output)]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert {row["way"] for row in rows} == {"soft", "streams", "mesh", "ring"} and len(rows) == 8
    assert all(row["seconds"] > 0 for row in rows)
    assert "# engine" in capsys.readouterr().out


SIZES = (8, 1024, 1025, 65_535, 65_536, 1 << 30)


def chosen(node: Node) -> tuple[list[list[bool] | None], str]:
    """Return the sizes that are taken, for 2 to 8 nodes: before it has connected, and then."""
    node.init()
    node.form().close()
    found: list[list[bool] | None] = []
    for nodes in (2, 3, 4, 6, 8, 9):
        tuner = Tuner(6, node._logger, nodes)
        costs = [tuner.costs(ALL_REDUCE, size)[CHAIN] for size in SIZES]
        found.append(None if set(costs) == {5.0} else [cost == 0.0 for cost in costs])
        tuner.end()
    return found, node.warnings()[-1] if node.warnings() else ""


def with_table(folder: Path, text: str) -> dict[str, str]:
    path = folder / "sizes"
    path.write_text(text)
    return {"AFFLUX_NCCL_TABLE": str(path), "AFFLUX_INTERFACE": "lo"}


def test_the_table_decides_by_engine_and_number_of_nodes(tmp_path):
    # The loopback interface has no rate, for which NCCL assumes 10 Gbit/s.
    table = """
        soft 1 2 none   # another link
        soft 1 4 none
        soft 10 2 0:1024,65536:
        soft 10 4 0:8,65536:65536  # with a comment
        soft 10 8 none
        soft 25 2 0:
        mesh 10 2 65536:
        mesh 10 4 65536:
    """
    environment = with_table(tmp_path, table)
    with aggregator() as url:
        both = run_nodes(chosen, 2, environment={**environment, "AFFLUX_AGGREGATOR": url})
    two = [True, True, False, False, True, True]
    four = [True, False, False, False, True, False]
    # Between two numbers that were measured: where both have it; beyond the last one NCCL chooses.
    none = [False] * 6
    assert both == [([two, four, four, none, none, None], "")] * 2
    mesh = run_nodes(chosen, 2, environment={**environment, "AFFLUX_AGGREGATOR": "streams://"})
    large = [False, False, False, False, True, True]
    assert mesh == [([large, large, large, None, None, None], "")] * 2


def test_an_engine_that_is_not_in_the_table_is_left_to_nccl(tmp_path):
    environment = with_table(tmp_path, "board 10 2 0:\n")
    with aggregator() as url:
        ((found, _), _) = run_nodes(
            chosen, 2, environment={**environment, "AFFLUX_AGGREGATOR": url}
        )
    assert found == [None] * 6


def opened(node: Node) -> str:
    try:
        node.init()
    except PluginError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("soft 10 2", "line 2: 'soft 10 2' is not"),
        ("soft 10 2 0:1024,5:4", "is not"),
        ("soft 25 2 0:", "is the second"),
    ],
)
def test_a_table_that_cannot_be_is_refused_by_its_line(tmp_path, line, why):
    environment = with_table(tmp_path, f"soft 25 2 none\n{line}\n")
    (said,) = run_nodes(opened, 1, environment=environment)
    assert f"AFFLUX_NCCL_TABLE={environment['AFFLUX_NCCL_TABLE']}" in said and why in said


def connected(node: Node) -> str:
    try:
        node.init()
        node.form().close()
    except PluginError as error:
        return str(error)
    return ""


def test_nodes_with_different_tables_do_not_connect(tmp_path):
    environment = with_table(tmp_path, "mesh 10 2 0:64\n")
    environment["AFFLUX_AGGREGATOR"] = "streams://"
    other = tmp_path / "other"
    other.write_text("mesh 10 2 0:65\n")
    found = run_nodes(
        connected, 2, environment=environment, own={1: {"AFFLUX_NCCL_TABLE": str(other)}}
    )
    for text in found:
        assert "AFFLUX_NCCL_TABLE" in text and "mesh 0:65 and mesh 0:64" in text
