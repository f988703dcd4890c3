"""The checks of a node beside its golden twin, on the node that other tests have built as well."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.node_checks import node_battery
from tests.checks.node_field_checks import (
    check_any_address,
    check_any_port,
    check_each_size,
    check_events_alone,
    check_fields_of_requests,
    check_stated_build,
)

BUILT = NodeParameters(engine=Parameters(bus_bits=512, workers=8, lanes=16, jobs=2, slots=64))
"""As in `tests/support/host/boards.py`, so that all use one build."""


@pytest.mark.parametrize("name", node_battery(BUILT))
def test_check(name: str) -> None:
    with VerilatedNode(BUILT) as node:
        node_battery(BUILT)[name](node)


@pytest.mark.parametrize(
    "check",
    [
        check_any_address,
        check_any_port,
        check_each_size,
        check_events_alone,
        check_fields_of_requests,
        check_stated_build,
    ],
)
def test_fields_and_counters(check) -> None:
    with VerilatedNode(BUILT) as node:
        check(node, BUILT)
