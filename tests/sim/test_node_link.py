"""The node's RTL while the network takes nothing, is flooded, or a reset cuts frames off."""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.node_link_checks import (
    check_link_down,
    check_resets_amid_frames,
    check_share,
    check_slow_host_frame,
)

BUILT = NodeParameters(engine=Parameters(bus_bits=512, workers=8, lanes=16, jobs=2, slots=64))
"""As in `tests/support/host/boards.py`, so that all use one build."""


CHECKS = (check_link_down, check_resets_amid_frames, check_share, check_slow_host_frame)


@pytest.mark.parametrize("check", CHECKS)
def test_check(check) -> None:
    with VerilatedNode(BUILT) as node:
        check(node, BUILT)
