"""The checks of a node beside its golden twin."""

from collections.abc import Callable
from functools import partial

from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks import node_field_checks as fields
from tests.checks.node_checks import (
    check_a_new_start,
    check_asked_addresses,
    check_cases_within,
    check_near_headers,
    check_register_port,
    check_rooms,
    check_traffic,
)

__all__ = ["NodeCheck", "node_battery"]

NodeCheck = Callable[[VerilatedNode], object]


def node_battery(built: NodeParameters) -> dict[str, NodeCheck]:
    """Return all checks of a node by their names, those first that notice most.

    Args:
        built: The node's sizes.
    """
    checks = {
        "traffic": check_traffic,
        "cases": check_cases_within,
        "rooms": check_rooms,
        "near headers": check_near_headers,
        "asked addresses": check_asked_addresses,
        "a new start": check_a_new_start,
        "stated build": fields.check_stated_build,
        "fields of requests": fields.check_fields_of_requests,
        "each size": fields.check_each_size,
        "any address": fields.check_any_address,
        "any port": fields.check_any_port,
        "events alone": fields.check_events_alone,
    }
    battery: dict[str, NodeCheck] = {
        name: partial(check, built=built) for name, check in checks.items()
    }
    return {**battery, "register port": check_register_port}
