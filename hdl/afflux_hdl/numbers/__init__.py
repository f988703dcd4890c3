"""Sums of floating-point numbers: raw floats to fixed point in the slots, and to one rounding."""
