"""The carrier that streams between hosts would have, as far as this host decides it."""

from typing import Any

from afflux.group.settings.carrier import lacks
from afflux.group.settings.variables import Settings
from afflux_drivers.streams.ucx import rdma_devices

__all__ = ["read_carrier"]


def read_carrier(settings: Settings) -> dict[str, Any]:
    """Return the carrier that AFFLUX_CARRIER asks for, what this host would use, and why.

    "reason" is what keeps the host from UCX; empty if nothing does, or if nobody asks for UCX. With
    "ucx" and a reason, "used" is empty: groups of several hosts would fail.
    """
    asked, lacking = settings.carrier, lacks(settings)
    used, reason = asked, ""
    if asked == "auto":
        reason = lacking.rdma
        used = "tcp" if reason else "ucx"
    elif asked == "ucx":
        reason = lacking.ucx
        used = "" if reason else "ucx"
    return {"asked": asked, "used": used, "reason": reason, "rdma_devices": rdma_devices()}
