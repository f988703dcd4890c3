"""How the ranks of a new group introduce themselves, and whether they can make a group."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import NATIVE, PYTHON_PROCESS_GROUP
from afflux.group.store.exchange import RendezvousError

__all__ = ["Introduction", "check_agreement", "host_identity"]


def host_identity() -> str:
    """Return a text that is equal for two processes if, and only if, they share a loopback."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return socket.gethostname()
    return f"{boot}/{network}"


@dataclass(frozen=True)
class Introduction:
    """A rank's entry about itself.

    Attributes:
        url: Its AFFLUX_AGGREGATOR.
        host: Its `host_identity`.
        lanes: Most lanes that its path to the aggregator carries.
        error: Why it cannot take part; empty if it can.
        adapter: Its `Membership.adapter`.
        rounding: Its AFFLUX_ROUNDING.
        carrier: Its AFFLUX_CARRIER.
    """

    url: AggregatorUrl
    host: str
    lanes: int
    error: str = ""
    adapter: str = NATIVE
    rounding: str = "exact"
    carrier: str = "tcp"

    def to_fields(self) -> dict[str, Any]:
        """Return what goes into the store."""
        fields = {
            "url": str(self.url),
            "host": self.host,
            "lanes": self.lanes,
            "adapter": self.adapter,
            "rounding": self.rounding,
            "carrier": self.carrier,
        }
        return {**fields, "error": self.error} if self.error else fields

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Introduction":
        """Read back what `to_fields` returned."""
        url = AggregatorUrl.parse(fields["url"])
        error, adapter = fields.get("error", ""), fields.get("adapter", NATIVE)
        rounding, carrier = fields.get("rounding", "exact"), fields.get("carrier", "tcp")
        return cls(url, fields["host"], fields["lanes"], error, adapter, rounding, carrier)

    def goes_with(self, other: "Introduction") -> bool:
        """Return whether the two ranks' adapters can be in one group.

        Backends can, in C++ or in Python; a process group makes a Gloo group that they do not.
        """
        return (self.adapter == PYTHON_PROCESS_GROUP) == (other.adapter == PYTHON_PROCESS_GROUP)


def check_agreement(everyone: list[Introduction]) -> None:
    """Check that the ranks with these introductions can make a group.

    Raises:
        RendezvousError: One cannot take part, their adapters do not go together, or they name
            different aggregators, roundings or carriers.
    """
    errors = [f"rank {rank}: {each.error}" for rank, each in enumerate(everyone) if each.error]
    if errors:
        raise RendezvousError("; ".join(errors))
    first = everyone[0]
    for rank, each in enumerate(everyone):
        if not each.goes_with(first):
            raise RendezvousError(
                f"the ranks have different adapters, which do not work together in torch "
                f"{torch.__version__}: rank 0: {first.adapter}, rank {rank}: {each.adapter}; "
                "install a C++ compiler (g++) where the ranks have none, or set "
                "AFFLUX_ADAPTER=python for all"
            )
    # Below one parent, each rank may have an aggregator of its own.
    tree = all(each.url.parent for each in everyone)
    if len({each.url.parent if tree else each.url for each in everyone}) > 1:
        raise _disagreement("AFFLUX_AGGREGATOR", [each.url for each in everyone])
    for variable, values in (
        ("AFFLUX_ROUNDING", [each.rounding for each in everyone]),
        ("AFFLUX_CARRIER", [each.carrier for each in everyone]),
    ):
        if len(set(values)) > 1:
            raise _disagreement(variable, values)


def _disagreement(variable: str, values: Sequence[object]) -> RendezvousError:
    lines = "; ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
    return RendezvousError(f"the ranks disagree on {variable}: {lines}")
