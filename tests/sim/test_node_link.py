"""The node's RTL while the network takes nothing, is flooded, or a reset cuts frames off."""

import pytest

from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.node_link_checks import (
    check_link_down,
    check_resets_amid_frames,
    check_share,
    check_slow_host_frame,
)
from tests.support.node_build import NODE

CHECKS = (check_link_down, check_resets_amid_frames, check_share, check_slow_host_frame)


@pytest.mark.parametrize("check", CHECKS)
def test_check(check) -> None:
    with VerilatedNode(NODE) as node:
        check(node, NODE)
