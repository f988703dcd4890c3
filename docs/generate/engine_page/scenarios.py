"""The runs that the page shows: what the workers hold, and what goes wrong on the way.

The tensors are int32, so that a sum on the page is what the engine's registers hold.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from afflux_hdl.contract import wire

__all__ = ["LANES", "ROWS", "SCENARIOS", "SLOTS", "VALUES", "WORKERS", "Scenario", "tensors"]

WORKERS, SLOTS, LANES, ROWS = 3, 2, 2, 5

VALUES = (
    ((3, 0, 1, 0), (0, 0, 0, 0), (2, 5, 0, 0), (0, 0, 4, 0), (1, 0, 0, 6)),
    ((1, 0, 0, 2), (0, 4, 0, 0), (0, 1, 0, 0), (0, 0, 7, 0), (5, 0, 0, 3)),
    ((4, 0, 0, 0), (0, 0, 0, 0), (6, 2, 0, 1), (0, 0, 2, 0), (0, 0, 0, 8)),
)
"""By worker and row, what each element of a block is: two lanes of slot 0, then two of slot 1."""

Place = tuple[int, int, int]
"""Worker, slot and round, the first of an operation being 0, of a packet."""


@dataclass(frozen=True)
class Scenario:
    """A run, and the mishaps on the way between workers and engine.

    Attributes:
        name: In the page's address.
        title: On its button.
        about: A sentence for viewers.
        lost_packets: Contributions whose first copy never arrives.
        lost_results: Results of which the same is true.
        copies: Contributions of which the network makes another copy, and how many cycles later.
        stalled: A worker that does nothing from one cycle on until another.
    """

    name: str
    title: str
    about: str
    lost_packets: frozenset[Place] = frozenset()
    lost_results: frozenset[Place] = frozenset()
    copies: dict[Place, tuple[int, ...]] = field(default_factory=dict)
    stalled: tuple[int, int, int] | None = None


SCENARIOS = (
    Scenario(
        "clean",
        "Clean run",
        "Nothing goes wrong: watch the zero blocks that nobody sends.",
    ),
    Scenario(
        "loss",
        "Packets lost",
        "One contribution and one result get lost. Only their slot waits; nothing is added twice.",
        lost_packets=frozenset({(1, 0, 1)}),
        lost_results=frozenset({(2, 0, 2)}),
    ),
    Scenario(
        "late",
        "A late worker",
        "Worker 2 stalls. The others wait in the slots, and the engine says who is missing.",
        stalled=(2, 120, 400),
    ),
    Scenario(
        "duplicate",
        "A duplicate",
        "The network delivers a packet three times. The bitmap lets it count once.",
        copies={(0, 0, 1): (0, 80)},
    ),
)


def tensors() -> list[npt.NDArray[np.int32]]:
    """Return each worker's tensor: a block for each value, all elements of which are that value."""
    return [
        np.repeat(np.array(rows, dtype=np.int32).reshape(-1), wire.BLOCK_ELEMENTS)
        for rows in VALUES
    ]
