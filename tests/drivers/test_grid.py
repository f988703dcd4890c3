import pytest

from afflux_drivers.worker.grid import Grid
from afflux_hdl.contract import wire


@pytest.mark.parametrize("lanes", [1, 2, 5, 16])
@pytest.mark.parametrize("job_slots", [1, 3, 64])
@pytest.mark.parametrize("count", [1, 64, 65, 1000, 64 * 16 * 3, 100_001])
def test_every_block_has_one_place(count, job_slots, lanes):
    grid = Grid(count, lanes, job_slots)
    places = [grid.place(block) for block in range(grid.blocks)]
    assert len(set(places)) == grid.blocks == (count + 63) // 64
    for block, (row, slot, lane) in enumerate(places):
        assert 0 <= row < grid.rows
        assert 0 <= slot < grid.slots
        assert 0 <= lane < lanes
        assert grid.block(row, slot, lane) == block
    assert max(row for row, _, _ in places) == grid.rows - 1


def test_slots_are_no_more_than_there_are_packets():
    assert [Grid(64 * blocks, 4, 3).slots for blocks in (1, 4, 5, 8, 9, 1000)] == [1, 1, 2, 2, 3, 3]
    assert Grid(0, 4, 3).slots == 1
    assert Grid(0, 4, 3).rows == 0


def test_most_rows():
    assert Grid(64 * wire.ROWS_MAX, 1, 1).rows == wire.ROWS_MAX
    with pytest.raises(ValueError, match=str(wire.ROWS_MAX)):
        Grid(64 * wire.ROWS_MAX + 1, 1, 1)


@pytest.mark.parametrize("arguments", [(-1, 1, 1), (1, 0, 1), (1, 17, 1), (1, 1, 0)])
def test_refuses_what_is_no_grid(arguments):
    with pytest.raises(ValueError, match=str(min(arguments) if 17 not in arguments else 17)):
        Grid(*arguments)
