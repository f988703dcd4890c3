"""The tuner's tables: which all-reduces go through the aggregator."""

import ctypes

import pytest

from tests.support.nccl.node import LIBRARY, Node, run_nodes
from tests.support.nccl.tables import VERSIONS, PluginLibrary
from tests.support.nccl.tuner import (
    ALGORITHMS,
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    CHAIN,
    COLLNET,
    REDUCE_SCATTER,
    SIMPLE,
    Tuner,
)

_I = ctypes.c_int
_P, _Z = ctypes.c_void_p, ctypes.c_size_t


def all_costs(node: Node, version: int) -> dict[tuple[int, int], list[float]]:
    tuner = Tuner(version, node._logger)
    found = {
        (collective, size): tuner.costs(collective, size)
        for collective in (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST)
        for size in (8, 1024, 65_536, 65_537)
    }
    # An algorithm that NCCL has ruled out stays so, as for another type of elements.
    assert tuner.costs(ALL_REDUCE, 1024, -1.0) == [-1.0] * ALGORITHMS
    return found


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_only_all_reduces_of_the_sizes_that_are_named_are_taken(version):
    environment = {"AFFLUX_NCCL_BYTES": "1024:65536"}
    (found,) = run_nodes(all_costs, 1, version, environment=environment)
    for (collective, size), costs in found.items():
        taken = collective == ALL_REDUCE and size in (1024, 65_536)
        expected = [5.0] * ALGORITHMS
        if collective == ALL_REDUCE:
            for each in COLLNET:
                expected[each] = 0.0 if taken else -1.0
        assert costs == expected, (collective, size)


def left_to_nccl(node: Node, version: int = 6, nodes: int = 2) -> list[float]:
    return Tuner(version, node._logger, nodes).costs(ALL_REDUCE, 1024)


def test_before_an_engine_is_known_nccls_own_choice_counts():
    (costs,) = run_nodes(left_to_nccl, 1, environment={})
    assert costs == [5.0] * ALGORITHMS


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_within_one_node_nvls_keeps_its_costs(version):
    (costs,) = run_nodes(left_to_nccl, 1, version, 1, environment={"AFFLUX_NCCL_BYTES": "0:512"})
    assert costs == [5.0] * ALGORITHMS


def ill_set(node: Node, version: int) -> tuple[list[float], list[str]]:
    return left_to_nccl(node, version), node.warnings()


@pytest.mark.parametrize("version", [3, 6])
def test_a_setting_that_cannot_be_does_not_abort_the_job(version):
    environment = {"AFFLUX_NCCL_BYTES": "0:512", "AFFLUX_NCCL_JOBS": "9"}
    ((costs, warnings),) = run_nodes(ill_set, 1, version, environment=environment)
    assert costs == [5.0] * ALGORITHMS
    assert "AFFLUX_NCCL_JOBS=9" in warnings[0]


def older(node: Node) -> list[tuple[int, int]]:
    tuner = Tuner(2, node._logger)
    call = ctypes.CFUNCTYPE(_I, _P, _I, _Z, _I, _I, _I, _P, _P, _P)(tuner._function)
    found = []
    for collective, size, collnet in (
        (ALL_REDUCE, 8, 1),
        (ALL_REDUCE, 8, 0),
        (ALL_REDUCE, 4096, 1),
    ):
        chosen = ctypes.c_int(-7), ctypes.c_int(-7), ctypes.c_int(-7)
        addresses = [ctypes.addressof(each) for each in chosen]
        assert call(tuner.context, collective, size, collnet, 0, 1, *addresses) == 0
        found.append((chosen[0].value, chosen[1].value))
    return found


def test_version_2_names_the_algorithm():
    (found,) = run_nodes(older, 1, environment={"AFFLUX_NCCL_BYTES": "0:1024"})
    assert found == [(CHAIN, SIMPLE), (-7, -7), (-7, -7)]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_table_has_what_the_network_does_not_do(version):
    plugin = PluginLibrary(LIBRARY, version)
    assert plugin.collnet.has("iallreduce")
    assert not plugin.collnet.has("iallgather") and not plugin.collnet.has("ireducescatter")
    if version >= 9:
        # Null as in NCCL's own transport over sockets.
        assert not plugin.collnet.has("makeVDevice") and not plugin.net.has("makeVDevice")
