"""What a trial is: ranks, their calls, what dies when, and how the network is; all from a seed."""

import random
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["Call", "Trial", "contribution", "drawn", "total"]

KINDS = (
    (torch.int32, "sum"),
    (torch.int32, "max"),
    (torch.float32, "sum"),
    (torch.float32, "min"),
)


@dataclass(frozen=True)
class Call:
    """A call of all ranks.

    Attributes:
        number: Its place.
        dtype, reduction: What it is; the reduction is empty for a barrier.
        count: Elements.
    """

    number: int
    dtype: torch.dtype
    reduction: str
    count: int


@dataclass(frozen=True)
class Trial:
    """One group's life. Times are virtual seconds.

    Attributes:
        seed: Which determines all others.
        size: Ranks.
        calls: Their calls.
        idle_s: How long a rank does something else between two calls, at most.
        spare: Whether there is a spare aggregator.
        deaths: When the aggregators of these hosts die.
        births: When others begin there.
        cuts: Ranks that hear nothing of a host, from when to when.
        kill: A rank and when it is killed; None for none.
        without_streams: Whether a rank cannot connect its streams.
        lost, doubled, late: Shares of packets.
        store_s: How long a request to the store travels, at most.
    """

    seed: int
    size: int
    calls: tuple[Call, ...]
    idle_s: float
    spare: bool
    deaths: tuple[tuple[float, str], ...]
    births: tuple[tuple[float, str], ...]
    cuts: tuple[tuple[int, str, float, float], ...]
    kill: tuple[int, float] | None
    without_streams: bool
    lost: float
    doubled: float
    late: float
    store_s: float


def drawn(seed: int) -> Trial:
    """Return a trial."""
    choose = random.Random(f"trial {seed}")
    size = choose.choice((2, 3, 3, 4))
    idle_s = 10 ** choose.uniform(-3, 0)
    spare = choose.random() < 0.4
    deaths, births = [], []
    now = 0.0
    for _ in range(choose.choice((0, 1, 1, 2, 3))):
        now += choose.uniform(0, 3) * 10 ** choose.uniform(-3, 0)
        deaths.append((now, "main"))
        if choose.random() < 0.7:
            births.append((now + 10 ** choose.uniform(-3, 0.5), "main"))
            now = births[-1][0]
    if spare and choose.random() < 0.5:
        deaths.append((choose.uniform(0, 5), "spare"))
    cuts = []
    if choose.random() < 0.15:
        begins = choose.uniform(0, 2)
        cuts.append((choose.randrange(size), "main", begins, begins + choose.uniform(0.1, 8)))
    harsh = choose.random() < 0.5
    return Trial(
        seed=seed,
        size=size,
        calls=tuple(_call(choose, number) for number in range(choose.randrange(3, 25))),
        idle_s=idle_s,
        spare=spare,
        deaths=tuple(sorted(deaths)),
        births=tuple(births),
        cuts=tuple(cuts),
        kill=(choose.randrange(size), choose.uniform(0, 4) * 10 ** choose.uniform(-2, 0))
        if choose.random() < 0.2
        else None,
        without_streams=choose.random() < 0.1,
        lost=choose.uniform(0, 0.2) if harsh else 0.0,
        doubled=choose.uniform(0, 0.1) if harsh else 0.0,
        late=choose.uniform(0, 0.1) if harsh else 0.0,
        store_s=10 ** choose.uniform(-4, -1),
    )


def _call(choose: random.Random, number: int) -> Call:
    if choose.random() < 0.15:
        return Call(number, torch.int32, "", 0)
    dtype, reduction = choose.choice(KINDS)
    return Call(number, dtype, reduction, choose.choice((1, 63, 64, 65, 300, 700, 1500)))


def contribution(trial: Trial, call: Call, rank: int) -> torch.Tensor:
    """Return a rank's elements: integers, of which no wrong combination has the same sums."""
    draw = np.random.default_rng((trial.seed, call.number, rank))
    found = draw.integers(-(2**20), 2**20, call.count)
    # Blocks of zeros, which do not travel.
    for block in range(0, call.count, 64):
        if (block // 64 + call.number) % 5 == rank % 5:
            found[block : block + 64] = 0
    if call.dtype is torch.float32 and call.count >= 300:
        # Too far apart for a slot: such a block is brought again.
        found[70:74] = (0, 2**62, -(2**62), 3)[rank % 4]
    return torch.from_numpy(found).to(call.dtype)


def total(trial: Trial, call: Call) -> torch.Tensor:
    """Return the one right result: exact in integers, rounded once."""
    columns = np.stack(
        [contribution(trial, call, rank).to(torch.int64).numpy() for rank in range(trial.size)]
    )
    reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum}[call.reduction]
    return torch.from_numpy(reduce.reduce(columns)).to(call.dtype)
