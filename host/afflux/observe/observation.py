"""The record of one call of a collective, from the moment it is asked for."""

import time
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["POINT_TO_POINT", "WAYS", "Observation"]

WAYS = ("engine", "gloo")
"""How a call is carried out: by the group's engine (shared memory or an aggregator), or by Gloo."""

POINT_TO_POINT = frozenset({"send", "recv", "recv_anysource"})


class Observation:
    """One call. Hooks get it: they may read it, and must not keep it beyond need.

    It holds shapes and dtypes, never tensors. Times are nanoseconds of `time.monotonic_ns`, 0 if
    what they mark has not happened.

    Attributes:
        group: Name of the group, as torch has it.
        rank: Own rank in the group.
        sequence: Number of the call among the group's collectives, from 1.
        name: The collective, such as "all_reduce".
        text: All that it asks for, such as "all_reduce sum float32 (3, 4)".
        way: "engine" or "gloo".
        input_sizes: Shapes of the tensors that it reads.
        output_sizes: Shapes of the tensors that it writes.
        input_dtypes: Their dtypes.
        output_dtypes: Their dtypes.
        timeout_s: Its timeout.
        peer: The other rank of a send or a receive; None if there is none, or any.
        tag: Of a send or a receive.
        created_wall_ns: `time.time_ns` when it was asked for.
        created_ns: When it was asked for.
        started_ns: When it began.
        ended_ns: When it was over.
        error: Text of its error; empty if it has none.
        blocks: Increments of the reducer's counts by its reduction, such as `blocks_present`.
    """

    __slots__ = (
        "before_counts",
        "blocks",
        "created_ns",
        "created_wall_ns",
        "ended_ns",
        "error",
        "group",
        "input_dtypes",
        "input_sizes",
        "name",
        "output_dtypes",
        "output_sizes",
        "peer",
        "rank",
        "record_id",
        "sequence",
        "started_ns",
        "tag",
        "text",
        "thread_id",
        "thread_name",
        "timeout_s",
        "traceback",
        "transfer",
        "way",
    )

    def __init__(
        self,
        group: str,
        rank: int,
        sequence: int,
        name: str,
        text: str,
        way: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        timeout_s: float,
        peer: int | None = None,
        tag: int = 0,
    ) -> None:
        self.group = group
        self.rank = rank
        self.sequence = sequence
        self.name = name
        self.text = text
        self.way = way
        # Lists of a few tensors: a comprehension is quicker than anything that avoids it.
        self.input_sizes = [tensor.shape for tensor in inputs]
        self.input_dtypes = [tensor.dtype for tensor in inputs]
        if outputs is inputs:
            self.output_sizes, self.output_dtypes = self.input_sizes, self.input_dtypes
        else:
            self.output_sizes = [tensor.shape for tensor in outputs]
            self.output_dtypes = [tensor.dtype for tensor in outputs]
        self.timeout_s = timeout_s
        self.peer = peer
        self.tag = tag
        self.created_wall_ns = time.time_ns()
        self.created_ns = time.monotonic_ns()
        self.started_ns = 0
        self.ended_ns = 0
        self.error = ""
        self.blocks: dict[str, int] = {}
        # Of the recorder: its number there, the number among transfers between two ranks, the
        # reducer's counts at the start, and where the call was made.
        self.record_id = -1
        self.transfer = 0
        self.before_counts: dict[str, Any] = {}
        self.thread_id = 0
        self.thread_name = ""
        self.traceback: Any = None

    @property
    def count(self) -> int:
        """Elements of the larger side: all that this rank reads, or all that it writes."""
        return max(_elements(self.input_sizes), _elements(self.output_sizes))

    @property
    def bytes(self) -> int:
        """Bytes of the larger side, which is nccl-tests' size of a collective."""
        return max(
            _bytes(self.input_sizes, self.input_dtypes),
            _bytes(self.output_sizes, self.output_dtypes),
        )

    def wall_ns(self, monotonic_ns: int) -> int:
        """Return the wall clock's time at a monotonic time of this call; 0 for 0."""
        return self.created_wall_ns + monotonic_ns - self.created_ns if monotonic_ns else 0

    def __repr__(self) -> str:
        return f"<Observation {self.text} ({self.way}, operation {self.sequence})>"


def _elements(sizes: Sequence[torch.Size]) -> int:
    return sum(size.numel() for size in sizes)


def _bytes(sizes: Sequence[torch.Size], dtypes: Sequence[torch.dtype]) -> int:
    return sum(size.numel() * dtype.itemsize for size, dtype in zip(sizes, dtypes, strict=True))
