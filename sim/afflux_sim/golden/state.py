"""The state of the aggregator of `docs/protocol.md`: its jobs, their slots, their versions.

Section 5.1, with the group of section 5.5 and the parent of section 5.6.
"""

from dataclasses import dataclass, field

import numpy as np

from afflux_sim.golden.frames import ELEMENTS, LANES, Block, Endpoint, GroupAddress
from afflux_sim.golden.merge import Contribution

__all__ = ["Job", "Parent", "Slot", "SlotVersion"]


@dataclass(frozen=True)
class Parent:
    """The aggregator above a job: where it is, and which worker of which job the job is there.

    `partial_bits` is w of the partial sums of float32 that go up.
    """

    endpoint: Endpoint
    job: int
    worker: int
    key: int
    partial_bits: int = 64


@dataclass
class SlotVersion:
    """One of the two versions of a slot: the sums of one round and what belongs to them.

    `held` is whether it holds a round of this job run at all. Of a round of numbers it holds the
    contributions, and `blocks` once they are reduced.
    """

    held: bool = False
    present: int = 0
    operation: int = 0
    opcode: int = 0
    dtype: int = 0
    conflict: bool = False
    words: tuple[int, ...] = (0,) * LANES
    blocks: list[Block] = field(
        default_factory=lambda: [np.zeros(ELEMENTS, dtype=np.int32) for _ in range(LANES)]
    )
    contributions: list[Contribution] = field(default_factory=list)


@dataclass
class Slot:
    """State of one slot: `round` is R, the latest open round; `seen` its bitmap of workers.

    `waiting` is whether the partial sum of R has gone to the parent, whose result is not in yet.
    """

    round: int
    seen: int
    waiting: bool = False
    versions: tuple[SlotVersion, SlotVersion] = field(
        default_factory=lambda: (SlotVersion(), SlotVersion())
    )


@dataclass
class Job:
    """One job, with the slots of its range and the endpoints of the workers that have joined.

    `number` is its own on this aggregator, `parent_joined` whether JOINED has come from above,
    `started` whether a contribution has been accepted.
    """

    number: int
    key: int
    workers: int
    lanes: int
    slot_base: int
    credit: int
    slots: list[Slot]
    group: GroupAddress | None = None
    group_key: int = 0
    parent: Parent | None = None
    joined: dict[int, Endpoint] = field(default_factory=dict)
    parent_joined: bool = False
    started: bool = False
    may_move: bool = False

    @property
    def full(self) -> int:
        return (1 << self.workers) - 1

    def is_complete(self, slot: Slot) -> bool:
        """Return whether the slot's round R is complete."""
        return slot.seen == self.full and not slot.waiting
