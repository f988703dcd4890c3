"""What a model's training was busy with: computing, sending, and waiting for what is sent."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afflux.overlap.plan import Message

__all__ = ["Record", "Span", "as_text"]

_KEPT = 200_000
"""Spans; the oldest are dropped."""


@dataclass(frozen=True)
class Span:
    """Something that took time.

    Attributes:
        kind: "forward", "backward", "step", "message" or "wait".
        name: Of a module, a parameter or a message.
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

    Attributes:
        rounds: Backward passes whose gradients were averaged.
    """

    def __init__(self, with_spans: bool) -> None:
        self.rounds = 0
        self._with_spans = with_spans
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str], list[float]] = {}
        self._spans: deque[Span] = deque(maxlen=_KEPT)

    def add(
        self, kind: str, name: str, started_s: float, ended_s: float, about: Mapping[str, Any]
    ) -> None:
        """Add a span."""
        with self._lock:
            sums = self._sums.setdefault((kind, name), [0, 0.0])
            sums[0] += 1
            sums[1] += ended_s - started_s
            if self._with_spans:
                self._spans.append(Span(kind, name, started_s, ended_s, about))

    def spans(self) -> list[Span]:
        """Return the spans, and forget them."""
        with self._lock:
            found = list(self._spans)
            self._spans.clear()
            return found

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


def as_text(messages: Sequence[Message], record: Record) -> str:
    """Return a table: for each message its size, its time, and the time that it was waited for."""
    rounds = max(1, record.rounds)
    sent, waits = record.by_name("message"), record.by_name("wait")
    lines = ["priority      bytes   sent ms  waited ms  what"]
    for message in messages:
        _, took = sent.get(message.text, (0, 0.0))
        _, waited = waits.get(message.text, (0, 0.0))
        lines.append(
            f"{message.number:8d} {message.bytes:10d} {1e3 * took / rounds:9.3f} "
            f"{1e3 * waited / rounds:10.3f}  {message.text}"
        )
    size = sum(message.bytes for message in messages)
    lines.append(
        f"{'all':>8} {size:10d} {1e3 * record.seconds('message') / rounds:9.3f} "
        f"{1e3 * record.seconds('wait') / rounds:10.3f}  for each of {record.rounds} backward passes"
    )
    return "\n".join(lines)
