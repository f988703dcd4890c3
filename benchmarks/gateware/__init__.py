"""Benchmarks of the hardware design, cycle by cycle."""
