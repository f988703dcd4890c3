"""The checks of a node beside its golden twin, on the node that other tests have built as well."""

import pytest

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
from tests.support.node_build import NODE


@pytest.mark.parametrize("name", node_battery(NODE))
def test_check(name: str) -> None:
    with VerilatedNode(NODE) as node:
        node_battery(NODE)[name](node)


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
    with VerilatedNode(NODE) as node:
        check(node, NODE)
