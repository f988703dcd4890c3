"""The sizes of the node that tests share: in process and as a simulated board it is one model."""

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["NODE", "OPTIONS"]

NODE = NodeParameters(engine=Parameters(bus_bits=512, workers=8, lanes=16, jobs=2, slots=64))

OPTIONS = tuple(
    part
    for name in ("workers", "jobs", "slots")
    for part in (f"--{name}", str(getattr(NODE.engine, name)))
)
"""The same for `afflux serve`, whose other sizes are these."""
