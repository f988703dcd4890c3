"""Stated times, and the order in which frames leave: checks that mutants have led to."""

import pytest

from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.command_checks import check_unasked_fields, check_uncommanded_writes
from tests.checks.egress_checks import check_order
from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32
from tests.checks.merge_checks import check_zeros
from tests.checks.timer_checks import (
    check_access_times,
    check_answer_rates,
    check_link_timeout,
    check_node_link_timeout,
    check_refusal_rate,
    check_reset_at_rest,
)
from tests.checks.turn_checks import check_turns, fits
from tests.support.node_build import NODE

NARROW = 32
"""Timers take the same time at any width, and the narrow build runs fastest."""


@pytest.mark.parametrize("check", [check_link_timeout, check_refusal_rate])
def test_engine_times(check) -> None:
    with open_engine(NARROW) as engine:
        check(engine, BUILDS[NARROW])


@pytest.mark.parametrize(
    "check",
    [
        check_answer_rates,
        check_order,
        check_reset_at_rest,
        # The engine's own is there without it.
        pytest.param(check_node_link_timeout, marks=pytest.mark.long),
    ],
)
def test_node_times_and_order(check) -> None:
    with VerilatedNode(NODE) as node:
        check(node, NODE)


def test_register_accesses_take_as_long_as_stated() -> None:
    with VerilatedNode(NODE) as node:
        check_access_times(node)


@MOSTLY_32
@pytest.mark.parametrize(
    "check",
    [check_turns, check_uncommanded_writes, check_unasked_fields, check_zeros],
)
def test_engine_order_and_commands(check, bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check(engine, BUILDS[bus_bits])


def test_the_model_of_turns_tells_orders_apart() -> None:
    right = [(0, 3), (0, 3), (0, 3), (1, 5), (1, 5), (0, 3), (0, 3), (1, 5), (1, 5)]
    assert fits(right, 7, 7)
    # One frame too many in a turn, one too few, and a debt that is forgotten.
    assert not fits([(0, 3)] * 4 + right[3:], 7, 7)
    assert not fits([*right[:2], *right[3:]], 7, 7)
    assert not fits([*right[:5], (0, 3), *right[5:]], 7, 7)
