"""Calls of a worker, prepared for `c_api.h`."""

from dataclasses import dataclass, replace
from math import prod

from afflux_drivers.c_api import Collective
from afflux_drivers.collective import Description

__all__ = ["WorkerCall"]


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """All-reduces in place of tensors of the same dtype and shape, treated alike.

    Attributes:
        about: The operation, with any number.
        fingerprint: The fingerprint of a request.
    """

    about: Description
    fingerprint: int
    collective: int
    count: int
    dtype: int
    reduction: int
    root: int = 0

    @classmethod
    def of(cls, about: Description, fingerprint: int) -> "WorkerCall":
        """Return the call with the numbers of `c_api.h`."""
        return cls(
            about,
            fingerprint,
            Collective.ALL_REDUCE,
            prod(about.shape),
            int(about.dtype),
            about.reduction.number,
        )

    def numbered(self, number: int) -> Description:
        """Return what the operation of this number is."""
        return replace(self.about, number=number)
