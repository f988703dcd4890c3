"""OmniReduce's sweep: its tensors are what their names say, and its limits those of the wire."""

import dataclasses

import numpy as np
import pytest

from benchmarks.network import density
from benchmarks.network.cases import Case, Setup
from benchmarks.network.limits import limit_s

RANKS = 4
BLOCKS = 1 << 14


def present(drawn: density.Drawn) -> np.ndarray:
    """Return which blocks ranks have, from their tensors, of shape (ranks, blocks)."""
    ranks = range(drawn.ranks)
    parts = [np.concatenate([drawn.piece(rank, at) for at in drawn.pieces()]) for rank in ranks]
    assert all(len(part) == drawn.count for part in parts)
    return np.stack([part.reshape(-1, density.BLOCK).any(axis=1) for part in parts])


@pytest.mark.parametrize("overlap", density.OVERLAPS)
def test_tensors_have_the_density_and_the_overlap_that_they_are_named_by(overlap):
    share = 0.2
    found = present(density.Drawn(density.BLOCK * BLOCKS, RANKS, share, overlap))
    assert found.mean(axis=1) == pytest.approx([share] * RANKS, rel=0.05)
    unions = {"random": 1 - (1 - share) ** RANKS, "full": share, "none": share * RANKS}
    assert found.any(axis=0).mean() == pytest.approx(unions[overlap], rel=0.03)
    assert (found.sum(axis=0).max() == 1) == (overlap == "none")
    assert bool((found == found[0]).all()) == (overlap == "full")


def test_a_sum_is_checked_to_the_bit_in_every_piece():
    drawn = density.Drawn(3 << 20, RANKS, 0.1)
    total = np.zeros(drawn.count, np.float32)
    for where in drawn.pieces():
        for rank in range(RANKS):
            total[where] += drawn.piece(rank, where)
    places = [0, 1 << 20, drawn.count - 1]
    total[places] += 1
    assert [drawn.wrong(total, rank, RANKS) for rank in range(RANKS)] == [1, 1, 1, 0]


def test_the_sweep_has_the_papers_densities_where_there_are_such_tensors():
    of = {
        overlap: [case.density for plan in density.WORKLOAD.plans[:1] for case in plan.cases
                  if case.overlap == overlap]
        for overlap in density.OVERLAPS
    }  # fmt: skip
    assert of["random"] == [1.0, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01]
    assert of["full"] == of["random"][1:]
    assert of["none"] == [0.2, 0.1, 0.08, 0.04, 0.02, 0.01]
    assert {case.bytes for plan in density.WORKLOAD.plans for case in plan.cases} == {
        4 * 26_214_400
    }


# A tensor of 1,280,000 bytes is 5,000 blocks of the wire, 1,000 full packets of five blocks at an
# MTU of 1,500. A full packet has 128 bytes of headers and words, and 1,280 of blocks.
@pytest.mark.parametrize(
    ("share", "overlap", "sent", "received"),
    [
        (1.0, "random", 1000 * 1408, 1000 * 1408),
        (0.1, "full", 100 * 1408, 100 * 1408),
        # Every rank answers to each of the union's 400 packets, with the blocks that it has.
        (0.1, "none", 400 * 128 + 128_000, 400 * 1408),
        # 1 - 0.5^4 of all blocks, in 937.5 packets.
        (0.5, "random", 937.5 * 128 + 640_000, 937.5 * 1408),
    ],
)
def test_limits_are_those_of_the_busiest_link(share, overlap, sent, received):
    setup = Setup("chosen", "chosen", hosts=RANKS, gbit=1.0, aggregator_gbit=10.0)
    case = Case("chosen", "chosen", 1_280_000, share, overlap, "density")
    busier = max(sent, received)
    assert limit_s(setup, case, "udp") == pytest.approx(busier * 8e-9)
    # Three quarters of what a rank sends go to the others, as do its results for them.
    assert limit_s(setup, case, "auto") == pytest.approx(0.75 * (sent + received) * 8e-9)
    # Four ranks' results leave at the aggregator's own port.
    slower = dataclasses.replace(setup, aggregator_gbit=2.0)
    assert limit_s(slower, case, "udp") == pytest.approx(4 / 2 * busier * 8e-9)


def test_the_table_has_a_line_for_each_density_and_overlap():
    def row(plan, case, topology):
        about = {"bench": "network", "setup": plan.setup.name, "case": case.name, "quick": False}
        about |= {
            "ranks": 4,
            "cores": 2,
            **({"aggregator_cpu_s": 0.1} if topology == "udp" else {}),
        }
        times = {"afflux_s": 0.2, "limit_s": 0.1, "gloo_s": 1.0, "ratio": 5.0, "afflux_cpu_s": 0.05}
        return about | times | {"topology": topology, "bytes": case.bytes}

    rows = [
        row(plan, case, topology)
        for plan in density.WORKLOAD.plans
        for case in plan.cases
        for topology in ("auto", "udp")
    ]
    lines = density.WORKLOAD.tables["density"](rows).splitlines()[2:]
    assert len(lines) == 9 + 8 + 6
    assert lines[0].startswith("| 100 % | random | 1000.0 ms | 200.0 ms | 100.0 ms | 2.00 | 5.0 |")
    # Four ranks at 50 ms, and the aggregator's 100 ms, on two cores.
    assert lines[0].endswith("| 50.0 ms | 100.0 ms | 150.0 ms |")
    slow = density.WORKLOAD.tables["density_slow"](rows).splitlines()[2:]
    assert len(slow) == 2 * 2
