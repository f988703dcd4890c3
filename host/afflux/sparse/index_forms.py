"""In which forms a sparse sum can travel, and how many bytes each of them has.

Two forms agree on the union of the ranks' rows, and then sum these rows only ("row-sparse"):

* **lists**: every rank gets every rank's list of rows, a bitmap or the form of Elias and Fano,
  whichever is smaller (`afflux_drivers.rows.list_words`): its size follows from how many there are;
* **counts**: a field of a few bits for each row of the whole tensor, 1 where the rank has the row;
  the sum of all ranks' fields is not zero where any has it. The fields are as wide as the number of
  ranks needs, so that none overflows into the next: a bitmap that an aggregator can add.

The third, **dense**, sums all rows at once. Blocks of zeros are skipped there like those of any
tensor ("block-sparse"), except by Gloo.
"""

from dataclasses import dataclass

from afflux.sparse.sums import Way
from afflux_drivers.rows import fields_per_word, list_words
from afflux_hdl.contract import wire

__all__ = ["Form", "Rows", "StepTraffic", "forms", "random_union"]

_WORD_BYTES = 4


@dataclass(frozen=True)
class Rows:
    """The facts about a sparse sum that all ranks know before it.

    Attributes:
        all: Of the whole tensor; at least 1.
        present: How many each rank has.
        union: How many any rank is thought to have.
        width: Elements of a row.
        element_bytes: Bytes of one in memory.
    """

    all: int
    present: tuple[int, ...]
    union: float
    width: int
    element_bytes: int


@dataclass(frozen=True)
class StepTraffic:
    """The bytes of one step, as far as they are sent.

    Attributes:
        way: Its carrier.
        results: Bytes that every rank receives.
        offers: Bytes that all ranks send, together.
        gathered: Whether the results are the offers, one after the other.
    """

    way: Way
    results: float
    offers: float
    gathered: bool = False


@dataclass(frozen=True)
class Form:
    """A form of a sparse sum.

    Attributes:
        name: "lists", "counts", or "dense".
        steps: Its steps, the values last.
        summed: Rows of which values are summed.
    """

    name: str
    steps: tuple[StepTraffic, ...]
    summed: float

    @property
    def index_bytes(self) -> int:
        """The bytes that every rank receives to know the union."""
        return round(sum(step.results for step in self.steps[:-1]))

    @property
    def value_bytes(self) -> int:
        """The bytes of values that every rank receives."""
        return round(self.steps[-1].results)


def random_union(rows: int, present: tuple[int, ...]) -> float:
    """Return how many rows any rank has, if each has its number at random places."""
    union = 0.0
    # Not by the share of rows that no rank has: of a few among 2**53 it would be 1.
    for each in present:
        union += each * (1.0 - union / rows)
    return union


def forms(rows: Rows, indices: Way, values: Way) -> tuple[Form, ...]:
    """Return all forms.

    Args:
        rows: Of the sum.
        indices: The carrier of sums and gatherings of int32.
        values: The carrier of the sum of values.
    """
    sizes = [list_words(each, rows.all) for each in rows.present]
    # A carrier that gathers takes all ranks' as long as the longest; a sum does not send the zeros
    # at the end.
    padded = indices in (Way.MEMORY, Way.GLOO)
    listed = _WORD_BYTES * (len(sizes) * max(sizes) if padded else sum(sizes))
    lists = StepTraffic(indices, listed, listed, gathered=True)
    words = -(-rows.all // fields_per_word(len(rows.present)))
    # Rows next to each other are words next to each other.
    shares = [_share(each / rows.all, _WORD_BYTES, indices) for each in rows.present]
    counts = StepTraffic(indices, words * _WORD_BYTES, sum(shares) * words * _WORD_BYTES)
    return (
        Form("lists", (lists, _values(rows, rows.union, values)), rows.union),
        Form("counts", (counts, _values(rows, rows.union, values)), rows.union),
        Form("dense", (_values(rows, rows.all, values),), rows.all),
    )


def _values(rows: Rows, summed: float, way: Way) -> StepTraffic:
    """Return the step that sums so many rows, of which each rank offers its own."""
    row_bytes = rows.width * rows.element_bytes
    size = summed * row_bytes
    if size == 0:
        return StepTraffic(way, 0.0, 0.0)
    shares = [_share(each / summed, row_bytes, way) for each in rows.present]
    return StepTraffic(way, _share(rows.union / summed, row_bytes, way) * size, sum(shares) * size)


def _share(density: float, row_bytes: int, way: Way) -> float:
    """Return the share of blocks that are sent, if rows of such a density are at random places."""
    if way is Way.GLOO:
        return 1.0
    in_block = max(1, (2 * wire.BLOCK_BYTES + row_bytes) // (2 * row_bytes))
    return 1.0 - _power(1.0 - min(density, 1.0), in_block)


def _power(base: float, exponent: int) -> float:
    """Return a power by multiplication, which rounds alike on all hosts, as `**` need not."""
    power = 1.0
    while exponent:
        if exponent % 2:
            power *= base
        base *= base
        exponent //= 2
    return power
