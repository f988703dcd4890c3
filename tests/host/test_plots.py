"""Plots of figures: the same figures give the same file, and no legend covers data."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from afflux.commands.bench import size_plot
from benchmarks.gateware import plots as gateware_plots
from benchmarks.network import plots as network_plots
from benchmarks.network.cases import PLANS
from benchmarks.ranks import plots as ranks_plots
from benchmarks.ranks.cases import CASES
from benchmarks.report.plots import draw_plots
from benchmarks.training import plots as training_plots
from benchmarks.training import scheme_plots
from tests.support.checkout import ROOT

SUITES = {
    "ranks": ranks_plots,
    "network": network_plots,
    "gateware": gateware_plots,
    "training": training_plots,
    "schemes": scheme_plots,
}
DRAWN = sorted(name for suite in SUITES.values() for name in suite.PLOTS)
TIMES = {"afflux_s": 0.02, "gloo_s": 0.08, "floor_s": 0.01, "read_floor_s": 0.005, "ratio": 4.0}

Box = tuple[float, float, float, float]


def rows_of_ranks() -> list[dict]:
    speed = [
        {**TIMES, "bench": "host", "case": case.name, "ranks": ranks}
        for case in CASES
        for ranks in (2, 4, 8)
    ]
    about = {"bench": "host_collectives", "what": "broadcast"}
    calls = [{**about, "ranks": ranks, "size": "1K", "ratio": 4.0} for ranks in (2, 4)]
    return [*speed, *calls, {**about, "ranks": 2, "size": "16M", "failed": "afflux: it broke"}]


def rows_of_network() -> list[dict]:
    return [
        {
            **{"bench": "network", "setup": plan.setup.name, "case": case.name, "quick": False},
            **{"title": case.title, "mtu": plan.setup.mtu, "topology": topology, "ratio": 4.0},
            **{"density": case.density, "overlap": case.overlap, **TIMES},
            **({"limit_s": 0.1, "gloo_limit_s": 0.5} if case.bytes > 1 << 20 else {}),
        }
        for plan in PLANS
        for case in plan.cases
        for topology in ("auto", "udp")
    ]


def rows_of_gateware() -> list[dict]:
    rates = {"bus_bits": 512, "clock_mhz": 250, "workers": 2, "results": "unicast"}
    carried = {"bench": "line_rate", "payload_gbps": 96.0, "payload_out_gbps": 96.0}
    skipped = {"bench": "zero_skip", "cycles": 100, "cycles_ideal": 90}
    lines = [
        {**carried, "traffic": traffic, "blocks": blocks}
        for traffic in ("full", "port")
        for blocks in ("1", "16")
    ]
    latencies = [
        {"bench": "latency", "blocks": 1, "latency_cycles": 37},
        {"bench": "latency", "blocks": 16, "latency_cycles": 97},
    ]
    skips = [
        {**skipped, "density": 1, "overlap": "–", "cycles_of_dense": 1.0},
        {**skipped, "density": 0.1, "overlap": "random", "cycles_of_dense": 0.1},
    ]
    return [{**rates, **row} for row in lines + latencies + skips]


def rows_of_training() -> list[dict]:
    wire = {"sent": 0.5, "least_sent": 0.4, "received": 0.8, "least_received": 0.7}
    return [
        {"bench": "accuracy", "data": "gradients", "workers": 2, "rms_ratio": 1.0},
        {"bench": "accuracy", "data": "gradients", "workers": 8, "rms_ratio": 0.5},
        {"bench": "wire_bytes", "workers": 4, "density": 0.1, **wire},
        {"bench": "wire_bytes", "workers": 4, "density": 1, **wire},
    ]


def rows_of_schemes() -> list[dict]:
    losses = [4.0 / step for step in range(1, 41)]
    about = {"bench": "convergence", "seed": 1, "steps": 40, "failed": "", "losses": losses}
    return [
        {**about, "task": task, "scheme": scheme, "held_out": [[0, 4.0], [40, end]], **sent}
        for task in ("digits", "lstm", "bag_dense")
        for scheme, end, sent in (
            ("", 1.0, {}),
            ("float32", 1.0, {"sent_bytes": 4e6}),
            ("gtopk:density=0.01", 1.2, {"sent_bytes": 1e5}),
        )
    ]


ROWS = {
    "ranks": rows_of_ranks,
    "network": rows_of_network,
    "gateware": rows_of_gateware,
    "training": rows_of_training,
    "schemes": rows_of_schemes,
}


def box_of(group: ElementTree.Element) -> Box:
    """Return left, top, right and bottom of the first path in a group, its background."""
    path = next(each for each in group.iter() if each.tag.endswith("}path"))
    points = [float(word) for word in re.findall(r"-?[\d.]+", path.attrib["d"])]
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def covered_axes(text: str) -> list[str]:
    """Return the axes over which a legend lies, in an SVG that matplotlib has drawn."""
    boxes = {
        group.attrib["id"]: box_of(group)
        for group in ElementTree.fromstring(text).iter()
        if re.fullmatch(r"(legend|axes)_\d+", group.attrib.get("id", ""))
    }
    legends = [box for name, box in boxes.items() if name.startswith("legend")]
    axes = {name: box for name, box in boxes.items() if name.startswith("axes")}
    assert legends
    assert axes
    return [name for name, box in axes.items() if any(overlap(each, box) for each in legends)]


@pytest.mark.parametrize("suite", SUITES)
def test_no_legend_covers_data_and_equal_figures_give_equal_files(suite, tmp_path):
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps({"schema": 1, "rows": ROWS[suite]()}))
    for folder in ("one", "two"):
        assert SUITES[suite].main([str(figures), str(tmp_path / folder)]) == 0
    names = {path.stem for path in (tmp_path / "one").iterdir()}
    assert names == set(SUITES[suite].PLOTS)
    for name in names:
        drawn = (tmp_path / "one" / f"{name}.svg").read_bytes()
        assert drawn == (tmp_path / "two" / f"{name}.svg").read_bytes()
        assert covered_axes(drawn.decode()) == []


def test_the_plot_of_the_command_has_its_legend_beside_its_axes(tmp_path: Path):
    about = {
        "what": "all_reduce",
        "dtype": "float",
        "op": "sum",
        "ranks": 4,
        "density": 1,
        "engine": "shm",
    }
    rows = [{**TIMES, **about, "bytes": size} for size in (1 << 10, 1 << 20)]
    size_plot.draw(rows, tmp_path / "sizes.svg")
    assert covered_axes((tmp_path / "sizes.svg").read_text()) == []


@pytest.mark.parametrize("name", DRAWN)
def test_no_legend_of_the_documents_covers_data(name):
    assert covered_axes((ROOT / "docs" / "plots" / f"{name}.svg").read_text()) == []


def test_a_legend_within_the_axes_is_seen(tmp_path: Path):
    def draw(axes, _rows):
        axes.plot([1, 2, 3], label="data")
        axes.legend()

    draw_plots({"planted": ("none", draw)}, [], tmp_path)
    assert covered_axes((tmp_path / "planted.svg").read_text()) == ["axes_1"]
