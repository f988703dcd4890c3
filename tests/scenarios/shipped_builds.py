"""The sizes of the engines that are shipped, by the name of what has them."""

from afflux_hdl.boards.table import BOARDS
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.vivado import as02mc04, cmac
from tests.scenarios.director import Build

__all__ = ["SHIPPED", "SOFTWARE", "build_of"]

SHIPPED: dict[str, Parameters] = {
    "default": Parameters(),
    "opennic": BoxParameters().node.engine,
    "alveo": cmac.parameters().node.engine,
    as02mc04.TOP: as02mc04.parameters().node.engine,
    **{name: board.node.engine for name, board in BOARDS.items()},
}
"""In gateware. Some are the same."""

SOFTWARE: Build = {"workers": 64, "lanes": 16, "jobs": 64, "slots": 2048}
"""The software engine as `afflux serve` starts it."""


def build_of(parameters: Parameters) -> Build:
    """Return the maxima alone."""
    return {
        "workers": parameters.workers,
        "lanes": parameters.lanes,
        "jobs": parameters.jobs,
        "slots": parameters.slots,
    }
