"""All-reduce of sparse COO tensors: the ranks agree on the union of their rows, and sum those.

1. The ranks agree on the union of their rows (`afflux.sparse.agreement`).
2. The union's rows, one after the other, are an ordinary tensor. Each rank puts its rows into it,
   and the group sums it as any other: blocks that a rank does not have are not sent.

If the union would be nearly everything, all rows are summed without agreeing on it: the step from
sparse to dense of SparCML (C. Renggli et al., SC 2019).
A tensor is never made dense otherwise.

**Placement.** What one rank offers of the union's blocks may lie close together, such as the
frequent words at the beginning of a vocabulary. Where several aggregators share the columns, one of
them would get all ranks' offers of these, and the others one rank's. So the blocks are shuffled, by
a hash that all ranks have alike, as Zen has it (Z. Wang et al., OSDI 2025); afterwards they are put
back. A block has the same elements as before, hence the same bits.
"""

import math

import numpy as np
import torch

from afflux.sparse.agreement import agree, count_rows, measured
from afflux.sparse.kinds import Kinds
from afflux.sparse.sums import Sums
from afflux_drivers.errors import AffluxError
from afflux_drivers.rows import pack, unshuffle
from afflux_hdl.contract import wire

__all__ = ["all_reduce_coo"]

_MOST_ROWS = (1 << 63) - 1


def all_reduce_coo(tensor: torch.Tensor, reduction: str, sums: Sums, kinds: Kinds) -> torch.Tensor:
    """Sum sparse tensors of one shape over the ranks.

    Args:
        tensor: Sparse COO, coalesced or not; with any number of sparse and dense dimensions. It is
            only read.
        reduction: "sum" or "avg".
        sums: The group's dense collectives.
        kinds: The group's experience with such sums.

    Returns:
        The sum: sparse COO, coalesced, of the same shape, dtype and sparse dimensions, the same at
        all ranks. It has the rows that any rank has; of those that all have zeros in, some may be
        left out.

    Raises:
        AffluxError: An index is outside the shape; the tensor is said to be coalesced and is not;
            or a collective failed.
    """
    own = tensor.detach()
    # To coalesce takes one index outside the shape for another inside it.
    _check_range(own)
    own = own.coalesce()
    sparse_shape = own.shape[: own.sparse_dim()]
    all_rows = sparse_shape.numel()
    ids = _flat(own.indices(), sparse_shape).contiguous()
    _check_order(own, ids)
    width = own.shape[own.sparse_dim() :].numel()
    values = own.values().reshape(ids.numel() * width).resolve_conj().resolve_neg()
    counts = count_rows(ids.numel(), sums, kinds)
    if sum(counts) * width == 0:
        # Rows without elements are all there is to say of any.
        return _made(ids[:0], values[:0], own)
    dtype = str(own.dtype).removeprefix("torch.")
    text = f"{reduction} {dtype} {tuple(own.shape)}, {own.sparse_dim()} sparse"
    agreed = agree(text, ids, counts, all_rows, width, own.dtype, reduction, sums, kinds)
    if agreed.union is None:
        union, places = None, ids
    else:
        union = torch.from_numpy(agreed.union.numbers())
        places = torch.from_numpy(agreed.union.positions(ids.numpy()))
    elements = (all_rows if union is None else union.numel()) * width
    room = _packed(values, places, elements, width, sums)
    with measured(agreed.form.steps[-1], kinds, sums.size):
        sums.all_reduce(room, reduction)
    summed = _unpacked(room, elements, sums)
    if union is None:
        union, summed = _not_zero(summed.view(all_rows, width))
        agreed.kind.learn(agreed.rows, union.numel())
    return _made(union, summed, own)


def _packed(
    values: torch.Tensor, places: torch.Tensor, elements: int, width: int, sums: Sums
) -> torch.Tensor:
    """Return the tensor of so many elements to sum, with the own rows at their places."""
    element_bytes = values.element_size()
    block = wire.BLOCK_BYTES // element_bytes
    size = -(-sums.capacity(elements, element_bytes) // block) * block
    # numpy asks for huge pages where torch does not: fewer of them are met for the first time.
    room = torch.from_numpy(np.zeros(size * element_bytes, np.uint8)).view(values.dtype)
    pack(
        _bytes(values), places.numpy(), _bytes(room), row_bytes=width * element_bytes,
        block_bytes=wire.BLOCK_BYTES, shuffled=sums.columns_shared,
    )  # fmt: skip
    return room


def _unpacked(room: torch.Tensor, elements: int, sums: Sums) -> torch.Tensor:
    """Return so many elements of a room in the order of the rows."""
    if not sums.columns_shared:
        return room[:elements]
    element_bytes = room.element_size()
    values = np.empty(elements * element_bytes, np.uint8)
    unshuffle(_bytes(room), values, block_bytes=wire.BLOCK_BYTES)
    return torch.from_numpy(values).view(room.dtype)


def _not_zero(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of the rows that are not all zeros, and these rows.

    An optimiser that leaves rows alone that no gradient has would not leave them otherwise.
    """
    present = rows.ne(0).any(1)
    numbers = present.nonzero().view(-1)
    return numbers, rows if numbers.numel() == len(rows) else rows[numbers]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.uint8).numpy()


def _check_range(tensor: torch.Tensor) -> None:
    """Check that a tensor has only rows that there are; torch does not, unless asked.

    Raises:
        AffluxError: It has others.
    """
    if tensor._nnz() == 0:
        return
    if math.prod(tensor.shape[: tensor.sparse_dim()]) > _MOST_ROWS:
        raise AffluxError(
            f"a sparse tensor of shape {tuple(tensor.shape)} has more rows than int64 numbers"
        )
    indices = tensor._indices()
    for dimension, size in enumerate(tensor.shape[: tensor.sparse_dim()]):
        least, most = indices[dimension].aminmax()
        if least < 0 or most >= size:
            wrong = int(least if least < 0 else most)
            raise AffluxError(
                f"a sparse tensor of shape {tuple(tensor.shape)} has the index {wrong} in "
                f"dimension {dimension}"
            )


def _check_order(tensor: torch.Tensor, ids: torch.Tensor) -> None:
    """Check that rows ascend and come once, as the maker of a tensor may claim without a check.

    Raises:
        AffluxError: They do not: rows would be lost.
    """
    ascends = ids[1:] > ids[:-1]
    if ascends.all():
        return
    at = int(ascends.logical_not().nonzero()[0]) + 1
    before, index = (tensor.indices()[:, each].tolist() for each in (at - 1, at))
    value = tensor.values()[at].flatten()[:1].tolist()
    raise AffluxError(
        f"a sparse tensor of shape {tuple(tensor.shape)} is said to be coalesced, but has the "
        f"index {index}, with the value {value}, after the index {before}"
    )


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
