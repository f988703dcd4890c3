"""Numbers of `c_api.h`, through which other libraries call what a group shares."""

from enum import IntEnum

__all__ = ["Collective", "Status"]


class Collective(IntEnum):
    """A collective; its value is its number in `c_api.h`."""

    ALL_REDUCE = 0
    BROADCAST = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BARRIER = 4


class Status(IntEnum):
    """The return values of the functions of `c_api.h`."""

    OVER = 0
    NOT_YET = 1
    DISAGREEMENT = 2
    FAILED = 3
    INVALID = 4
