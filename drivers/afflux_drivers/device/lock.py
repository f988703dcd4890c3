"""A host's lock of a device: one user that changes it at a time, and none while it is loaded.

A lock is a `flock` on a file that is named after the device, so the kernel frees it when its holder
ends, however that happens. Other hosts are not kept out: an appliance itself takes requests from
one address only.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import socket
import stat
import time
from dataclasses import replace
from pathlib import Path

from afflux_drivers.addresses import resolve
from afflux_drivers.device.errors import DeviceBusy, DeviceFailed
from afflux_drivers.device.location import DeviceUrl

__all__ = ["DeviceLock", "canonical", "card_of", "lock_directory", "registers_of"]

_DIRECTORIES = (Path("/run/lock"), Path("/tmp"))
_MODE = 0o666
_TRIES, _PAUSE_S = 10, 0.02
"""Until a lock counts as held: a leaving holder has it for a moment alone, to remove its file."""

_BAR_FILE = re.compile(
    r"/(?P<function>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/resource(?P<bar>[0-5])(_wc)?"
)
"""How a file ends that is a BAR in sysfs."""


def lock_directory() -> Path:
    """Return the folder of the locks. The same for all users, whatever their environment says."""
    return next((each for each in _DIRECTORIES if _all_may_write(each)), _DIRECTORIES[-1])


def _all_may_write(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH) and bool(mode & stat.S_ISVTX)


def canonical(url: DeviceUrl) -> DeviceUrl:
    """Return the URL that is the same for all ways to name these registers.

    A host may be named or numbered, links may lead to a file, and a file may be a card's BAR.
    """
    if url.scheme == "udp":
        # A path that cannot be resolved cannot be opened either, and that error says why.
        with contextlib.suppress(OSError):
            for each in resolve(url.place, url.port):
                if each.family == socket.AF_INET:
                    return replace(url, place=each.host)
    if url.scheme == "file":
        path = os.path.realpath(url.place)
        found = _BAR_FILE.search(path)
        if found is not None and found.end() == len(path):
            bar = int(found["bar"])
            return DeviceUrl("pcie", found["function"], bar=bar, offset=url.offset)
        return replace(url, place=path)
    return url


def card_of(url: DeviceUrl) -> str:
    """Return the name of a whole card, of which the URL of the scheme "pcie" is one function."""
    return f"pcie://{url.place.partition('.')[0]}"


def registers_of(url: DeviceUrl) -> str:
    """Return the name of a device's registers, by whatever URL it is named."""
    return f"{canonical(url)} registers"


class DeviceLock:
    """A lock that this process holds until `close`.

    Args:
        name: The device's name.
        shared: Others may have it shared at the same time.
        directory: Of the lock files.

    Attributes:
        file: The open file. A program that inherits it has the lock too, until `close`.

    Raises:
        DeviceBusy: Another has it; names the process that has.
        DeviceFailed: There can be no lock file.
    """

    def __init__(self, name: str, *, shared: bool = False, directory: Path | None = None) -> None:
        folder = lock_directory() if directory is None else directory
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        path = folder / f"afflux-device-{digest}.lock"
        self._path = path
        for n in range(_TRIES):
            try:
                self.file = _open(path)
            except OSError as error:
                why = f"{name}: cannot open its lock {path}: {error.strerror}"
                raise DeviceFailed(why) from None
            try:
                if self._take(name, shared=shared, last=n == _TRIES - 1):
                    break
            except BaseException:
                os.close(self.file)
                raise
            os.close(self.file)
            time.sleep(_PAUSE_S)
        else:
            raise DeviceBusy(f"{name}: others take and leave it all the time (lock {path})")
        self._open = True
        # For the next caller's message. Several that share it overwrite each other.
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, f"{os.getpid()}\n".encode(), 0)

    def _take(self, name: str, *, shared: bool, last: bool) -> bool:
        """Lock the file that is open; return whether that is done, and keeps others out."""
        status = os.fstat(self.file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            # It is written to: it must not be what somebody else calls otherwise.
            raise DeviceFailed(f"{name}: its lock {self._path} was not made by this program")
        try:
            fcntl.flock(self.file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if not last:
                return False
            raise DeviceBusy(
                f"{name} is in use by {_holder(self.file)} on this host: end that first "
                f"(lock {self._path})"
            ) from None
        return self._is_at_its_path()

    def _is_at_its_path(self) -> bool:
        # The last holder has removed it, perhaps after it was opened here: then a lock on it keeps
        # nobody out.
        try:
            return os.path.samestat(os.fstat(self.file), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let others have it. The last holder removes the file."""
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                # Nobody else has it, then, and a process that opens it now finds that it is gone.
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_at_its_path():
                    self._path.unlink()
            # Not by closing alone: a forked child may have inherited the open file.
            with contextlib.suppress(OSError):
                fcntl.flock(self.file, fcntl.LOCK_UN)
            os.close(self.file)


def _open(path: Path) -> int:
    # Linux refuses O_CREAT for a file of somebody else in a folder that all may write to
    # (fs.protected_regular), even to root; and no link may lead elsewhere.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(2):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                file = os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
                # Whatever the umask: other users must be able to lock it.
                os.fchmod(file, _MODE)
                return file
    return os.open(path, flags)


def _holder(file: int) -> str:
    text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    if not text.isdigit():
        return "another process"
    try:
        words = Path(f"/proc/{text}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {text}"
    command = " ".join(word.decode(errors="replace") for word in words).strip()
    return f"process {text} ({command[:80]})" if command else f"process {text}"
