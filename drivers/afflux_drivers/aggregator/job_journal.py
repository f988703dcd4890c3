"""The jobs of a board, in a file of its controller: a board outlives that process.

A board goes on summing when its controller dies, and does not give away the keys of its jobs. So
whoever takes over, most likely the same command started again, finds in this file which jobs are
whose (`JobTable.adopt`).
"""

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from afflux_drivers.aggregator.job import Job
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import canonical
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire

__all__ = ["JobJournal", "journal_of"]

_log = logging.getLogger("afflux")

_FORMAT = 1
_DIGEST_DIGITS = 16
_MOST_BYTES = 1 << 20
_MOST = {
    "number": 255,
    "round": 0xFFFF_FFFF,
    "workers": wire.WORKERS_MAX,
    "lanes": wire.LANES_MAX,
    "slot_base": 0xFFFF,
    "slots": 1 << 16,
    "credit": 0xFFFF,
    "lease_s": 3600,
}
"""Of the numbers of a job."""


class JobJournal:
    """The jobs of one board, in a file that only its owner can read: it has their keys.

    Args:
        path: The file; it and its folder are made when they are needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Job]:
        """Return the jobs that were written last; none if there is no such file.

        A file that makes no sense is as good as none, which the log reports: its jobs end.
        """
        try:
            found = json.loads(_content(self._path))
            if found["format"] != _FORMAT:
                raise ValueError(f"its format is {found['format']!r}, not {_FORMAT}")
            return [_job(fields) for fields in found["jobs"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("the jobs of the board are not known: %s: %s", self._path, error)
            return []

    def write(self, jobs: Iterable[Job]) -> None:
        """Replace what the file has. A failure is logged: only a restart needs the file."""
        content = {"format": _FORMAT, "jobs": [_fields(job) for job in jobs]}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Made with mode 600. A rename is atomic: no reader finds half of it.
            number, name = tempfile.mkstemp(prefix=f"{self._path.name}.", dir=self._path.parent)
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    json.dump(content, file)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            _log.warning(
                "the jobs of the board could not be written down, so they end if this process "
                "does: %s: %s", self._path, error,
            )  # fmt: skip


def journal_of(device: DeviceUrl, state_home: str = "") -> JobJournal | None:
    """Return the journal of a board, the same for all ways to name it.

    It is where the host keeps what outlives a restart, as the board may; None, which is logged, if
    there is no such folder.

    Args:
        device: The board.
        state_home: The variable XDG_STATE_HOME.
    """
    # XDG Base Directory Specification: a relative path is as good as none.
    state = Path(state_home)
    if not state.is_absolute():
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError as error:
            _log.warning(
                "the jobs of the board are not written down, so they end if this process does: "
                "there is no XDG_STATE_HOME, and no home: %s", error,
            )  # fmt: skip
            return None
    name = hashlib.sha256(str(canonical(device)).encode()).hexdigest()[:_DIGEST_DIGITS]
    return JobJournal(state / "afflux" / f"board-{name}.json")


def _content(path: Path) -> bytes:
    """Return what a journal has.

    Raises:
        OSError: It cannot be opened.
        ValueError: Somebody else may have written it, or it does not hold a journal.
    """
    # A FIFO would wait for its writer.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise ValueError("it is not a file as this program writes it")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ValueError("others than this user may have written it")
        with open(number, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    finally:
        os.close(number)


def _fields(job: Job) -> dict[str, Any]:
    """Return what the file has of a job: keys in hexadecimal, as JSON numbers may lose bits."""
    fields = asdict(job)
    return {**fields, "key": f"{job.key:016x}", "group_key": f"{job.group_key:016x}"}


def _job(fields: dict[str, Any]) -> Job:
    if fields["parent"] is not None:
        raise ValueError("a job on a board has no parent")
    for name, most in _MOST.items():
        value = fields[name]
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"{name} of a job is {value!r}, not a number up to {most}")
    if not isinstance(fields["peer"], str):
        raise ValueError(f"peer of a job is {fields['peer']!r}")
    group = fields["group"]
    return Job(
        **{
            **fields,
            "key": int(fields["key"], 16),
            "group_key": int(fields["group_key"], 16),
            "group": None if group is None else MulticastGroup(**group),
        }
    )
