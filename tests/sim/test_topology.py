"""Formulas of docs/scaling.md against a simulation of links and windows."""

from dataclasses import replace
from typing import Any

import pytest

from docs.generate import scaling_tables
from docs.generate.cluster_events import play, play_ring
from docs.generate.cluster_formulas import (
    Cluster,
    all_reduce_s,
    ring_s,
    round_trip_s,
    slots_needed,
    traffic_bytes,
    union_density,
)
from tests.support.checkout import ROOT

ROUNDS = 30
SPARSE: dict[str, Any] = {"density": 0.1, "union": union_density(0.1, 8)}

CLUSTERS = {
    "star": Cluster(workers=4),
    "slow workers": Cluster(workers=10, worker_bits_per_s=10e9),
    "slow workers bind": Cluster(workers=4, worker_bits_per_s=10e9),
    "many workers": Cluster(workers=32, slots=16),
    "1,500 bytes": Cluster(workers=4, lanes=5),
    "multicast": Cluster(workers=8, multicast=True),
    "sparse": Cluster(workers=8, **SPARSE),
    "sparse, multicast": Cluster(workers=8, multicast=True, **SPARSE),
    "2 engines": Cluster(workers=8, engines=2),
    "8 engines": Cluster(workers=8, engines=8, slots=128),
    "tree": Cluster(workers=16, leaves=4, slots=32),
    "tree, multicast": Cluster(workers=16, leaves=4, multicast=True, slots=32),
    "deep tree": Cluster(workers=32, leaves=4, slots=32),
}


def tensor_bytes(cluster: Cluster, rounds: int) -> float:
    return rounds * cluster.slots * cluster.lanes * 256 / cluster.union


@pytest.mark.parametrize("name", CLUSTERS)
def test_formulas_agree_with_the_simulation(name):
    cluster = CLUSTERS[name]
    formula = all_reduce_s(cluster, tensor_bytes(cluster, ROUNDS))
    assert play(cluster, ROUNDS) == pytest.approx(formula, rel=0.05)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_small_window_costs_round_trips(slots):
    cluster = Cluster(workers=2, slots=slots, link_delay_s=20e-6)
    assert slots < slots_needed(cluster)
    formula = all_reduce_s(cluster, tensor_bytes(cluster, ROUNDS))
    assert formula == pytest.approx(ROUNDS * round_trip_s(cluster))
    assert play(cluster, ROUNDS) == pytest.approx(formula, rel=0.05)


def test_a_tree_pays_both_levels_in_its_round_trip():
    cluster = Cluster(workers=4, leaves=2, slots=1, link_delay_s=20e-6)
    assert play(cluster, ROUNDS) == pytest.approx(ROUNDS * round_trip_s(cluster), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["star", "tree", "8 engines", "sparse, multicast"])
def test_as_many_slots_as_the_formula_says_are_enough(name):
    base = CLUSTERS[name]
    step = base.engines
    enough = replace(base, slots=-(-slots_needed(base) // step) * step)
    few = replace(base, slots=max(step, slots_needed(base) // 3 // step * step))
    rate = {c: play(c, ROUNDS) / (c.slots * ROUNDS) for c in (base, enough, few)}
    assert rate[enough] == pytest.approx(rate[base], rel=0.07)
    assert rate[few] > 1.3 * rate[enough]


@pytest.mark.parametrize("workers", [2, 4, 16])
def test_the_ring(workers):
    cluster = Cluster(workers=workers)
    assert play_ring(cluster, 1e8) == pytest.approx(ring_s(cluster, 1e8), rel=0.05)


def test_sees_a_formula_that_forgets_the_shared_port():
    """Each worker's link alone would be four times too good."""
    cluster = CLUSTERS["star"]
    alone = 8 * traffic_bytes(cluster)["worker"] / cluster.worker_bits_per_s
    forgetful = cluster.rounds(tensor_bytes(cluster, ROUNDS)) * alone
    assert play(cluster, ROUNDS) != pytest.approx(forgetful, rel=0.5)


def test_where_a_ring_is_better():
    """One port for four equal links: the ring. A port for each worker: the star."""
    star = Cluster(workers=4)
    assert ring_s(star, 1e8) < all_reduce_s(star, 1e8)
    assert all_reduce_s(replace(star, engines=4), 1e8) < ring_s(star, 1e8)
    ten = Cluster(workers=10, worker_bits_per_s=10e9)
    assert all_reduce_s(ten, 1e8) < ring_s(ten, 1e8)


def test_multicast_helps_sparse_sums_and_not_dense_ones():
    dense, sparse = Cluster(workers=8), Cluster(workers=8, **SPARSE)
    assert all_reduce_s(replace(dense, multicast=True), 1e8) == all_reduce_s(dense, 1e8)
    assert all_reduce_s(replace(sparse, multicast=True), 1e8) < 0.25 * all_reduce_s(sparse, 1e8)


def test_workers_must_spread_evenly():
    with pytest.raises(ValueError, match="evenly"):
        play(Cluster(workers=10, leaves=4), 1)


def test_the_document_has_these_tables():
    path = ROOT / "docs/scaling.md"
    text = path.read_text(encoding="utf-8")
    for name in scaling_tables.TABLES:
        assert f"<!-- topology: {name} -->" in text
    assert scaling_tables.render(text) == text
