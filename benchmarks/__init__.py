"""Benchmarks with figures in docs/benchmarks.md: `make bench`, `bench-engine`, `bench-host`.

They are not in the wheel; `afflux bench` is what users run.
"""
