"""All-reduces through NCCL's tables, beside the golden model."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from afflux_sim.golden.reductions import all_reduce
from tests.support.golden_tensors import DTYPES, bits_of, draw
from tests.support.host.aggregators import aggregator, streams_aggregator
from tests.support.nccl.node import RED_OPS, Buffer, Node, run_nodes
from tests.support.nccl.tables import VERSIONS

ROOM = 1 << 20
KINDS = ("dense", "sparse", "special", "mixed")


def drawn(rank: int, kind: str, dtype: str, count: int) -> npt.NDArray[Any]:
    return draw(np.random.default_rng((rank, DTYPES.index(dtype))), kind, dtype, count)


def each_operation(node: Node, kinds: tuple[str, ...], count: int) -> dict[Any, Any]:
    assert node.init() == 1
    comm = node.form()
    buffers = Buffer(ROOM), Buffer(ROOM)
    for each in buffers:
        comm.register(each)
    results = {
        (kind, dtype, red_op): comm.all_reduce(
            drawn(node.rank, kind, dtype, count), dtype, red_op, buffers
        )
        for kind in kinds
        for dtype in DTYPES
        for red_op in RED_OPS
    }
    for each in buffers:
        comm.deregister(each)
    comm.close()
    node.finalize()
    return results


def check(found: list[dict[Any, Any]], count: int) -> None:
    size = len(found)
    for kind, dtype, red_op in found[0]:
        tensors = [drawn(rank, kind, dtype, count) for rank in range(size)]
        expected = bits_of(all_reduce(tensors, dtype, red_op), dtype)
        for rank, results in enumerate(found):
            result = bits_of(results[kind, dtype, red_op], dtype)
            assert (result == expected).all(), (kind, dtype, red_op, rank)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_golden_models_bits(version):
    kinds = KINDS if version == VERSIONS[-1] else ("special",)
    with aggregator() as url:
        found = run_nodes(
            each_operation, 2, kinds, 300, environment={"AFFLUX_AGGREGATOR": url}, version=version
        )
    check(found, 300)


def test_nodes_whose_nccl_asks_for_different_versions():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(
            each_operation, 3, ("mixed",), 130, environment=environment, version=(8, 12, 11)
        )
    check(found, 130)


@pytest.mark.parametrize("size", [3, 8])
def test_more_nodes(size):
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(each_operation, size, ("mixed",), 130, environment=environment)
    check(found, 130)


def test_packets_that_are_lost_change_nothing():
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_TEST_LOSS": "0.05"}
        found = run_nodes(each_operation, 3, ("special",), 2000, environment=environment)
    check(found, 2000)


def test_aggregators_that_share_the_columns():
    with aggregator() as one, aggregator() as other:
        environment = {"AFFLUX_AGGREGATOR": f"{one},{other}"}
        found = run_nodes(each_operation, 2, ("mixed",), 3000, environment=environment)
    check(found, 3000)


@pytest.mark.parametrize("size", [2, 5])
def test_streams_among_the_nodes(size):
    environment = {"AFFLUX_AGGREGATOR": "streams://", "AFFLUX_INTERFACE": "lo"}
    found = run_nodes(each_operation, size, KINDS, 1500, environment=environment)
    check(found, 1500)


def test_an_aggregator_of_streams():
    # Of 16-bit types it owns nothing here: the nodes sum so many bytes in one hop.
    with streams_aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(each_operation, 3, ("mixed",), 30_000, environment=environment)
    check(found, 30_000)


def supported(node: Node) -> dict[tuple[int, int], int]:
    node.init()
    answers = {}
    for data_type in range(12):
        for red_op in range(5):
            out = ctypes.c_int(-1)
            node.check("reduceSupport", data_type, red_op, ctypes.byref(out))
            answers[data_type, red_op] = out.value
    return answers


def test_exactly_what_is_native_is_supported():
    environment = {"AFFLUX_AGGREGATOR": "udp://127.0.0.1"}
    (answers,) = run_nodes(supported, 1, environment=environment)
    assert {each for each, yes in answers.items() if yes} == {
        (data_type, red_op) for data_type in (2, 6, 7, 9) for red_op in (0, 2, 3)
    }
    assert set(answers.values()) == {0, 1}
