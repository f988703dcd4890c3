"""How evenly a sum's blocks load shards, ports, slots and lanes, by where the blocks are put.

Five placements of rows, each of so many elements:

* **partitions**: rows in ascending order, cut into equal parts, one for each server: what a
  parameter server does without hashing;
* **hash of rows**: row i at server hash(i) mod N, Zen's placement;
* **grid, dense**: a dense tensor's blocks, as the worker's grid has them (`docs/protocol.md`,
  section 3); blocks of zeros are not sent;
* **grid, union**: the rows of the union alone, ascending, on the same grid;
* **grid, shuffled union**: the same, with the blocks shuffled, as a sparse sum has them on shards.

An imbalance is the largest load over the mean: 1 if all are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from afflux_drivers.rows import shuffle
from afflux_hdl.contract import wire

__all__ = ["PLACEMENTS", "Balance", "Grid", "balance", "contiguous_share"]

PLACEMENTS = ("partitions", "hash of rows", "grid, dense", "grid, union", "grid, shuffled union")


@dataclass(frozen=True)
class Grid:
    """The sharing of a tensor's blocks.

    Attributes:
        shards: One for each host, and host for each rank.
        slots: Of each; fewer are used where there are few blocks.
        lanes: Of a packet: 5 for an MTU of 1,500 bytes, 16 at most.
    """

    shards: int
    slots: int = 32
    lanes: int = 5

    def columns(self, count: int) -> int:
        """Return how many columns share so many blocks."""
        slots = -(-count // (self.shards * self.lanes))
        return self.shards * max(1, min(self.slots, slots)) * self.lanes

    def padded(self, count: int) -> int:
        """Return how many blocks a sparse sum takes for so many: whole rows of the grid."""
        whole = self.shards * self.slots * self.lanes
        return count if count <= whole else -(-count // whole) * whole


@dataclass(frozen=True)
class Balance:
    """Imbalances of one sum.

    Attributes:
        offers: Of shards, by the blocks that ranks send to them.
        results: Of shards, by the blocks that they send to ranks.
        ports: Of hosts' ports, by what passes in the direction that has more.
        slots: Of all slots of all shards, by the rounds that they take.
    """

    offers: float
    results: float
    ports: float
    slots: float


def contiguous_share(rows: np.ndarray, all_rows: int, parts: int) -> float:
    """Return the share of rows that lie in that of equal parts that has most."""
    loads = np.bincount(rows * parts // all_rows, minlength=parts)
    return float(loads.max() / loads.sum())


def balance(
    placement: str, of_ranks: Sequence[np.ndarray], all_rows: int, width: int, grid: Grid
) -> Balance:
    """Return the imbalances of a sum.

    Args:
        placement: One of `PLACEMENTS`.
        of_ranks: The rows that each rank has, ascending.
        all_rows: Of the tensor.
        width: Elements of a row.
        grid: Where blocks go.
    """
    union = np.unique(np.concatenate(of_ranks))
    if placement in ("partitions", "hash of rows"):
        return _of_servers(placement, of_ranks, union, all_rows, grid)
    if placement == "grid, dense":
        places, count = list(of_ranks), _blocks(all_rows, width)
        all_places = union
    else:
        places = [np.searchsorted(union, rows) for rows in of_ranks]
        all_places, count = np.arange(len(union)), _blocks(len(union), width)
    order = None
    if placement == "grid, shuffled union":
        count = grid.padded(count)
        order = shuffle(count)
    offers = [_columns(rows, width, count, grid, order) for rows in places]
    return _of_grid(offers, _columns(all_places, width, count, grid, order), grid)


def _of_servers(
    placement: str, of_ranks: Sequence[np.ndarray], union: np.ndarray, all_rows: int, grid: Grid
) -> Balance:
    shards = grid.shards
    if placement == "partitions":
        servers = np.arange(all_rows) * shards // all_rows
    else:
        # Zen's h0 maps rows to servers as a hash does: neither evenly nor in any order.
        servers = np.random.default_rng(all_rows).integers(0, shards, all_rows)
    offers = np.array([np.bincount(servers[rows], minlength=shards) for rows in of_ranks])
    results = np.bincount(servers[union], minlength=shards)
    return Balance(_ratio(offers.sum(0)), _ratio(results), _ratio(_ports(offers, results)), np.nan)


def _of_grid(offers: list[np.ndarray], results: np.ndarray, grid: Grid) -> Balance:
    """Return the imbalances, from the columns' blocks."""
    of_shards = np.array([_by_shard(each, grid) for each in offers])
    results_of_shards = _by_shard(results, grid)
    # A slot's round carries a block of each lane that still has one.
    rounds = results.reshape(-1, grid.lanes).max(1)
    return Balance(
        _ratio(of_shards.sum(0)),
        _ratio(results_of_shards),
        _ratio(_ports(of_shards, results_of_shards)),
        _ratio(rounds),
    )


def _ports(offers: np.ndarray, results: np.ndarray) -> np.ndarray:
    """Return what passes each host's port, in the direction that has more."""
    ranks = len(results)
    own = np.diagonal(offers)
    received = (offers.sum(0) - own) + (results.sum() - results)
    sent = (offers.sum(1) - own) + (ranks - 1) * results
    return np.maximum(received, sent)


def _blocks(rows: int, width: int) -> int:
    return max(1, -(-rows * width // wire.BLOCK_ELEMENTS))


def _columns(
    rows: np.ndarray, width: int, count: int, grid: Grid, order: np.ndarray | None
) -> np.ndarray:
    """Return how many blocks each column has of those in which these rows lie."""
    first = rows * width // wire.BLOCK_ELEMENTS
    last = (rows * width + width - 1) // wire.BLOCK_ELEMENTS
    present = np.zeros(count, bool)
    for more in range(int((last - first).max(initial=0)) + 1):
        present[np.minimum(first + more, last)] = True
    blocks = np.flatnonzero(present)
    if order is not None:
        blocks = order[blocks]
    columns = grid.columns(count)
    return np.bincount(blocks % columns, minlength=columns)


def _by_shard(columns: np.ndarray, grid: Grid) -> np.ndarray:
    return columns.reshape(grid.shards, -1).sum(1)


def _ratio(loads: np.ndarray) -> float:
    mean = loads.mean()
    return float(loads.max() / mean) if mean else 1.0
