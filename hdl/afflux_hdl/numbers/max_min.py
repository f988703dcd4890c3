"""MaxMin: the greater or the lesser of two numbers, without a slot's fixed point.

Numbers are ordered by their signs and magnitudes, and -0 is less than +0. NaN is the outcome if
either is NaN.

Tested: `tests/hdl/test_max_min.py`.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib import residue
from afflux_hdl.numbers.formats import Fixed, Format

__all__ = ["MaxMin"]


class MaxMin(wiring.Component):
    """Merges two words of 32 bits.

    Latency: 1 cycle. Throughput: a word in each cycle. No back-pressure.

    Members:
        minimum: The lesser number, not the greater.
        first: The slot holds nothing yet.
        dtype: `wire.Dtype`: 2 and 3 are halves.
        held, arriving: An element of float32, or two of float16 or bfloat16.
        merged: The word to hold, one cycle later.
        checks: With it: the residues of its halves, modulo 15 (`afflux_hdl.lib.residue`): the
            word's is their sum. They are chosen by the opposite comparison, as in the lane ALU.
        less: `held` is less than `arriving`, as an integer without sign; not if they are halves.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        bits = fixed.wide.bits
        super().__init__(
            {
                "minimum": In(1),
                "first": In(1),
                "dtype": In(2),
                "held": In(bits),
                "arriving": In(bits),
                "merged": Out(bits),
                "checks": Out(data.ArrayLayout(residue.RESIDUE_BITS, 2)),
                "less": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        size = f.wide.bits // 2
        greater_bits, greater = self._greater(m, "arriving", self.arriving, self.held)
        _, less = self._greater(m, "held", self.held, self.arriving)
        m.d.comb += self.less.eq(greater_bits)
        keeps = [~self.first & (more == self.minimum) for more in greater]
        keeps_check = [~self.first & (more != self.minimum) for more in less]
        for n in range(2):
            place = slice(n * size, (n + 1) * size)
            held, arriving = (residue.residue(m, x[place]) for x in (self.held, self.arriving))
            m.d.sync += self.checks[n].eq(Mux(keeps_check[n], held, arriving))
            is_nan = (~self.first & self._is_nan(self.held, n)) | self._is_nan(self.arriving, n)
            m.d.sync += self.merged[place].eq(Mux(keeps[n], self.held[place], self.arriving[place]))
            with m.If(is_nan):
                nans = [f.wide.nan >> n * size, *(form.nan for form in f.halves)]
                own = [x % (1 << size) for x in nans]
                checks = [x % 15 for x in own]
                m.d.sync += [
                    self.merged[place].eq(f.chosen(self.dtype, own[0], (own[1], own[2]))),
                    self.checks[n].eq(f.chosen(self.dtype, checks[0], (checks[1], checks[2]))),
                ]
        return m

    def _greater(
        self, m: Module, name: str, word: Value, than: Value
    ) -> tuple[Value, tuple[Value, Value]]:
        """Return whether a word is greater than another, as bits and in each half; if not equal."""
        halves, size = self.dtype[1], len(word) // 2
        # Magnitudes: those of the halves, which make that of a wide word.
        lower, upper, whole = (
            Signal(name=f"{name}_{part}_greater") for part in ("lower", "upper", "whole")
        )
        m.d.comb += [
            lower.eq(than[:size] < word[:size]),
            upper.eq(than[size:] < word[size:]),
            whole.eq(upper | (lower & (than[size:] == word[size:]))),
        ]
        either = word | than
        # Bits compare like numbers if both are positive, and the other way round if not.
        of_halves = lower ^ either[size - 1], upper ^ either[-1]
        of_whole = whole ^ either[-1]
        return whole, (Mux(halves, of_halves[0], of_whole), Mux(halves, of_halves[1], of_whole))

    def _is_nan(self, word: Value, n: int) -> Value:
        """Return whether the number in half `n` of a word is NaN."""
        f = self._fixed

        def of(form: Format, element: Value) -> Value:
            fraction, exponent = element[: form.fraction_bits], element[form.fraction_bits : -1]
            return exponent.all() & fraction.any()

        wide = of(f.wide, word)
        first, second = (of(form, word[n * form.bits : (n + 1) * form.bits]) for form in f.halves)
        return f.chosen(self.dtype, wide, (first, second))
