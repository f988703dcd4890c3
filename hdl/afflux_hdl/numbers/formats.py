"""Formats of numbers, and the fixed point in which a slot adds them.

A word of 32 bits holds one element of the wide format, or two elements of half its bits. The word's
place in a slot has W bits. An element of the wide format takes all of them, two elements take a
half each::

    bit  W-1    W-2 … W-7    W-8          …                        0
         sign   guard        hidden bit   fraction, and what is smaller

The hidden bit's place belongs to the exponent E that the workers have agreed on for the block: a
bit there is worth 2**(E - bias), and the lowest one 2**(E - bias - (W - 8)). The guard bits hold
the sum of 64 elements. A half has the same form with W / 2 in place of W.

Proved: `tests/formal/align.py`. Tested: `tests/hdl/test_numbers.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike
from amaranth.lib import data

from afflux_hdl.numbers.residue import RESIDUE_BITS, pairs

__all__ = ["GUARD_BITS", "Fixed", "Format", "Special"]

GUARD_BITS = 6
"""Sums of up to 64 elements fit."""


class Special:
    """An infinite sum, or NaN. The bits of all contributions are ORed."""

    INFINITY = 1
    MINUS_INFINITY = 2
    NAN = 3


@dataclass(frozen=True)
class Format:
    """A binary format of IEEE 754: widths of the exponent field and of the stored fraction."""

    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def exponent_max(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

    @property
    def infinity(self) -> int:
        """Bits of +infinity."""
        return self.exponent_max << self.fraction_bits

    @property
    def nan(self) -> int:
        """Bits of the NaN that results have: quiet, positive, without a payload."""
        return self.infinity | 1 << (self.fraction_bits - 1)


@dataclass(frozen=True)
class Fixed:
    """The numbers of an engine: its formats, and the bits of a word in a slot.

    Attributes:
        slot_bits: W, a multiple of 4, up to 64.
        wide: The format that takes a whole word: dtypes 0 and 1.
        halves: The formats of which a word has two elements: dtypes 2 and 3.

    Raises:
        ValueError: If an element does not fit.
    """

    slot_bits: int = 64
    wide: Format = Format(8, 23)
    halves: tuple[Format, Format] = field(default=(Format(5, 10), Format(8, 7)))

    def __post_init__(self) -> None:
        if self.slot_bits % 4 or self.slot_bits > 64:
            raise ValueError(f"slot_bits must be a multiple of 4 up to 64, not {self.slot_bits}")
        for form in self.halves:
            if 2 * form.bits != self.wide.bits:
                raise ValueError(f"two of {form} must be as wide as {self.wide}")
        places = ((self.wide, self.slot_bits), *((form, self.half) for form in self.halves))
        for form, bits in places:
            if form.fraction_bits > self.hidden(bits):
                raise ValueError(f"{form} does not fit into {bits} bits of a slot")

    @property
    def half(self) -> int:
        """Bits of a half of the slot's word: the place of the cut."""
        return self.slot_bits // 2

    @property
    def exponent_bits(self) -> int:
        """Bits of the widest exponent field."""
        return max(form.exponent_bits for form in (self.wide, *self.halves))

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the shifters' steps, of which each goes by 0 to 3 of them: 16, 4, 1."""
        return tuple(4**n for n in (2, 1, 0) if n == 0 or 4**n < self.slot_bits)

    @staticmethod
    def hidden(bits: int) -> int:
        """Return the place of the hidden bit in a word of so many bits."""
        return bits - 2 - GUARD_BITS

    def slot(self) -> data.StructLayout:
        """Return the layout of a word in a slot.

        The lower half is element 0; of a wide element both are the same. `not_minus_zero` is set if
        a contribution was anything but -0. `residue` is that of the elements' values, with their
        signs, and of the flags, added up; of one that is special the value says nothing else. All
        zeros are a slot without contributions.
        """
        return data.StructLayout(
            {
                "value": self.slot_bits,
                "special": data.ArrayLayout(2, 2),
                "not_minus_zero": 2,
                "residue": RESIDUE_BITS,
            }
        )

    def addend(self) -> data.StructLayout:
        """Return the layout of what a contribution adds.

        That is `value`, plus `carry` in the lowest place of each element: a negative one's bits
        are inverted. Other members are as in `slot`.
        """
        return data.StructLayout(
            {
                "value": self.slot_bits,
                "carry": 2,
                "special": data.ArrayLayout(2, 2),
                "not_minus_zero": 2,
                "residue": RESIDUE_BITS,
            }
        )

    @staticmethod
    def flags(of: data.View) -> list[Value]:
        """Return the flags of a slot or of an addend, as the pairs that a residue counts."""
        return [of.special[0], of.special[1], of.not_minus_zero]

    def digits(self, slot: data.View, halves: Value) -> list[Value]:
        """Return pairs of bits whose sum is that of a slot's elements, with signs, and its flags.

        It is meant modulo 3.

        A sign counts -2**n where a bit there would count 2**n: 1 instead of 2, as n is odd.
        """
        cut, value = self.half, slot.value
        middle = value[cut - 1]
        return [
            *pairs(value[: cut - 1]),
            Cat(middle & halves, middle & ~halves),
            *pairs(value[cut:-1]),
            Cat(value[-1], Const(0, 1)),
            *self.flags(slot),
        ]

    def hidden_of(self, form: Format) -> int:
        """Return the place of the hidden bit of one of the formats in what an element takes."""
        return self.hidden(self.slot_bits if form == self.wide else self.half)

    def by_format(self, dtype: Value, number: Callable[[Format], int]) -> Value:
        """Return a number of the format that belongs to a dtype."""
        numbers = [Const(number(form)) for form in (self.wide, *self.halves)]
        return self.chosen(dtype, numbers[0], (numbers[1], numbers[2]))

    @staticmethod
    def chosen(dtype: Value, wide: ValueLike, halves: tuple[ValueLike, ValueLike]) -> Value:
        """Return what belongs to a dtype: 2 and 3 are those of half a word."""
        return Mux(dtype[1], Mux(dtype[0], halves[1], halves[0]), wide)
