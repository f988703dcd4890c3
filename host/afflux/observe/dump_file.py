"""Where the flight recorder's dumps go."""

import logging
import os
import pickle
from pathlib import Path

from afflux.observe import torch_variables
from afflux.observe.flight_recorder import FlightRecorder

__all__ = ["dump_at_failure", "write_dump"]

_log = logging.getLogger("afflux")

_PICKLE_PROTOCOL = 2
"""torch's own; fr_trace may run under any Python."""


def write_dump(recorder: FlightRecorder, path: str | os.PathLike[str]) -> None:
    """Write a dump: whole, or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    target = Path(path)
    # fr_trace passes by names that do not end in digits.
    unfinished = target.with_name(f"{target.name}.unfinished")
    unfinished.write_bytes(pickle.dumps(recorder.dump(), protocol=_PICKLE_PROTOCOL))
    os.replace(unfinished, target)


def dump_at_failure(recorder: FlightRecorder, global_rank: int) -> None:
    """Write a dump where torch's variables say, if they ask for one. Never raises."""
    try:
        if not torch_variables.dumps_at_failure():
            return
        path = Path(f"{torch_variables.dump_prefix()}{global_rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_dump(recorder, path)
    except Exception as error:
        _log.error("the flight record could not be written: %s", error)
    else:
        _log.info("flight record written to %s", path)
