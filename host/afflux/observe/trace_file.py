"""One line of JSON for each collective that is over: AFFLUX_TRACE.

    AFFLUX_TRACE=/var/tmp/trace-%r.jsonl    %r is the global rank, %p the process
    AFFLUX_TRACE=/var/tmp/traces            a folder: afflux-<rank>-<process>.jsonl in it

A line is one write to a file opened for appending, so that it is whole even if the process is
killed in the next moment, or if several ranks name the same file. Only SIGKILL within that write
can cut the line, where a page of the file ends.
"""

import functools
import json
import os
import threading
from pathlib import Path

import torch

from afflux.observe.observation import POINT_TO_POINT, Observation

__all__ = ["TraceFile", "bus_factor", "path_for", "trace_file"]

_REDUCTIONS = frozenset(
    {"sum", "avg", "min", "max", "product", "band", "bor", "bxor", "premul_sum"}
)

_EVERY_PAIR = frozenset(
    {
        "all_gather_single",
        "all_gather_single_coalesced",
        "all_to_all_single",
        "allgather",
        "allgather_coalesced",
        "alltoall",
        "gather",
        "reduce_scatter",
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced",
        "scatter",
    }
)

_ALL_REDUCES = frozenset({"all_reduce", "allreduce_coalesced"})


def bus_factor(name: str, ranks: int) -> float:
    """Return nccl-tests' ratio of bus bandwidth to algorithm bandwidth."""
    if name in _ALL_REDUCES:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if name in _EVERY_PAIR else 1.0


class TraceFile:
    """A file of lines. Any thread may write.

    Args:
        path: The file; made anew or appended to.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # Errors in it may quote what only its user should know.
        self._descriptor = os.open(path, flags, 0o600)

    def write(self, observation: Observation, global_rank: int, ranks: int) -> None:
        """Write the line of a call that is over.

        Raises:
            OSError: The file cannot be written: a full disk, say.
        """
        os.write(self._descriptor, _line(observation, global_rank, ranks).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _line(observation: Observation, global_rank: int, ranks: int) -> str:
    # One format is twice as quick as json.dumps, and this runs within every call.
    ended_ns = observation.ended_ns
    started_ns = observation.started_ns
    size_bytes = observation.bytes
    duration_ns = ended_ns - started_ns if started_ns else 0
    # Bytes for each nanosecond are GB/s.
    algorithm = size_bytes / duration_ns if duration_ns > 0 and not observation.error else 0.0
    bus = algorithm * bus_factor(observation.name, ranks)
    dtypes = observation.input_dtypes or observation.output_dtypes
    more = "".join(f',"{name}":{count}' for name, count in observation.blocks.items())
    if observation.name in POINT_TO_POINT:
        more += f',"peer":{_or_null(observation.peer)},"tag":{observation.tag}'
    return (
        f'{{"rank":{global_rank},"group":{_text(observation.group)}'
        f',"group_rank":{observation.rank},"group_size":{ranks}'
        f',"sequence":{observation.sequence},"collective":{_text(observation.name)}'
        f',"dtype":{_text(_dtype_name(dtypes[0])) if dtypes else "null"}'
        f',"count":{observation.count},"bytes":{size_bytes}'
        f',"reduction":{_reduction(observation.text)},"way":{_text(observation.way)}'
        f',"queued_ns":{observation.created_wall_ns}'
        f',"started_ns":{observation.wall_ns(started_ns)}'
        f',"ended_ns":{observation.wall_ns(ended_ns)}'
        f',"queued_monotonic_ns":{observation.created_ns}'
        f',"started_monotonic_ns":{started_ns},"ended_monotonic_ns":{ended_ns}'
        f',"algbw_gbytes_per_s":{algorithm:.4f},"busbw_gbytes_per_s":{bus:.4f}{more}'
        f',"error":{_text(observation.error) if observation.error else "null"}}}\n'
    )


_text = json.dumps


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _or_null(number: int | None) -> str:
    return "null" if number is None else str(number)


def _reduction(text: str) -> str:
    # "all_reduce sum float32 (3, 4)": the second word, where the collective reduces.
    words = text.split(" ", 2)
    return f'"{words[1]}"' if len(words) > 1 and words[1] in _REDUCTIONS else "null"


_files: dict[tuple[str, int, int], TraceFile] = {}
_opening = threading.Lock()


def trace_file(wish: str, global_rank: int) -> TraceFile:
    """Return the process's file for AFFLUX_TRACE, the same for all its groups.

    Raises:
        OSError: It cannot be opened.
    """
    # A forked process gets a file of its own where the name has the process in it.
    key = wish, global_rank, os.getpid()
    with _opening:
        found = _files.get(key)
        if found is None:
            found = _files[key] = TraceFile(path_for(wish, global_rank, "jsonl"))
        return found


def path_for(wish: str, global_rank: int, ending: str) -> Path:
    """Return a rank's own file for what may be the name of a folder, or have %r or %p in it."""
    if wish.endswith("/") or Path(wish).is_dir():
        return Path(wish) / f"afflux-{global_rank}-{os.getpid()}.{ending}"
    return Path(wish.replace("%r", str(global_rank)).replace("%p", str(os.getpid())))
