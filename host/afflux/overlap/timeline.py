"""A timeline of a rank's training, in the format that Chrome's and Perfetto's viewers open.

It is the "JSON array format" of Google's *Trace Event Format*, one event in a line: complete events
("X") with microseconds of the time of day, a process for each rank, a thread for what the training
thread does and one for messages. Files of several ranks can be opened together.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from afflux.overlap.record import Record, Span

__all__ = ["write_timeline"]

_TRAINING, _MESSAGES = 1, 2
_THREADS = {_TRAINING: "training", _MESSAGES: "messages"}


def write_timeline(path: Path, record: Record, rank: int, texts: dict[str, str]) -> None:
    """Write what a record has.

    Args:
        path: A file, which is replaced; its folder is made.
        record: With spans.
        rank: Number of the process in the timeline.
        texts: The content of each message, by its number.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    events = [*_names(rank), *_events(record.spans(), record.wall_s, rank, texts)]
    lines = ",\n".join(json.dumps(event) for event in events)
    path.write_text(f"[\n{lines}\n]\n")


def _names(rank: int) -> Iterable[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    for number, name in _THREADS.items():
        yield {
            "ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name},
        }  # fmt: skip


def _events(
    spans: Iterable[Span], wall_s: float, rank: int, texts: dict[str, str]
) -> Iterable[dict[str, Any]]:
    for span in spans:
        message = span.kind == "message"
        name = texts.get(span.name, span.name) if message else f"{span.kind} {span.name}"
        yield {
            "ph": "X",
            "name": name,
            "cat": span.kind,
            "pid": rank,
            "tid": _MESSAGES if message else _TRAINING,
            "ts": round(1e6 * (span.started_s + wall_s), 1),
            "dur": round(1e6 * (span.ended_s - span.started_s), 1),
            "args": dict(span.about),
        }
