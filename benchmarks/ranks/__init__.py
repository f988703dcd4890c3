"""Benchmarks of the ranks of one host, beside Gloo."""
