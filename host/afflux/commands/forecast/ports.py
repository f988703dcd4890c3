"""How many cores a port of a given rate takes, full both ways with dense tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

from afflux.commands.forecast.stages import Stages, measure_stages
from afflux.commands.forecast.streams import PAYLOAD_SHARE, measure_streams
from afflux.commands.forecast.whole import SLOTS, Whole, measure_whole
from afflux_hdl.contract import wire

__all__ = [
    "LANES",
    "RATES_GBIT",
    "Forecast",
    "cores_for",
    "forecast",
    "forecast_streams",
    "payload_share",
]

RATES_GBIT = (10.0, 25.0, 100.0)
"""Of ports."""

LANES = {5: "MTU 1,500", 16: "jumbo frames"}
"""The numbers of lanes to measure, and their purpose."""

_GAP_BYTES = 24
"""Preamble, check sequence and gap of an Ethernet frame."""

_TENSOR_BYTES = 16 << 20
_REPEATS = 3


@dataclass(frozen=True)
class Forecast:
    """A measurement with packets of so many lanes, and its consequences.

    Attributes:
        lanes: Blocks of a packet.
        stages: Costs alone.
        whole: Costs of all-reduces.
    """

    lanes: int
    stages: Stages
    whole: Whole

    def worker_cores(self, gbit: float, *, offloads: bool = True) -> float:
        """Return how many cores ranks keep busy at a port."""
        return cores_for(gbit, payload_share(self.lanes), self.whole.worker + self._more(offloads))

    def aggregator_cores(self, gbit: float, *, offloads: bool = True) -> float:
        """Return how many cores a software aggregator keeps busy at a port."""
        return cores_for(
            gbit, payload_share(self.lanes), self.whole.aggregator + self._more(offloads)
        )

    def _more(self, offloads: bool) -> float:
        return 0.0 if offloads else self.stages.without_offloads


def payload_share(lanes: int) -> float:
    """Return the share of a port's bits that are blocks, in full packets."""
    return lanes * wire.BLOCK_BYTES / (wire.frame_bytes(lanes) + _GAP_BYTES)


def cores_for(gbit: float, share: float, seconds_per_byte: float) -> float:
    """Return the cores that are busy while a port is full both ways.

    Args:
        gbit: Rate of the port.
        share: Of its bits, those that are elements.
        seconds_per_byte: Processor time for a byte that is sent and one that is received.
    """
    return gbit * 1e9 / 8 * share * seconds_per_byte


def forecast(lanes: Sequence[int] = tuple(LANES)) -> list[Forecast]:
    """Measure for each number of lanes: about a second in all, over the loopback interface alone.

    Raises:
        AffluxError: An all-reduce did not work.
        OSError: There can be no sockets for it.
    """
    return [
        Forecast(
            each,
            measure_stages(each, SLOTS, _TENSOR_BYTES, _REPEATS),
            measure_whole(each, _TENSOR_BYTES, _REPEATS),
        )
        for each in lanes
    ]


def forecast_streams() -> tuple[float, list[float]]:
    """Measure over streams, likewise.

    Returns:
        Seconds of a rank's processor time for a byte that it sends and one that it receives, and
        how many cores ranks keep busy at each port of `RATES_GBIT`.

    Raises:
        AffluxError: An all-reduce did not work.
        OSError: There can be no sockets for it.
    """
    cost = measure_streams(_TENSOR_BYTES, _REPEATS)
    return cost, [cores_for(gbit, PAYLOAD_SHARE, cost) for gbit in RATES_GBIT]
