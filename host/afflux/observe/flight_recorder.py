"""The flight recorder: the latest calls of all groups of a process, as torch's `fr_trace` reads it.

A dump is what `torch._C._distributed_c10d._dump_fr_trace` gives, version 2.10 of its format: a
pickled dictionary with `version`, `pg_config`, `pg_status`, `comm_lib_version` and `entries`. Under
`afflux`, which `fr_trace` passes by, stands what torch's has no place for: of each group its
failure, who was missing and what every rank was doing; of each call its way and present blocks.

Sends and receives are entries of groups of their own, one for each direction between two ranks and
each tag: `fr_trace` expects every member of a group in each of its entries, and takes a transfer in
a larger group for a collective that the others have missed.
"""

import collections
import importlib.metadata
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from afflux.observe import torch_variables
from afflux.observe.observation import POINT_TO_POINT, Observation
from afflux.observe.torch_names import dtype_names, profiling_name, sizes_of

__all__ = ["FORMAT_VERSION", "FlightRecorder", "GroupRecord", "process_recorder"]

FORMAT_VERSION = "2.10"
"""Of torch's dump. fr_trace wants the same of all ranks."""

_OWN_VERSION = 1

_OWN_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"


def _nothing() -> None: ...


@dataclass(eq=False)
class GroupRecord:
    """The recorder's data of one group.

    Attributes:
        name: As torch has it.
        description: Likewise, such as "default_pg".
        rank: Own rank in it.
        global_ranks: Its members' ranks in the world, by rank.
        engine: Kind of engine: "shm", "soft", …
        settle: Ends observations whose end nobody has reported.
        statistics: Reads the reducer's counts; None before there is one.
        failure: Text of the error that ended it; empty if none did.
        failure_kind: Class name of that error.
        missing_ranks: Ranks of the group for which that operation waited.
        doing: The call of each rank then, where known, by rank.
    """

    name: str
    description: str
    rank: int
    global_ranks: tuple[int, ...]
    engine: str
    number: int = 0
    settle: Callable[[], None] = _nothing
    statistics: Callable[[], dict[str, Any]] | None = None
    failure: str = ""
    failure_kind: str = ""
    missing_ranks: tuple[int, ...] = ()
    doing: dict[int, str] = field(default_factory=dict)
    last_enqueued: int = -1
    last_started: int = -1
    last_completed: int = -1

    @property
    def global_rank(self) -> int:
        return self.global_ranks[self.rank]

    @property
    def size(self) -> int:
        return len(self.global_ranks)


class FlightRecorder:
    """The latest calls of all groups.

    Args:
        size: How many calls are kept.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._stacks = torch_variables.stacks()
        self._cpp_stacks = torch_variables.cpp_stacks()
        self._numbers = itertools.count()
        # Appending to a deque is one step of the interpreter: recording needs no lock.
        self._kept: collections.deque[tuple[GroupRecord, Observation]] = collections.deque(
            maxlen=size
        )
        self._groups: dict[str, GroupRecord] = {}
        self._group_numbers = itertools.count()
        self._transfers: collections.Counter[tuple[GroupRecord, str]] = collections.Counter()
        self._lock = threading.Lock()

    def enter(self, group: GroupRecord) -> None:
        """Add a group. One that had its name before, and has been destroyed, is forgotten."""
        with self._lock:
            group.number = next(self._group_numbers)
            self._groups[group.name] = group

    def record(self, group: GroupRecord, observation: Observation) -> None:
        """Keep a call, from the moment it is asked for."""
        observation.record_id = next(self._numbers)
        if observation.name in POINT_TO_POINT:
            self.count_transfer(group, observation)
        else:
            group.last_enqueued = observation.sequence
        thread = threading.current_thread()
        observation.thread_id, observation.thread_name = thread.ident or 0, thread.name
        if self._stacks:
            observation.traceback = torch._C._profiler.gather_traceback(
                python=True, script=False, cpp=self._cpp_stacks
            )
        self._kept.append((group, observation))

    def count_transfer(self, group: GroupRecord, observation: Observation) -> None:
        """Give a send or a receive its number among those of its direction and tag."""
        with self._lock:
            key = group, _transfer_group(group, observation)
            self._transfers[key] += 1
            observation.transfer = self._transfers[key]

    def dump(
        self, *, include_stacks: bool | None = None, only_active: bool | None = None
    ) -> dict[str, Any]:
        """Return what there is, in torch's format.

        Args:
            include_stacks: Whether entries have `frames`; None as torch's variable says.
            only_active: Whether to leave out calls that are over; None as torch's variable says.
        """
        stacks = self._stacks if include_stacks is None else include_stacks
        active = torch_variables.only_active() if only_active is None else only_active
        for group in list(self._groups.values()):
            group.settle()
        with self._lock:
            groups = dict(self._groups)
            kept = [each for each in self._kept if groups.get(each[0].name) is each[0]]
        if active:
            kept = [each for each in kept if _state(each[1]) != "completed"]
        configuration = {group.name: _configuration(group) for group in groups.values()}
        entries: list[dict[str, Any]] = []
        unmatched: list[dict[str, Any]] = []
        frames = _frames([observation for _, observation in kept]) if stacks else {}
        for group, observation in kept:
            entry = _entry(group, observation)
            if stacks:
                entry["frames"] = frames.get(observation.record_id, [])
            if observation.name == "recv_anysource" and observation.peer is None:
                # Its sender is not known, and not every version of fr_trace takes that.
                unmatched.append(entry)
                continue
            if observation.name in POINT_TO_POINT:
                name, description = entry["process_group"]
                ranks = sorted((group.global_rank, group.global_ranks[observation.peer or 0]))
                configuration[name] = {"name": name, "desc": description, "ranks": str(ranks)}
            entries.append(entry)
        return {
            "version": FORMAT_VERSION,
            "comm_lib_version": _library_version(),
            "pg_config": configuration,
            "pg_status": {str(group.number): _status(group) for group in groups.values()},
            "entries": entries,
            "afflux": {
                "version": _OWN_VERSION,
                "groups": {group.name: _own(group) for group in groups.values()},
                "receives_without_source": unmatched,
            },
        }


def _transfer_group(group: GroupRecord, observation: Observation) -> str:
    """Name the direction between two ranks in which a transfer goes."""
    other = "?" if observation.peer is None else observation.peer
    ends = (observation.rank, other) if observation.name == "send" else (other, observation.rank)
    tag = f" tag {observation.tag}" if observation.tag else ""
    return f"{group.name}:{ends[0]}->{ends[1]}{tag}"


def _state(observation: Observation) -> str:
    if observation.ended_ns and not observation.error:
        return "completed"
    return "started" if observation.started_ns else "scheduled"


def _entry(group: GroupRecord, observation: Observation) -> dict[str, Any]:
    transfer = observation.name in POINT_TO_POINT
    name = _transfer_group(group, observation) if transfer else group.name
    inputs, outputs = sizes_of(observation, group.size)
    state = _state(observation)
    entry = {
        "record_id": observation.record_id,
        "pg_id": group.number,
        "process_group": (name, group.description),
        "thread_name": observation.thread_name,
        "thread_id": str(observation.thread_id),
        # fr_trace pairs entries by this number alone.
        "collective_seq_id": observation.transfer if transfer else observation.sequence,
        "p2p_seq_id": observation.transfer,
        "op_id": observation.record_id + 1,
        "profiling_name": profiling_name(observation),
        "time_created_ns": observation.created_wall_ns,
        "input_sizes": inputs,
        "input_dtypes": dtype_names(observation.input_dtypes),
        "output_sizes": outputs,
        "output_dtypes": dtype_names(observation.output_dtypes),
        "state": state,
        "time_discovered_started_ns": observation.wall_ns(observation.started_ns) or None,
        "time_discovered_completed_ns": (
            observation.wall_ns(observation.ended_ns) if state == "completed" else None
        ),
        "retired": observation.ended_ns != 0,
        "timeout_ms": int(observation.timeout_s * 1000),
        "is_p2p": transfer,
        "afflux": {
            "call": observation.text,
            "way": observation.way,
            "peer": observation.peer,
            "tag": observation.tag,
            "error": observation.error,
            "blocks": dict(observation.blocks),
        },
    }
    if state == "completed" and observation.started_ns:
        entry["duration_ms"] = (observation.ended_ns - observation.started_ns) / 1e6
    return entry


def _configuration(group: GroupRecord) -> dict[str, str]:
    ranks = str(list(group.global_ranks))
    return {"name": group.name, "desc": group.description, "ranks": ranks}


def _status(group: GroupRecord) -> dict[str, int]:
    return {
        "last_enqueued_collective": group.last_enqueued,
        "last_started_collective": group.last_started,
        "last_completed_collective": group.last_completed,
    }


def _own(group: GroupRecord) -> dict[str, Any]:
    try:
        statistics = group.statistics() if group.statistics is not None else {}
    except Exception as error:
        # A reducer that has failed or been closed; the rest of the dump matters more.
        statistics = {"unavailable": str(error)}
    return {
        "rank": group.rank,
        "size": group.size,
        "global_ranks": list(group.global_ranks),
        "engine": group.engine,
        "failure": group.failure,
        "failure_kind": group.failure_kind,
        "missing_ranks": list(group.missing_ranks),
        "missing_global_ranks": [group.global_ranks[rank] for rank in group.missing_ranks],
        "doing": dict(group.doing),
        "statistics": statistics,
    }


def _frames(observations: Sequence[Observation]) -> dict[int, list[dict[str, Any]]]:
    """Return the stacks of calls by `record_id`, innermost frame first."""
    found = [each for each in observations if each.traceback is not None]
    if not found:
        return {}
    named = torch._C._profiler.symbolize_tracebacks([each.traceback for each in found])
    return {
        each.record_id: [
            {"name": frame["name"], "filename": frame["filename"], "line": frame["line"]}
            for frame in itertools.dropwhile(_is_own, stack)
        ]
        for each, stack in zip(found, named, strict=True)
    }


def _is_own(frame: dict[str, Any]) -> bool:
    return frame["filename"].startswith(_OWN_FOLDER)


def _library_version() -> str:
    return f"afflux {importlib.metadata.version('afflux')}"


_of_process: list[FlightRecorder] = []
_making = threading.RLock()


def _forget() -> None:
    _of_process.clear()
    _making.release()


# A forked process has groups of its own, and a lock may be held by a thread that it does not have.
os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_forget)


def process_recorder() -> FlightRecorder | None:
    """Return the process's recorder, made by the first group; None if the variables ask for none.

    Raises:
        ValueError: A variable has a value that it cannot have.
    """
    with _making:
        if not _of_process:
            size = torch_variables.buffer_size()
            if size == 0:
                return None
            _of_process.append(FlightRecorder(size))
        return _of_process[0]
