"""The parts that a host lacks for UCX to carry streams."""

from typing import NamedTuple

from afflux.group.settings.variables import Settings
from afflux_drivers.streams.ucx import find_ucx, rdma_devices

__all__ = ["Lacks", "lacks"]


class Lacks(NamedTuple):
    """The parts that a rank lacks, in words; empty if none.

    Attributes:
        ucx: To use UCX.
        rdma: To use RDMA by it.
    """

    ucx: str = ""
    rdma: str = ""


def lacks(settings: Settings) -> Lacks:
    """Return the own lacks. Without need, no library is opened."""
    if settings.carrier == "tcp":
        return Lacks("AFFLUX_CARRIER=tcp", "AFFLUX_CARRIER=tcp")
    no_device = "" if rdma_devices() else "the host has no RDMA device"
    if settings.carrier == "auto" and no_device:
        return Lacks(no_device, no_device)
    try:
        found = find_ucx()
    except OSError as error:
        return Lacks(str(error), str(error))
    no_transport = "" if found.has_rdma else f"{found.path} has no transport for RDMA"
    return Lacks("", no_device or no_transport)
