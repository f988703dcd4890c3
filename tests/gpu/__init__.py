"""Tests for a machine with a GPU: `python -m tests.gpu`, without pytest."""
