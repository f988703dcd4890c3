"""Calls of a group, prepared: what the native part takes, and what ranks compare."""

import zlib
from dataclasses import dataclass
from math import prod

from afflux_drivers.c_api import Collective
from afflux_drivers.collective import Description, Reduction
from afflux_hdl.contract import wire

__all__ = ["REDUCED_DTYPES", "REDUCTIONS", "GroupCall"]


REDUCED_DTYPES = {
    "int32": 0,
    "float32": 1,
    "float16": 2,
    "bfloat16": 3,
    "int64": 4,
    "int16": 5,
    "int8": 6,
    "uint8": 7,
    "float64": 8,
}
"""Numbers of the types whose elements can be reduced, by torch's names."""

REDUCTIONS = {"sum": 0, "avg": 1, "max": 2, "min": 3, "product": 4}
"""Numbers of the reductions; "product" is not for float32, float16 and bfloat16."""

_BYTES = 9


@dataclass(frozen=True, slots=True)
class GroupCall:
    """One kind of operation, prepared: for tensors of the same dtype and shape, treated alike.

    Attributes:
        collective: Number of the collective.
        count: Elements of the smallest tensor: of the whole one, of a rank's part of an all-gather,
            of a shard of a reduce-scatter. Bytes, where elements only move.
        dtype: Number of the dtype.
        reduction: Number of the reduction; 0 if there is none.
        root: Rank whose tensor a broadcast copies; otherwise 0.
        fingerprint: Compared by the ranks. The operation's number is not part of it, because ranks
            go from operation to operation together.
        name: Describes the call in messages, such as "sum:float32:3x4".
    """

    collective: int
    count: int
    dtype: int
    reduction: int
    root: int
    fingerprint: int
    name: str

    @classmethod
    def of(cls, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> "GroupCall":
        """Return the all-reduce of a tensor of one of the protocol's types."""
        about = Description(0, reduction, dtype, shape)
        name = about.text.removeprefix("0:")
        number = reduction.number
        return cls(
            Collective.ALL_REDUCE, prod(shape), int(dtype), number, 0, about.fingerprint, name
        )

    @classmethod
    def reducing(
        cls, collective: Collective, dtype: str, reduction: str, shape: tuple[int, ...]
    ) -> "GroupCall":
        """Return an all-reduce, or a reduce-scatter.

        Args:
            collective: Which of the two.
            dtype: Key of `REDUCED_DTYPES`.
            reduction: Key of `REDUCTIONS`.
            shape: Sizes of the smallest tensor, which for a reduce-scatter is a shard.

        Raises:
            KeyError: There is no such dtype or reduction.
        """
        name = f"{reduction}:{dtype}:{_sizes(shape)}"
        if collective is not Collective.ALL_REDUCE:
            name = f"{collective.name.lower()} {name}"
        return cls(
            collective,
            prod(shape),
            REDUCED_DTYPES[dtype],
            REDUCTIONS[reduction],
            0,
            _fingerprint(name),
            name,
        )

    @classmethod
    def moving(
        cls,
        collective: Collective,
        dtype: str,
        itemsize: int,
        shape: tuple[int, ...],
        root: int = 0,
    ) -> "GroupCall":
        """Return a broadcast, or an all-gather.

        Args:
            collective: Which of the two.
            dtype: Name of any type, for the ranks to compare.
            itemsize: Bytes of an element.
            shape: Sizes of the smallest tensor, which for an all-gather is a rank's part.
            root: Rank whose tensor a broadcast copies.
        """
        name = f"{collective.name.lower()}:{dtype}:{_sizes(shape)}"
        if collective is Collective.BROADCAST:
            name += f" from rank {root}"
        return cls(collective, prod(shape) * itemsize, _BYTES, 0, root, _fingerprint(name), name)

    @classmethod
    def barrier(cls, name: str = "barrier") -> "GroupCall":
        """Return a barrier, whose name the ranks compare."""
        return cls(Collective.BARRIER, 0, _BYTES, 0, 0, _fingerprint(name), name)


def _fingerprint(name: str) -> int:
    return zlib.crc32(f"0:{name}".encode("ascii"))


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
