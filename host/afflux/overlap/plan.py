"""Which messages a model's gradients are summed in, in the order of their priority.

The gradients lie one after the other, in the order in which the next forward pass needs their
parameters. A message is a slice of that: small neighbours share one, large tensors are split. All
ranks make the same plan from the same parameters, order and size, and compare `fingerprint`.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

__all__ = ["Message", "Place", "Plan"]


@dataclass(frozen=True)
class Message:
    """A slice of the gradients of one dtype, summed at once.

    Attributes:
        number: Its priority: 0 is needed first.
        dtype: Of its elements.
        start, stop: Where it lies among the gradients of its dtype.
        parts: For each parameter in it: its number, and its first and last element, exclusively.
        text: Its content, for messages and tables.
    """

    number: int
    dtype: torch.dtype
    start: int
    stop: int
    parts: tuple[tuple[int, int, int], ...]
    text: str

    @property
    def bytes(self) -> int:
        """Size."""
        return (self.stop - self.start) * self.dtype.itemsize


@dataclass(frozen=True)
class Place:
    """Where a parameter's gradient lies among those of its dtype, and which messages have it."""

    start: int
    stop: int
    messages: tuple[int, ...]


class Plan:
    """Messages of a model.

    Args:
        parameters: By name, in the order of their priority.
        message_bytes: Most bytes of a message; one element at least.
        fuse_bytes: Most bytes of a message with several parameters.

    Attributes:
        names: Names of the parameters, by their number.
        messages: By priority.
        places: Of each parameter, by its number.
        dtypes: Of each parameter.
        elements: How many there are, by dtype.
        fingerprint: 31 bits that stand for all of it.
    """

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], message_bytes: int, fuse_bytes: int
    ) -> None:
        self.names = tuple(parameters)
        self.dtypes = tuple(each.dtype for each in parameters.values())
        self.elements: dict[torch.dtype, int] = {}
        self.messages: list[Message] = []
        self.places: list[Place] = []
        messages_of: list[list[int]] = [[] for _ in self.names]
        starts: list[int] = []
        parts: list[tuple[int, int, int]] = []
        start = stop = 0
        current: torch.dtype | None = None

        def end_message() -> None:
            nonlocal parts, start
            if parts:
                assert current is not None
                number = len(self.messages)
                for parameter, _, _ in parts:
                    messages_of[parameter].append(number)
                text = self._text(parts, parameters)
                self.messages.append(Message(number, current, start, stop, tuple(parts), text))
            parts, start = [], stop

        for parameter, tensor in enumerate(parameters.values()):
            if tensor.dtype != current:
                end_message()
                current = tensor.dtype
                start = stop = self.elements.get(current, 0)
            most = max(1, message_bytes // current.itemsize)
            starts.append(stop)
            count, first = tensor.numel(), 0
            if parts and stop - start + count > min(most, fuse_bytes // current.itemsize):
                end_message()
            while first < count:
                last = min(count, first + most - (stop - start))
                parts.append((parameter, first, last))
                stop += last - first
                first = last
                if stop - start == most:
                    end_message()
            self.elements[current] = stop
        end_message()
        for parameter, tensor in enumerate(parameters.values()):
            begin = starts[parameter]
            self.places.append(Place(begin, begin + tensor.numel(), tuple(messages_of[parameter])))
        self.fingerprint = _hash(
            [f"{each.dtype} {each.start} {each.stop} {each.text}" for each in self.messages]
        )

    def messages_of(self, parameters: Iterable[int]) -> set[int]:
        """Return the messages that have parts of these parameters."""
        return {each for number in parameters for each in self.places[number].messages}

    def _text(
        self, parts: Sequence[tuple[int, int, int]], parameters: Mapping[str, torch.Tensor]
    ) -> str:
        shown = []
        for parameter, first, last in parts:
            name = self.names[parameter]
            whole = last - first == parameters[name].numel()
            shown.append(name if whole else f"{name}[{first}:{last}]")
        return shown[0] if len(shown) == 1 else f"{shown[0]} … {shown[-1]}"


def _hash(lines: Sequence[str]) -> int:
    return zlib.crc32("\n".join(lines).encode()) & 0x7FFFFFFF
