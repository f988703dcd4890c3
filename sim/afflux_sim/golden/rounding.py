"""One rounding, from an exact rational number to the bits of a floating-point format.

Integers only, so that there is no second rounding hidden in it. To nearest, ties to even; too
large becomes infinite.
"""

from dataclasses import dataclass

__all__ = ["FORMATS", "Format", "round_to_bits"]


@dataclass(frozen=True)
class Format:
    """A binary format of IEEE 754: widths of the exponent field and of the stored fraction."""

    exponent_bits: int
    fraction_bits: int

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def infinity(self) -> int:
        """Bits of +infinity."""
        return (2**self.exponent_bits - 1) << self.fraction_bits

    @property
    def nan(self) -> int:
        """Bits of the quiet NaN whose sign and payload are zero."""
        return self.infinity | 1 << (self.fraction_bits - 1)

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exponent_bits + self.fraction_bits)


FORMATS = {"float32": Format(8, 23), "float16": Format(5, 10), "bfloat16": Format(8, 7)}


def round_to_bits(numerator: int, denominator: int, to: Format) -> int:
    """Return the bits of a quotient in the format `to`; whatever rounds to zero is +0."""
    magnitude = abs(numerator)
    if magnitude == 0:
        return 0

    # The e for which 2**e <= magnitude / denominator < 2**(e + 1), which may be one less than this.
    e = magnitude.bit_length() - denominator.bit_length()
    if magnitude << max(-e, 0) < denominator << max(e, 0):
        e -= 1

    # Numbers below the least normal one share its unit in the last place.
    e = max(e, 1 - to.bias)
    unit = e - to.fraction_bits
    scaled, divisor = magnitude << max(-unit, 0), denominator << max(unit, 0)
    significand, remainder = divmod(scaled, divisor)
    if 2 * remainder > divisor or (2 * remainder == divisor and significand & 1):
        significand += 1

    # The leading bit of a normal significand adds one to the exponent field, as does a carry.
    bits = ((e + to.bias - 1) << to.fraction_bits) + significand
    bits = min(bits, to.infinity)
    return bits | to.sign if numerator < 0 and bits else bits
