"""Benchmarks. Each file measures one thing; `registry` says which command runs which."""
