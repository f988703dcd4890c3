"""How a process ends whose group could not be made: the cause, and the caller's place once a host.

All ranks have the same cause, and the places inside torch and Afflux say nothing about it. So the
first rank of a host shows the script's places, each other rank a line. torchrun gets the cause too,
for its own report, which comes last. The log has all places at the level DEBUG.
"""

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["report_shortly"]

_INSIDE = ("torch", "afflux")
"""Packages whose places are left out, unless they have called the script."""


def report_shortly(error: Exception) -> None:
    """Show this error shortly if nobody catches it."""
    if not isinstance(sys.excepthook, _Report):
        sys.excepthook = _Report(sys.excepthook)
    sys.excepthook.error = error


class _Report:
    """Takes the place of `sys.excepthook`.

    Args:
        before: The hook that stood there; it gets all other errors.

    Attributes:
        error: The one that is shown shortly.
    """

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before
        self.error: Exception | None = None

    def __call__(
        self, kind: type[BaseException], error: BaseException, places: TracebackType | None
    ) -> None:
        if error is not self.error:
            self._before(kind, error, places)
            return
        cause = "".join(traceback.format_exception_only(error)).strip()
        if os.environ.get("LOCAL_RANK", "0") == "0":
            traceback.print_exception(kind, error, _of_script(places), chain=False)
        else:
            print(cause, file=sys.stderr, flush=True)
        _tell_torchrun(cause)


def _of_script(places: TracebackType | None) -> TracebackType | None:
    """Cut off the places in what the script has called."""
    last, each = None, places
    while each is not None:
        if each.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _INSIDE:
            last = each
        each = each.tb_next
    if last is None:
        return None
    last.tb_next = None
    return places


def _tell_torchrun(cause: str) -> None:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        # In the form of torch.distributed.elastic's `record`, which may have written it already.
        about = {"py_callstack": cause, "timestamp": str(int(time.time()))}
        with contextlib.suppress(OSError), open(path, "x", encoding="utf-8") as file:
            json.dump({"message": {"message": cause, "extraInfo": about}}, file)
