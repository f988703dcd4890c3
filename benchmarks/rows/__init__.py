"""Sparse sums counted out, without a network: where their blocks go, and what indices take."""
