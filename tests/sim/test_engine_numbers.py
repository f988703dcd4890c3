"""The arithmetic of the engine's RTL, where a single bit decides."""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import WIDTHS
from tests.checks.merge_checks import check_near_numbers, check_what_is_agreed


@WIDTHS
def test_numbers_that_differ_in_one_bit(bus_bits: int) -> None:
    """Elements under each opcode, and look-ahead words."""
    with open_engine(bus_bits) as engine:
        check_near_numbers(engine, BUILDS[bus_bits])


@WIDTHS
def test_every_bit_of_what_workers_agree_about_counts(bus_bits: int) -> None:
    """Operation, opcode and data type: a difference in any bit is a conflict."""
    with open_engine(bus_bits) as engine:
        check_what_is_agreed(engine, BUILDS[bus_bits])
