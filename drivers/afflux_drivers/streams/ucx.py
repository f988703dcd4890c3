"""UCX's library, and whether it and this host have RDMA."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from afflux_drivers import _native

__all__ = ["Ucx", "find_ucx", "rdma_devices"]

_NAME = "libucp.so.0"
_DEVICES = Path("/sys/class/infiniband")


class Ucx(NamedTuple):
    """A library of UCX that can be used here.

    Attributes:
        path: Of libucp.
        version: Its version.
    """

    path: str
    version: str

    @property
    def has_rdma(self) -> bool:
        """Whether it has transports for RDMA, which are libraries of their own beside it."""
        return any((Path(self.path).resolve().parent / "ucx").glob("libuct_ib*.so*"))


def find_ucx() -> Ucx:
    """Open the system's library, or that of the package `libucx`, which has no RDMA.

    Raises:
        OSError: There is none, or it cannot be used; the message says why.
    """
    reasons = []
    for name in _candidates():
        try:
            return Ucx(*_native.ucx_library(name))
        except RuntimeError as error:
            reasons.append(str(error))
    raise OSError(f"no UCX library can be used: {'; '.join(reasons)}")


def rdma_devices() -> list[str]:
    """Return the names of the RDMA devices that the kernel has."""
    try:
        return sorted(each.name for each in _DEVICES.iterdir())
    except OSError:
        return []


def _candidates() -> Iterator[str]:
    yield _NAME
    package = importlib.util.find_spec("libucx")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "lib" / _NAME
        if path.exists():
            yield str(path)
