"""The checks of a node beside its golden twin, on the node that other tests have built as well."""

import pytest

from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.node_battery import node_battery
from tests.support.node_build import NODE


@pytest.mark.parametrize("name", node_battery(NODE))
def test_check(name: str) -> None:
    with VerilatedNode(NODE) as node:
        node_battery(NODE)[name](node)
