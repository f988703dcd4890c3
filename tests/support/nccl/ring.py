"""The ring of a channel group's slots, as NCCL's proxy has it.

A ring has eight slots, which a collective goes through again and again. Each step is one request
for the chunks of up to eight channels, which lie side by side. Chunks have a fixed size: behind the
valid elements are the bytes that earlier collectives have left there.
"""

import collections
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.nccl.node import Buffer, Node

__all__ = ["CHANNELS", "CHUNK", "SLOT", "STEPS", "Ring"]

STEPS = 8
CHANNELS = 8
CHUNK = 1 << 12
"""Bytes of a channel's chunk; NCCL's are larger."""

SLOT = CHANNELS * CHUNK


class Ring:
    """Buffers of eight slots each way, and the collectives that go through them."""

    def __init__(self, node: Node) -> None:
        self.comm = node.form()
        self.send, self.receive = Buffer(STEPS * SLOT), Buffer(STEPS * SLOT)
        self.comm.register(self.send)
        self.comm.register(self.receive)
        self.step = 0

    def all_reduce(
        self, tensor: npt.NDArray[Any], dtype: str, red_op: str, *, backwards: bool = False
    ) -> npt.NDArray[Any]:
        """Reduce a tensor, with as many steps in flight as there are slots.

        Args:
            tensor: Its elements, of which each channel's chunk takes some.
            dtype: Their type.
            red_op: The reduction.
            backwards: Whether later requests are tested first.
        """
        count = CHUNK // tensor.itemsize
        chunks = [tensor[at : at + count] for at in range(0, len(tensor), count)]
        steps = [chunks[at : at + CHANNELS] for at in range(0, len(chunks), CHANNELS)]
        results: list[npt.NDArray[Any]] = []
        flying: collections.deque[tuple[int, int, list[npt.NDArray[Any]]]] = collections.deque()
        for subs in steps:
            if len(flying) == STEPS:
                results += self.finish(flying, dtype, backwards)
            slot = self.step % STEPS * SLOT
            self.step += 1
            for channel, chunk in enumerate(subs):
                self.send.view(dtype, slot + channel * CHUNK, len(chunk))[:] = chunk
            whole = len(subs) * count
            request = self.comm.iallreduce(
                (self.send, slot), (self.receive, slot), whole, dtype, red_op
            )
            assert request is not None
            flying.append((request, slot, subs))
        results += self.finish(flying, dtype, backwards)
        return np.concatenate(results)

    def finish(self, flying: Any, dtype: str, backwards: bool) -> list[npt.NDArray[Any]]:
        order = reversed(flying) if backwards else flying
        for request, _, subs in order:
            assert self.comm.wait(request) == len(subs) * CHUNK
        found = [
            self.receive.view(dtype, slot + channel * CHUNK, len(chunk)).copy()
            for _, slot, subs in flying
            for channel, chunk in enumerate(subs)
        ]
        flying.clear()
        return found

    def close(self) -> None:
        self.comm.deregister(self.send)
        self.comm.deregister(self.receive)
        self.comm.close()
