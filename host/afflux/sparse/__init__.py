"""Sums of tensors of which most rows are zero, without making them dense."""
