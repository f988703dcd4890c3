"""Align: raw floats to fixed point below the exponent that their block has agreed on.

::

    cycle   t        t+1                 t+2             t+3
            word     significands,       moved by up     moved by 16, 32, 48;
                     distances below E   to 15           negative ones inverted

One shifter serves both a wide element and two halves: `afflux_hdl.numbers.shifts`. Of a wide
element both halves of the logic come to the same distance.

The addend's residue is that of the word, without exponent and sign, and negated for each place by
which the significand moves; and of the flags. So if a bit of the word has flipped, or one flips in
the shifter or behind it, the slot's word does not fit its residue. Infinities and NaNs are added
like a number whose exponent is E, so that they fit theirs.

Distances and signs have a parity, and an addend with a wrong one is lost: a move by other places
may leave the residue as it is.

Proved: `tests/formal/align.py`. Tested: `tests/hdl/test_numbers.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.numbers.formats import Fixed, Format, Special
from afflux_hdl.numbers.residue import RESIDUE_BITS, minus, pairs, total
from afflux_hdl.numbers.shifts import falls, moved_down

__all__ = ["Align"]


class Align(wiring.Component):
    """Makes a word of 32 bits what `Accumulate` adds to a slot's word.

    Latency: 3 cycles. Throughput: a word in each cycle. No back-pressure and no enable: the stage
    that takes the output knows when it is valid.

    Members:
        word: An element of float32, or two of float16 or bfloat16.
        residue: The word's, modulo 15 (`afflux_hdl.lib.residue`).
        dtype: `wire.Dtype`: 2 and 3 are halves.
        exponent: E, in the dtype's own format: the exponent field of the greatest finite element of
            all contributions, at least 1.
        o: The addend, three cycles later.
        lost: It is not exact, three cycles later: an element that is not zero has an exponent
            greater than E, or bits below the slot's lowest; or a bit has flipped.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "word": In(fixed.wide.bits),
                "residue": In(2 * RESIDUE_BITS),
                "dtype": In(2),
                "exponent": In(fixed.exponent_bits),
                "o": Out(fixed.addend()),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        distance_bits = max(f.exponent_bits, 2 * len(f.strides))
        self.unpacked = unpacked = Signal(
            data.StructLayout(
                {
                    "bits": f.slot_bits,
                    "halves": 1,
                    "distance": data.ArrayLayout(distance_bits, 2),
                    "above": 2,
                    "negative": 2,
                    "zero": 2,
                    "special": data.ArrayLayout(2, 2),
                    "residue": data.ArrayLayout(RESIDUE_BITS, 2),
                    "turned": 2,
                    "parity": 2,
                }
            )
        )
        hidden = [self._element(m, unpacked, n) for n in range(2)]
        m.d.sync += [unpacked.bits.eq(self._placed(hidden)), unpacked.halves.eq(self.dtype[1])]

        self.moved = moved = Signal(
            data.StructLayout(
                {
                    "bits": f.slot_bits,
                    "upper_if_wide": f.half,
                    "halves": 1,
                    "digit": data.ArrayLayout(2, 2),
                    "clear": 2,
                    "negative": 2,
                    "not_minus_zero": 2,
                    "special": data.ArrayLayout(2, 2),
                    "residue": RESIDUE_BITS,
                    "lost": 1,
                    "parity": 1,
                }
            )
        )
        self._move_finely(m, unpacked, moved)
        self._move_coarsely(m, moved)
        return m

    def _element(self, m: Module, unpacked: data.View, n: int) -> Value:
        """Look at an element: the wide one or the lower half (0), the wide one or the upper (1).

        Returns whether it has a hidden bit: its exponent field is not zero.
        """
        f = self._fixed
        fields = []
        for form, place in ((f.wide, 0), *((form, n * form.bits) for form in f.halves)):
            whole = self.word[place : place + form.bits]
            fields.append((whole[: form.fraction_bits], whole[form.fraction_bits : -1], whole[-1]))
        wide, half_0, half_1 = fields
        exponent = Signal(f.exponent_bits, name=f"exponent_{n}")
        empty, full, sign, normal = (
            Signal(name=f"{name}_{n}") for name in ("empty", "full", "sign", "normal")
        )
        m.d.comb += [
            exponent.eq(f.chosen(self.dtype, wide[1], (half_0[1], half_1[1]))),
            empty.eq(~f.chosen(self.dtype, wide[0].any(), (half_0[0].any(), half_1[0].any()))),
            sign.eq(f.chosen(self.dtype, wide[2], (half_0[2], half_1[2]))),
            full.eq((exponent | f.by_format(self.dtype, self._above_field)).all()),
            normal.eq(exponent.any()),
        ]
        # E - exponent; the exponent field 0 counts as 1.
        below = Signal(f.exponent_bits + 2, name=f"below_{n}")
        m.d.comb += below.eq(Cat(Const(1, 1), self.exponent) + Cat(normal, ~exponent))
        # Each place by which the significand moves negates its residue.
        odd = f.by_format(self.dtype, lambda form: (f.hidden_of(form) - form.fraction_bits) % 2)
        infinity = Mux(sign, Special.MINUS_INFINITY, Special.INFINITY)
        special = Mux(full, Mux(empty, infinity, Special.NAN), 0)
        zero = ~normal & empty
        beside = Cat(sign, zero, special, self.dtype[1] if n == 0 else 0)
        m.d.sync += [
            unpacked.distance[n].eq(below[1:-1]),
            unpacked.above[n].eq(~below[-1]),
            unpacked.negative[n].eq(sign),
            unpacked.zero[n].eq(zero),
            unpacked.special[n].eq(special),
            unpacked.parity[n].eq(Cat(beside, below[1:-1], ~below[-1]).xor()),
            unpacked.residue[n].eq(self._residue(m, n, exponent, normal, sign)),
            unpacked.turned[n].eq(sign ^ odd ^ (below[1] & ~full)),
        ]
        with m.If(full):
            m.d.sync += [
                unpacked.distance[n].eq(0),
                unpacked.above[n].eq(0),
                unpacked.parity[n].eq(beside.xor()),
            ]
        return normal

    def _residue(self, m: Module, n: int, exponent: Value, normal: Value, sign: Value) -> Value:
        """Return the residue of an element's significand.

        That of the upper half is made from its bits. That of the lower half, or of the wide
        element, is what the word's residue has besides: so it is wrong if any bit of the word is.
        """
        f = self._fixed
        size = f.wide.bits // 2
        if n == 1:
            low, high = (self.word[size:][: form.fraction_bits] for form in f.halves)
            hidden = minus(normal, f.by_format(self.dtype, lambda form: form.fraction_bits % 2))
            return total(m, [*pairs(Mux(self.dtype[0], high, low)), hidden])
        upper = total(m, pairs(self.word[size:])) & self.dtype[1].replicate(RESIDUE_BITS)
        # The sign's place counts as -1, and that of the exponent field's lowest bit as 1 or -1.
        fields = [*pairs(exponent), minus(normal)]
        less = f.by_format(self.dtype, lambda form: 1 - form.fraction_bits % 2)
        terms = [*pairs(self.residue), minus(upper), Cat(sign, Const(0, 1))]
        return total(m, [*terms, *(minus(field, less) for field in fields)])

    def _above_field(self, form: Format) -> int:
        """Return ones for the places that a format's exponent field has not."""
        return (1 << self._fixed.exponent_bits) - 1 - form.exponent_max

    def _placed(self, hidden: list[Value]) -> Value:
        """Return the significands in their places, by dtype."""
        f = self._fixed
        by_format = []
        for n, form in enumerate((f.wide, *f.halves)):
            bits: list[Value] = [Const(0, 1)] * f.slot_bits
            size, elements = (f.half, (0, 1)) if n else (f.slot_bits, (0,))
            for element in elements:
                top = element * size + f.hidden(size)
                bits[top] = hidden[element]
                for k in range(form.fraction_bits):
                    bits[top - form.fraction_bits + k] = self.word[element * form.bits + k]
            by_format.append(Cat(*bits))
        return f.chosen(self.dtype, by_format[0], (by_format[1], by_format[2]))

    def _move_finely(self, m: Module, unpacked: data.View, moved: data.View) -> None:
        """Move down by less than the greatest stride; see what is beyond the slot."""
        f = self._fixed
        far = Signal(2)
        beside = Cat(unpacked.distance, unpacked.above, unpacked.negative, unpacked.zero)
        odd = Cat(beside, unpacked.special, unpacked.halves, unpacked.parity).xor()
        lost: Value = odd
        digits, fine = [], 2 * (len(f.strides) - 1)
        for n, distance in enumerate(unpacked.distance):
            m.d.comb += far[n].eq(unpacked.above[n] | distance[fine + 2 :].any())
            lost = lost | (far[n] & ~unpacked.zero[n])
            digits.append(distance[fine : fine + 2])
            m.d.sync += moved.digit[n].eq(digits[n])

        # Lowest bit that an upper half may have, counted from the cut: there is nothing below.
        lowest = f.hidden(f.half) - max(form.fraction_bits for form in f.halves)
        bits: Value = unpacked.bits
        for n, stride in enumerate(reversed(f.strides[1:])):
            upper = bits[f.half :]
            upper_if_wide = Cat(upper[:lowest], Mux(unpacked.halves, 0, upper[lowest:]))
            views = (Cat(bits[: f.half], upper_if_wide), upper)
            bits = Signal(f.slot_bits, name=f"moved_by_{stride}")
            for e, (view, counts) in enumerate(zip(views, (1, unpacked.halves), strict=True)):
                digit = unpacked.distance[e][2 * n : 2 * n + 2]
                place = slice(e * f.half, (e + 1) * f.half)
                m.d.comb += bits[place].eq(moved_down(view, stride, digit))
                lost = lost | (falls(view, stride, digit) & ~far[e] & counts)
            lowest = max(0, lowest - 3 * stride)
        residues = [minus(unpacked.residue[n], unpacked.turned[n]) for n in range(2)]
        residues[1] = residues[1] & unpacked.halves.replicate(RESIDUE_BITS)
        not_minus_zero = Signal(2)
        m.d.comb += not_minus_zero.eq(~(unpacked.negative & unpacked.zero))
        residues += [unpacked.special[0], unpacked.special[1], not_minus_zero]
        m.d.sync += [
            moved.bits.eq(bits),
            moved.upper_if_wide.eq(bits[f.half :]),
            moved.halves.eq(unpacked.halves),
            moved.clear.eq(far),
            moved.negative.eq(unpacked.negative),
            moved.not_minus_zero.eq(not_minus_zero),
            moved.special.eq(unpacked.special),
            moved.residue.eq(total(m, residues)),
            moved.lost.eq(lost),
            moved.parity.eq(Cat(unpacked.halves, *digits, far, unpacked.negative, lost).xor()),
        ]
        with m.If(unpacked.halves):
            m.d.sync += moved.upper_if_wide.eq(0)

    def _move_coarsely(self, m: Module, moved: data.View) -> None:
        """Move down by the greatest stride, and invert what is negative."""
        f = self._fixed
        stride = f.strides[0]
        beside = Cat(moved.halves, moved.digit, moved.clear, moved.negative)
        lost: Value = moved.lost | Cat(beside, moved.lost, moved.parity).xor()
        views = (Cat(moved.bits[: f.half], moved.upper_if_wide), moved.bits[f.half :])
        for n, (view, counts) in enumerate(zip(views, (1, moved.halves), strict=True)):
            place = slice(n * f.half, (n + 1) * f.half)
            bits = moved_down(view, stride, moved.digit[n])[: f.half]
            lost = lost | (falls(view, stride, moved.digit[n]) & ~moved.clear[n] & counts)
            m.d.sync += [
                self.o.value[place].eq(bits ^ moved.negative[n].replicate(f.half)),
                self.o.carry[n].eq(moved.negative[n]),
            ]
            with m.If(moved.clear[n]):
                m.d.sync += [self.o.value[place].eq(0), self.o.carry[n].eq(0)]
        m.d.sync += [
            self.o.special.eq(moved.special),
            self.o.not_minus_zero.eq(moved.not_minus_zero),
            self.o.residue.eq(moved.residue),
            self.lost.eq(lost),
        ]
