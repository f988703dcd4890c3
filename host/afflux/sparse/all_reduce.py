"""All-reduce of sparse COO tensors: the ranks agree on the union of their rows, and sum those.

1. The ranks add up how many rows each has: with that all of them know what follows.
2. They agree on the union of the rows, in the form that is least (`index_forms`).
3. The union's rows, one after the other, are an ordinary tensor. Each rank puts its rows into it,
   and the group sums it as any other: blocks that a rank does not have are not sent.

Rows next to each other in the union are so in the sum, however skewed their numbers are, so all
columns have equally much to do. If the union would be nearly everything, all rows are summed: the
step from sparse to dense of SparCML (Renggli et al., SC 2019, section 5). A tensor is never made
dense otherwise. The latency is three operations of the group, or two.
"""

import logging

import torch

from afflux.sparse.index_forms import least
from afflux.sparse.sums import Sums
from afflux.sparse.union import by_counts, by_lists
from afflux_drivers.errors import AffluxError

__all__ = ["all_reduce_coo"]

_log = logging.getLogger("afflux")


def all_reduce_coo(tensor: torch.Tensor, reduction: str, sums: Sums) -> torch.Tensor:
    """Sum sparse tensors of one shape over the ranks.

    Args:
        tensor: Sparse COO, coalesced or not; with any number of sparse and dense dimensions. It is
            only read.
        reduction: "sum" or "avg".
        sums: The group's dense collectives.

    Returns:
        The sum: sparse COO, coalesced, of the same shape, dtype and sparse dimensions, the same at
        all ranks. It has the rows that any rank has, or all, zero or not.

    Raises:
        AffluxError: An index is outside the shape; or a collective failed.
    """
    own = tensor.detach().coalesce()
    sparse_shape = own.shape[: own.sparse_dim()]
    rows = sparse_shape.numel()
    ids = _flat(own.indices(), sparse_shape).contiguous()
    _check(own)
    width = own.shape[own.sparse_dim() :].numel()
    values = own.values().reshape(ids.numel(), width)
    counts = _counted(ids.numel(), sums)
    if sum(counts) == 0:
        return _made(ids, values, own)
    form = least(rows, counts, width * values.element_size())
    _log.debug("sparse %s of %s rows of %d: %s", reduction, counts, rows, form)
    if form.name == "dense":
        union = torch.arange(rows)
        places = ids
    else:
        lists = form.name == "lists"
        found = by_lists(ids, counts, rows, sums) if lists else by_counts(ids, rows, sums)
        union = torch.from_numpy(found.numbers())
        places = torch.from_numpy(found.positions(ids.numpy()))
    elements = union.numel() * width
    if elements == 0:
        return _made(union, values.new_empty((union.numel(), width)), own)
    room = values.new_zeros(elements if form.name == "dense" else sums.capacity(elements))
    summed = room[:elements].view(union.numel(), width)
    summed[places] = values
    sums.all_reduce(room, reduction)
    return _made(union, summed, own)


def _check(tensor: torch.Tensor) -> None:
    """Check that a coalesced tensor has only rows that there are; torch does not, unless asked.

    Raises:
        AffluxError: It has others.
    """
    if tensor._nnz() == 0:
        return
    indices = tensor.indices()
    for dimension, size in enumerate(tensor.shape[: tensor.sparse_dim()]):
        # The first one ascends.
        of_all = indices[dimension]
        least, most = (of_all[0], of_all[-1]) if dimension == 0 else of_all.aminmax()
        if least < 0 or most >= size:
            wrong = int(least if least < 0 else most)
            raise AffluxError(
                f"a sparse tensor of shape {tuple(tensor.shape)} has the index {wrong} in "
                f"dimension {dimension}"
            )


def _counted(count: int, sums: Sums) -> list[int]:
    """Return how many rows each rank has."""
    # In two words: neither is negative, however many there are.
    counted = torch.zeros((sums.size, 2), dtype=torch.int32)
    counted[sums.rank, 0] = count >> 31
    counted[sums.rank, 1] = count & 0x7FFFFFFF
    sums.all_reduce(counted, "sum")
    return [(high << 31) + low for high, low in counted.tolist()]


def _flat(indices: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return row numbers: indices in row-major order."""
    if indices.shape[0] == 1:
        return indices[0]
    flat = torch.zeros(indices.shape[1], dtype=torch.int64)
    for dimension, size in enumerate(shape):
        flat = flat * size + indices[dimension]
    return flat


def _made(ids: torch.Tensor, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    shape = like.shape[: like.sparse_dim()]
    if len(shape) > 1:
        indices = torch.stack(torch.unravel_index(ids, shape))
    else:
        indices = ids.expand(len(shape), -1)
    of_rows = values.reshape(ids.numel(), *like.shape[like.sparse_dim() :])
    return torch.sparse_coo_tensor(
        indices, of_rows, like.shape, is_coalesced=True, check_invariants=False
    )
