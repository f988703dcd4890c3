"""Collectives, sizes and dtypes in the words that torch's `fr_trace` understands."""

import torch

from afflux.observe.observation import POINT_TO_POINT, Observation

__all__ = ["dtype_names", "profiling_name", "sizes_of"]

_NAMES = {
    "allgather": "all_gather",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "allgather_coalesced": "ALLGATHER_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    # The one name whose sizes may differ between ranks in every version.
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "monitored_barrier": "barrier",
    # Memory that all ranks reach is a window in torch's terms.
    "empty": "new_window",
    "recv_anysource": "recv",
}

_KNOWN = frozenset(
    {
        "all_gather",
        "all_gather_into_tensor_coalesced",
        "all_gather_single",
        "ALLGATHER_coalesced",
        "all_reduce",
        "all_to_all",
        "allreduce_coalesced",
        "barrier",
        "broadcast",
        "gather",
        "new_window",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_single",
        "reduce_scatter_tensor_coalesced",
        "scatter",
        "send",
    }
)
"""The version that `fr_trace` takes, of all versions since 2.13; it ends with an error at any
other."""

# It compares such entries by this name alone.
_UNKNOWN = "coalesced"

# fr_trace compares the first of the sizes with `ranks` times the other side's.
_GATHERED = {"all_gather"}
_SCATTERED = {"reduce_scatter"}

_DTYPES = {
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}


def _library() -> str:
    """Return the name of the library in profiling names.

    Before torch 2.15 `fr_trace` refuses names that are not on its list.
    """
    major, minor = torch.__version__.split(".")[:2]
    return "afflux" if (int(major), int(minor)) >= (2, 15) else "gloo"


_LIBRARY = _library()


def _collective(observation: Observation) -> str:
    name = _NAMES.get(observation.name, observation.name)
    return name if name in _KNOWN else _UNKNOWN


def profiling_name(observation: Observation) -> str:
    """Return "<library>:<collective>", for transfers with their ends: "afflux:send 0->1"."""
    name = _collective(observation)
    if observation.name in POINT_TO_POINT:
        # The two are the only members of the transfer's group, and numbered there.
        peer = observation.peer
        if peer is None:
            return f"{_LIBRARY}:{name} 0<-?"
        own = int(observation.rank > peer)
        arrow = "->" if name == "send" else "<-"
        return f"{_LIBRARY}:{name} {own}{arrow}{1 - own}"
    return f"{_LIBRARY}:{name}"


def sizes_of(observation: Observation, ranks: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the sizes of inputs and outputs, lists for each rank as one, as NCCL records them."""
    name = _collective(observation)
    inputs = [list(size) for size in observation.input_sizes]
    outputs = [list(size) for size in observation.output_sizes]
    if name in _GATHERED:
        outputs = _as_one(outputs, ranks)
    elif name in _SCATTERED:
        inputs = _as_one(inputs, ranks)
    elif name == "all_to_all":
        inputs, outputs = _flat(inputs), _flat(outputs)
    return inputs, outputs


def _as_one(sizes: list[list[int]], ranks: int) -> list[list[int]]:
    alike = len(sizes) == ranks and all(size == sizes[0] for size in sizes)
    return [[ranks, *sizes[0]]] if alike else sizes


def _flat(sizes: list[list[int]]) -> list[list[int]]:
    return [[sum(torch.Size(size).numel() for size in sizes)]]


def dtype_names(dtypes: list[torch.dtype]) -> list[str]:
    """Return the names of dtypes as torch's C++ has them: "Float"."""
    return [_DTYPES.get(dtype, str(dtype).removeprefix("torch.")) for dtype in dtypes]
