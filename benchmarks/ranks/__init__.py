"""Ranks of one host, beside Gloo."""
