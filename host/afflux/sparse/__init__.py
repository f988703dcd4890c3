"""Sums of tensors of which most rows are zero, without making them dense."""

from afflux.sparse.function import all_reduce

__all__ = ["all_reduce"]
