"""How many cores ports of usual rates would take on this machine, as JSON values."""

import time
from typing import Any

from afflux.commands.forecast.ports import LANES, RATES_GBIT, Forecast, forecast, forecast_streams
from afflux.commands.forecast.stages import aggregator_stages, worker_stages
from afflux_drivers.errors import AffluxError

__all__ = ["measured_forecast"]


def measured_forecast() -> dict[str, Any]:
    """Measure, for about a second, without leaving this machine.

    Returns:
        `seconds` that it took; `rates_gbit` of ports; `streams`: the `cores` of ranks over streams,
        by rate, and `ns_per_byte` of processor time. For packets: `cores`, for worker and
        aggregator and each kind of packets: `what`, `packets`, `lanes`, and by rate the cores with
        `offloads` and with `no_offloads`; `stages`, the same with nanoseconds of processor time for
        a byte: `whole`, and each stage alone.

    Raises:
        AffluxError: It did not work.
    """
    begin = time.perf_counter()
    try:
        found = forecast()
        streams_s, streams_cores = forecast_streams()
    except (AffluxError, OSError, RuntimeError) as error:
        raise AffluxError(f"no forecast: {error}") from error
    return {
        "seconds": time.perf_counter() - begin,
        "rates_gbit": list(RATES_GBIT),
        "streams": {"cores": streams_cores, "ns_per_byte": streams_s * 1e9},
        "cores": [cores for each in found for cores in _cores(each)],
        "stages": [stages for each in found for stages in _stages(each)],
    }


def _cores(each: Forecast) -> list[dict[str, Any]]:
    return [
        {
            "what": what,
            "packets": LANES[each.lanes],
            "lanes": each.lanes,
            "offloads": [cores(rate, offloads=True) for rate in RATES_GBIT],
            "no_offloads": [cores(rate, offloads=False) for rate in RATES_GBIT],
        }
        for what, cores in (("ranks", each.worker_cores), ("aggregator", each.aggregator_cores))
    ]


def _stages(each: Forecast) -> list[dict[str, Any]]:
    of_worker = worker_stages(each.stages, each.whole.worker_calls)
    of_aggregator = aggregator_stages(each.stages, each.whole.aggregator_calls)
    return [
        {
            "what": what,
            "lanes": each.lanes,
            "whole_ns_per_byte": whole * 1e9,
            "ns_per_byte": {name: cost * 1e9 for name, cost in stages.items()},
        }
        for what, whole, stages in (
            ("ranks", each.whole.worker, of_worker),
            ("aggregator", each.whole.aggregator, of_aggregator),
        )
    ]
