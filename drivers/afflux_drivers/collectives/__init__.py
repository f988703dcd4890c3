"""Collectives of a group that works without an aggregator, whatever its ranks have in common."""
