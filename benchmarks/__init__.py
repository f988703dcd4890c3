"""Benchmarks with figures in docs/benchmarks.md: `make bench` and the other targets that begin so.

They are not in the wheel; `afflux bench` is what users run.
"""
