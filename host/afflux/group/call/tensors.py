"""Torch tensors as the one-dimensional numpy arrays that the drivers take, and back."""

import numpy as np
import torch

from afflux_hdl.contract import wire

__all__ = [
    "ENGINE_DTYPES",
    "check_devices",
    "check_writable",
    "dtype_name",
    "elements_of",
    "in_place",
    "lies_plainly",
    "plain",
    "write_back",
]

ENGINE_DTYPES: dict[torch.dtype, wire.Dtype] = {
    torch.float32: wire.Dtype.FLOAT32,
    torch.float16: wire.Dtype.FLOAT16,
    torch.bfloat16: wire.Dtype.BFLOAT16,
    torch.int32: wire.Dtype.INT32,
}
"""The types that an aggregator sums. Shared memory has more (`afflux_drivers.collectives.call`)."""


_OVERLAPS = 1
"""ATen's MemOverlap: yes, not "too hard to say"."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype's name without its module: "float32"."""
    return str(dtype).removeprefix("torch.")


def check_devices(call: str, tensors: list[torch.Tensor]) -> None:
    """Refuse tensors of other devices.

    Raises:
        ValueError: One is not on the CPU.
    """
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise ValueError(other_device(call, tensor.device))


def other_device(call: str, device: torch.device) -> str:
    """Return why a call with a tensor on this device is refused, and what its caller can do."""
    return (
        f"{call}: the tensor is on {device}; the backend afflux takes CPU tensors: pass a copy, as "
        "tensor.cpu() makes it"
    )


def check_writable(call: str, tensors: list[torch.Tensor]) -> None:
    """Refuse tensors that cannot take a result, before the other ranks hear of the call.

    Raises:
        ValueError: Two elements lie at one place, as in an expanded tensor; or it has no memory of
            its own, as a wrapper of another tensor has none.
    """
    for tensor in tensors:
        if tensor.is_contiguous():
            if tensor.numel() and not tensor.data_ptr():
                raise ValueError(f"{call}: the tensor, a {type(tensor).__name__}, has no memory")
        elif torch._debug_has_internal_overlap(tensor) == _OVERLAPS:
            raise ValueError(
                f"{call}: elements of the tensor share memory (strides {tensor.stride()}); "
                "clone it first"
            )


def in_place(tensor: torch.Tensor) -> bool:
    """Return whether its elements lie one after the other, and are what they show."""
    # A lazily negated view stores other bits than it shows.
    return tensor.is_contiguous() and not tensor.is_neg()


def lies_plainly(tensor: torch.Tensor) -> bool:
    """Return whether its elements lie one after the other, as it shows them."""
    # Lazily negated and conjugated views store other bits than they show.
    return (
        tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy that lies plainly if it does not; no step of autograd."""
    if tensor.layout is not torch.strided or lies_plainly(tensor):
        return tensor
    return tensor.data.resolve_conj().resolve_neg().contiguous()


def _as_array(flat: torch.Tensor) -> np.ndarray:
    # numpy has no bfloat16; the drivers take its bits.
    if flat.dtype == torch.bfloat16:
        return flat.view(torch.int16).numpy().view(np.uint16)
    return flat.numpy()


def elements_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements in row-major order, 1-D and contiguous; bfloat16 as uint16 bits.

    They share memory with `tensor` if it lies so, and are a copy if not.
    """
    # .data: a collective is not a step of autograd and leaves version counters alone, like Gloo.
    data = tensor.data
    if not in_place(data):
        data = data.resolve_neg().contiguous()
    return _as_array(data.reshape(-1))


def write_back(tensor: torch.Tensor, elements: np.ndarray) -> None:
    """Give `tensor` the `elements` that `elements_of` gave of it, which have changed since."""
    data = tensor.data
    if in_place(data):
        return
    # numpy has no bfloat16; its bits are those of an integer.
    flat = torch.from_numpy(elements.view(np.int16) if elements.dtype == np.uint16 else elements)
    flat = flat.view(data.dtype)
    # A tensor that was made in inference mode may be written only there.
    with torch.inference_mode(data.is_inference()):
        data.copy_(flat.reshape(data.shape))
