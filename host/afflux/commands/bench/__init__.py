"""Benchmarks. Each file measures one thing; `registry` is what they have in common."""
