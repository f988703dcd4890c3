"""Copies between a device and memory of this host, on streams of their own.

torch's device-generic streams and events are used, so that any accelerator of torch's is served.
Nothing here waits for a whole device, or for a stream.

The memory is page-locked, and comes from torch's allocator for it: it is registered once, kept for
the next call, and not given to another one before the copies that use it are over.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from afflux.group.call.tensors import plain
from afflux_drivers.errors import DeadlineExceeded, Interrupted

__all__ = ["Copies", "Patience", "on_stream"]

_AT_ONCE_S = 100e-6
"""A small copy is over in less than the time that a thread sleeps at least."""

_NAP_S = 50e-6

_LOOK_S = 0.05
"""How often a long wait looks whether it is to go on."""


@contextlib.contextmanager
def on_stream(stream: torch.Stream | None) -> Iterator[None]:
    """Make a stream the calling thread's current one meanwhile; None changes nothing.

    A stream of torch's is such a context itself, but keeps what was before in the stream: so it can
    be entered neither twice nor by two threads. Its device is the thread's current one from then
    on: a thread that went back to another device would make a context there.
    """
    if stream is None:
        yield
        return
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


class Patience:
    """The waiting for a device within one call, whose time begins now.

    Args:
        limit_s: How long the call may take.
        interrupted: Returns why it is to be given up; None if it is not.
    """

    def __init__(self, limit_s: float, interrupted: Callable[[], str | None]) -> None:
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._interrupted = interrupted

    @property
    def left_s(self) -> float:
        """The rest of the call's time, in seconds; more than 0."""
        return max(self._deadline - time.monotonic(), 1e-3)

    def wait(self, event: torch.Event) -> None:
        """Wait until the device has come to an event.

        Raises:
            DeadlineExceeded: It has not in time.
            Interrupted: The call is to be given up.
        """
        start = time.monotonic()
        look = start + _LOOK_S
        while not event.query():
            now = time.monotonic()
            if now - start > _AT_ONCE_S:
                time.sleep(_NAP_S)
            if now > look:
                look = now + _LOOK_S
                if (reason := self._interrupted()) is not None:
                    raise Interrupted(reason)
                if now > self._deadline:
                    raise DeadlineExceeded(
                        f"{event.device} has not come to the tensor within {self._limit_s:g} s: "
                        "what its stream was given before the call is not over"
                    )


class Copies:
    """The copies of one group's tensors on one device.

    Args:
        device: The device.

    Attributes:
        down: The stream on which tensors come to the host.
        up: The stream on which they go back. A result is there when it has come to its end.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.down = torch.Stream(device=device)
        self.up = torch.Stream(device=device)

    def be_current(self) -> None:
        """Make the device the calling thread's current one, for good."""
        torch.accelerator.set_device_index(self._device.index)

    def see_results(self) -> None:
        """Let copies that begin from now on see the results that are on their way back."""
        self.down.wait_event(self.up.record_event())

    def take(self, tensors: Sequence[torch.Tensor]) -> torch.Event:
        """Take tensors that a caller gives, in the caller's thread.

        Returns:
            The event before which they may not be read: what the caller's current stream has been
            given up to now.
        """
        for tensor in tensors:
            # Else the allocator might give the memory of a tensor that is dropped to another one.
            for stream in (self.down, self.up):
                _as_stored(tensor).record_stream(stream)
        event: torch.Event = torch.accelerator.current_stream(self._device).record_event()
        return event

    def begin(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Event]:
        """Begin to copy tensors to the host.

        Returns:
            The copies, which may be read when the event has come.
        """
        with on_stream(self.down):
            hosts = [self.like(tensor) for tensor in tensors]
            for host, tensor in zip(hosts, tensors, strict=True):
                # Of a view that is negated or conjugated lazily, CUDA would change the copy at
                # once, before it has come.
                host.copy_(plain(tensor).detach(), non_blocking=True)
            return hosts, self.down.record_event()

    def give(self, host: torch.Tensor) -> torch.Tensor:
        """Begin to copy a tensor of the host to the device, in the stream down; return the copy."""
        locked = self.like(host).copy_(host)
        with on_stream(self.down):
            return locked.to(self._device, non_blocking=True)

    def back(self, results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
        """Begin to copy results to the tensors that they are for."""
        with on_stream(self.up):
            for result, tensor in zip(results, tensors, strict=True):
                # .data: autograd does not see a collective, and version counters stay. A tensor
                # that was made in inference mode may be written only there.
                data = tensor.data
                with torch.inference_mode(data.is_inference()):
                    data.copy_(result, non_blocking=True)

    @staticmethod
    def like(tensor: torch.Tensor) -> torch.Tensor:
        """Return page-locked memory for a tensor's elements, one after the other."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def _as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same memory that is neither negated nor conjugated lazily.

    Of such a view, torch's record_stream tells the allocator of a copy, and then writes beyond its
    stack, as it takes the result of a function that has none (2.13).
    """
    same = tensor.detach()
    if same.is_neg():
        same = torch._neg_view(same)
    return same.conj() if same.is_conj() else same
