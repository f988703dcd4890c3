"""The figures of the benchmark of priorities, from what ranks report."""

import argparse
from typing import Any

import pytest
import torch

from benchmarks.network.overlap import as_text, rows_of
from benchmarks.network.overlap_rank import CONTENDERS, layers, network
from benchmarks.network.overlap_tables import TABLES
from tests.support.checkout import ROOT

STATISTICS = {"layers": "layers", "exposed_s": 0.6, "rounds": 12}
FOUND = {
    "bytes": 1000,
    "alone": {"runs_s": [0.3, 0.3, 0.9], "wrong": 0},
    "gloo": {"runs_s": [0.8, 0.7, 0.7], "wrong": 0},
    "own": {"runs_s": [0.5, 0.5, 0.4], "wrong": 0},
    "arrival": {"runs_s": [0.4, 0.4, 0.4], "wrong": 1, "statistics": STATISTICS},
    "priorities": {"runs_s": [0.35, 0.3, 0.4], "wrong": 0, "statistics": STATISTICS},
}


def test_exposed_is_what_a_step_takes_beyond_computing():
    given = argparse.Namespace(quick=False, hosts=4, gbit=1.0, message=10, forward=0.1)
    rows = {row["case"]: row for row in rows_of(FOUND, given)}
    assert list(rows) == list(CONTENDERS)
    assert rows["own"]["exposed_s"] == pytest.approx(0.2)
    assert rows["priorities"]["exposed_of_own"] == pytest.approx(0.25)
    assert rows["priorities"]["exposed_of_arrival"] == pytest.approx(0.5)
    assert rows["priorities"]["times_gloo"] == pytest.approx(2.0)
    text = as_text(list(rows.values()))
    assert "WRONG" in text and text.endswith("layers")


def test_the_document_has_a_place_for_its_table():
    given = argparse.Namespace(quick=False, hosts=4, gbit=1.0, message=10, forward=0.1)
    page = (ROOT / "docs" / "schemes" / "mlsl.md").read_text(encoding="utf-8")
    header, _, *lines = TABLES["ways"](rows_of(FOUND, given)).splitlines()
    assert f"<!-- overlap figures: ways -->\n{header}\n" in page
    assert lines[0] == "| no communication | 300 ms | – | – | 2.33 | – |"
    assert lines[-1] == (
        "| messages by priority, steps deferred | 350 ms | 50 ms | 0.25 | 2.00 | 50 ms |"
    )


def test_the_network_has_vgg_16s_shares():
    known = layers()
    assert sum(each.parameters for each in known) == 138_357_544
    assert sum(each.operations for each in known) == 15_470_264_320
    made = network(1 << 20, 1.0, rank=0)
    assert [name for name, _ in made.named_children()] == [each.name for each in known]
    seconds: list[Any] = [module.forward_s for module in made]
    assert sum(seconds) == pytest.approx(1.0)
    output = made[-1](torch.zeros(1))
    assert output.shape == (1,)
