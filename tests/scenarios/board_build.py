"""The simulated board of the tests: what it is built for, and its settings."""

from afflux_hdl.contract.management import Settings
from afflux_sim.board.simulated_appliance import SIZES
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import Build
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC

__all__ = ["BOARD_BUILD", "BOARD_SETTINGS", "CONTROLLER"]

CONTROLLER = "10.0.0.1"

BOARD_BUILD: Build = {
    "workers": SIZES["workers"],
    "lanes": SIZES["lanes"],
    "jobs": SIZES["jobs"],
    "slots": SIZES["slots"],
}
"""The sizes of a simulated board unless it is told otherwise: one build for all tests, and for all
that start a board with `AFFLUX_AGGREGATOR` or a command."""

BOARD_SETTINGS = Settings(
    mac=int(ENGINE_MAC.replace(":", ""), 16),
    address=ENGINE_ADDRESS,
    controller=CONTROLLER,
    key=bytes(range(16, 32)),
    engine_port=ENGINE_PORT,
    name="at the pins",
)
"""The addresses that the tests' frames and the golden engine have."""
