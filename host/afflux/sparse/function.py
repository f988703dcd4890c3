"""The sum of sparse tensors as a function: its result is sparse or dense, whichever is smaller."""

import torch
import torch.distributed as dist

__all__ = ["all_reduce"]

_INDEX_BYTES = 8


def all_reduce(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
) -> torch.Tensor:
    """Sum a sparse tensor over the ranks of a group.

    `torch.distributed.all_reduce` does the same in place, and its result is sparse always.

    Args:
        tensor: Sparse COO in CPU memory, coalesced or not; it stays as it is. At all ranks of the
            same shape, dtype and sparse dimensions.
        group: The group; None for the default one. Of the backend "afflux", or of another that sums
            sparse tensors.
        op: SUM or AVG.

    Returns:
        The sum, coalesced, or dense where that takes no more memory: beyond a density of 1/3 for
        single float32, with 8 bytes of index each, and of nearly 1 for rows of many. The same at
        all ranks.

    Raises:
        ValueError: The tensor is not sparse COO.
        AffluxError: As any all-reduce.
    """
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"the tensor is not sparse COO: its layout is {tensor.layout}")
    own = tensor.detach()
    result = torch.sparse_coo_tensor(
        own._indices(),
        own._values(),
        own.shape,
        is_coalesced=own.is_coalesced(),
        check_invariants=False,
    )
    dist.all_reduce(result, op, group)
    result = result.coalesce()
    values = result.values()
    index_bytes = _INDEX_BYTES * result.sparse_dim() * len(values)
    if values.nbytes + index_bytes < result.numel() * values.element_size():
        return result
    rows = result.shape[: result.sparse_dim()].numel()
    # All rows in order are the dense tensor.
    return values.view(result.shape) if len(values) == rows else result.to_dense()
