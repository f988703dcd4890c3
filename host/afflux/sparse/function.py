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
    values, shape = own._values(), own.shape
    if own.is_complex():
        # torch would sum a tensor made of these, and throw its result away.
        values, shape = torch.view_as_real(values.resolve_conj()), torch.Size((*shape, 2))
    result = _coo(own._indices(), values, shape, own.is_coalesced())
    dist.all_reduce(result, op, group)
    result = result.coalesce()
    if own.is_complex():
        complex_values = torch.view_as_complex(result.values().contiguous())
        result = _coo(result.indices(), complex_values, own.shape, True)
    values = result.values()
    index_bytes = _INDEX_BYTES * result.sparse_dim() * len(values)
    if values.nbytes + index_bytes < result.numel() * values.element_size():
        return result
    rows = result.shape[: result.sparse_dim()].numel()
    # All rows in order are the dense tensor.
    return values.view(result.shape) if len(values) == rows else result.to_dense()


def _coo(
    indices: torch.Tensor, values: torch.Tensor, shape: torch.Size, coalesced: bool
) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        indices, values, shape, is_coalesced=coalesced, check_invariants=False
    )
