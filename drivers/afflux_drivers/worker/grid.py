"""Where the blocks of a tensor lie: row, slot, lane (section 3 of the protocol)."""

from dataclasses import dataclass

from afflux_hdl.contract import wire

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """The blocks of a tensor of `count` elements, in a job of `lanes` lanes and `job_slots` slots.

    Block b lies at `b = row * slots * lanes + slot * lanes + lane`, so an array of the padded
    tensor in the shape (rows, slots, lanes, 64) is indexed by row, slot and lane.

    Raises:
        ValueError: If an argument is out of range, or the tensor needs more than `wire.ROWS_MAX`
            rows.
    """

    count: int
    lanes: int
    job_slots: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"a tensor has no {self.count} elements")
        if not 1 <= self.lanes <= wire.LANES_MAX:
            raise ValueError(f"a job has 1 to {wire.LANES_MAX} lanes, not {self.lanes}")
        if self.job_slots < 1:
            raise ValueError(f"a job has at least one slot, not {self.job_slots}")
        if self.rows > wire.ROWS_MAX:
            raise ValueError(
                f"{self.count} elements on {self.slots} slots of {self.lanes} lanes are "
                f"{self.rows} rows; {wire.ROWS_MAX} is the most"
            )

    @property
    def blocks(self) -> int:
        """Blocks of the tensor, the last one padded."""
        return -(-self.count // wire.BLOCK_ELEMENTS)

    @property
    def slots(self) -> int:
        """Active slots of the operation."""
        return max(1, min(self.job_slots, -(-self.blocks // self.lanes)))

    @property
    def rows(self) -> int:
        """Rows of the longest columns."""
        return -(-self.blocks // (self.slots * self.lanes))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the padded tensor: rows, slots, lanes, elements of a block."""
        return self.rows, self.slots, self.lanes, wire.BLOCK_ELEMENTS

    def block(self, row: int, slot: int, lane: int) -> int:
        """Number of the block at this place; not below `blocks` where there is none."""
        return (row * self.slots + slot) * self.lanes + lane

    def place(self, block: int) -> tuple[int, int, int]:
        """Row, slot and lane of a block."""
        row, rest = divmod(block, self.slots * self.lanes)
        return (row, *divmod(rest, self.lanes))
