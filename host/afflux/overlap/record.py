"""The time of a model's training: computing, sending, and waiting for messages."""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afflux.overlap.plan import Plan

__all__ = ["KINDS", "Record", "Span", "layer_of", "layers_table", "messages_table"]

KINDS = ("forward", "backward", "copy", "step", "wait", "message")
"""Computing, by layer; copies of gradients to where they are sent from; steps that were deferred;
waiting for averages, by layer; messages under way, by number."""

_KEPT = 200_000
"""Spans; the oldest are dropped."""


@dataclass(frozen=True)
class Span:
    """Something that took time.

    Attributes:
        kind: One of `KINDS`.
        name: Of a layer; of a message, its number.
        started_s, ended_s: `time.monotonic`.
        about: More for the timeline.
    """

    kind: str
    name: str
    started_s: float
    ended_s: float
    about: Mapping[str, Any]


class Record:
    """Sums of times, and the latest spans. Any thread may write.

    Args:
        with_spans: Whether to keep spans, too.

    Attributes:
        rounds: Backward passes whose gradients were averaged.
        wall_s: Seconds to add to a span's time for the time of day.
    """

    def __init__(self, with_spans: bool) -> None:
        self.rounds = 0
        self.wall_s = time.time() - time.monotonic()
        self._with_spans = with_spans
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str], list[float]] = {}
        self._spans: deque[Span] = deque(maxlen=_KEPT)

    def add(self, kind: str, name: str, started_s: float, ended_s: float, **about: object) -> None:
        """Add a span."""
        with self._lock:
            sums = self._sums.setdefault((kind, name), [0, 0.0])
            sums[0] += 1
            sums[1] += ended_s - started_s
            if self._with_spans:
                self._spans.append(Span(kind, name, started_s, ended_s, about))

    def spans(self) -> list[Span]:
        """Return the spans that there are."""
        with self._lock:
            return list(self._spans)

    def seconds(self, kind: str) -> float:
        """Return the time that all spans of a kind took together."""
        with self._lock:
            return sum(sums[1] for (each, _), sums in self._sums.items() if each == kind)

    def by_name(self, kind: str) -> dict[str, tuple[int, float]]:
        """Return how often each thing of a kind was, and how long together."""
        with self._lock:
            return {
                name: (int(sums[0]), sums[1])
                for (each, name), sums in self._sums.items()
                if each == kind
            }

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self.rounds = 0
            self._sums.clear()
            self._spans.clear()


def layer_of(parameter: str) -> str:
    """Return the name of the module that has a parameter."""
    return parameter.rpartition(".")[0] or parameter


def messages_table(plan: Plan, record: Record) -> str:
    """Return a table of messages: size, and the mean time that each was under way."""
    sent = record.by_name("message")
    lines = ["priority      bytes    sent ms  what"]
    for message in plan.messages:
        count, took_s = sent.get(str(message.number), (0, 0.0))
        mean_ms = 1e3 * took_s / max(1, count)
        lines.append(f"{message.number:8d} {message.bytes:10d} {mean_ms:10.3f}  {message.text}")
    return "\n".join(lines)


def layers_table(plan: Plan, record: Record) -> str:
    """Return a table of layers: the mean times of a step, by what they were spent on.

    A message with several layers counts for each by its share.
    """
    kinds = ("forward", "backward", "step", "wait")
    seconds = {kind: record.by_name(kind) for kind in kinds}
    sizes, sent = _by_layer(plan, record)
    rounds = max(1, record.rounds)
    lines = ["     bytes  forward ms  backward ms   step ms   sent ms  exposed ms  layer"]
    others = [name for kind in kinds for name in seconds[kind] if name not in sizes]

    def line(size: int, times: Sequence[float], name: str) -> str:
        forward, backward, step, wait, message = (1e3 * each / rounds for each in times)
        return (
            f"{size:10d} {forward:11.3f} {backward:12.3f} {step:9.3f} {message:9.3f} "
            f"{wait:11.3f}  {name}"
        )

    for name in [*sizes, *dict.fromkeys(others)]:
        times = [seconds[kind].get(name, (0, 0.0))[1] for kind in kinds]
        lines.append(line(sizes.get(name, 0), [*times, sent.get(name, 0.0)], name))
    totals = [*(record.seconds(kind) for kind in kinds), record.seconds("message")]
    lines.append(line(sum(sizes.values()), totals, f"all; mean of {record.rounds} steps"))
    return "\n".join(lines)


def _by_layer(plan: Plan, record: Record) -> tuple[dict[str, int], dict[str, float]]:
    """Return each layer's bytes, and how long its share of messages was under way."""
    sizes: dict[str, int] = {}
    sent: dict[str, float] = {}
    by_message = record.by_name("message")
    for message in plan.messages:
        _, took_s = by_message.get(str(message.number), (0, 0.0))
        for parameter, first, last in message.parts:
            layer = layer_of(plan.names[parameter])
            share = (last - first) / (message.stop - message.start)
            sizes[layer] = sizes.get(layer, 0) + (last - first) * message.dtype.itemsize
            sent[layer] = sent.get(layer, 0.0) + took_s * share
    return sizes, sent
