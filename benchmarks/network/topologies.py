"""The contenders of a network's benchmark, as groups of `torch.distributed`."""

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import afflux
from benchmarks.report.control import Control

__all__ = ["CARRIERS", "INTERFACES", "ROUNDINGS", "TOPOLOGIES", "NetworkSession"]

TOPOLOGIES: Mapping[str, str] = {
    "auto": "auto",
    "auto_host": "auto",
    "udp": "udp://{aggregator}",
    "udp_host": "udp://{aggregator}",
    "tcp": "streams://{streams}",
    "soft": "soft://",
    "streams": "streams://",
    "two": "streams://",
    "ucx": "streams://",
}
"""AFFLUX_AGGREGATOR of each topology; {aggregator} is the address of the one that takes packets,
{streams} of the one that takes streams."""

INTERFACES: Mapping[str, str] = {"two": "eth0,eth1"}
"""AFFLUX_INTERFACE of topologies that have one; without it the first interface counts."""

ROUNDINGS: Mapping[str, str] = {"auto_host": "host", "udp_host": "host"}
"""AFFLUX_ROUNDING of topologies whose sums are not exact."""

CARRIERS: Mapping[str, str] = {"ucx": "ucx"}
"""AFFLUX_CARRIER of topologies whose streams TCP does not carry."""

_TIMEOUT_S = 60.0


class NetworkSession(Control):
    """A rank's groups: "gloo", one of Afflux for each topology, and one that is not measured.

    Args:
        addresses: Addresses and ports of the aggregators that run, by their names in `TOPOLOGIES`.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        super().__init__()
        self._addresses = addresses
        self._made: dict[str, Any] = {}

    def group(self, backend: str) -> Any:
        """Return the group of a contender. Collective the first time."""
        if backend not in self._made:
            timeout = timedelta(seconds=_TIMEOUT_S)
            if backend == "gloo":
                self._made[backend] = dist.new_group(backend="gloo", timeout=timeout)
            else:
                url = TOPOLOGIES[backend].format(**self._addresses)
                options = afflux.Options(
                    aggregator=url,
                    interface=INTERFACES.get(backend),
                    rounding=ROUNDINGS.get(backend),
                    carrier=CARRIERS.get(backend),
                )
                self._made[backend] = dist.new_group(
                    backend="afflux", timeout=timeout, pg_options=options
                )
        return self._made[backend]

    def renew(self, backend: str) -> None:
        """Forget the group of a contender, as it may have failed. All ranks must do so."""
        with contextlib.suppress(Exception):
            # It may not end well either.
            dist.destroy_process_group(self._made.pop(backend))
        self._made.pop(backend, None)

    def engine(self, backend: str) -> str:
        """Return what carries out a contender's calls."""
        if backend == "gloo":
            return "gloo"
        return str(afflux.statistics(self.group(backend))["engine"])

    def gloo_calls(self, backend: str) -> int:
        """Return how many of a contender's calls have gone to Gloo, where that may differ."""
        if backend not in TOPOLOGIES:
            return 0
        return int(afflux.statistics(self.group(backend))["operations_gloo"])
