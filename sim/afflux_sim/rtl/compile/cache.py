"""A folder of build results, each made once and named by a digest of all that went into it.

Several processes may ask for the same result at the same moment: one builds, the others wait. A
result appears under its name only when it is whole, so a build that was cut off leaves nothing that
a later one could take for a result.

    NAME             the result; NAME is a digest
    NAME.lock        locked while somebody builds it
    NAME.<8 signs>   what is being built, and remains if the builder is killed
    NAME.failed      the last build that failed; `remembered` in it says with what tools, and why
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BuildError", "PassingBuildError", "cached", "default_folder", "digest"]

_REMAINS = re.compile(r"([0-9a-f]{32})\.[a-z0-9_]{8}")
"""A digest, and what `mkdtemp` appends."""

_REMEMBERED = "remembered"


class BuildError(RuntimeError):
    """A build failed. The message names the log, which is kept."""


class PassingBuildError(BuildError):
    """A build failed for a reason that may pass: memory, disk, a signal. It is never remembered."""


def default_folder(kind: str = "verilated") -> Path:
    """Return the folder where results are kept.

    `AFFLUX_CACHE` if it is set; `build/<kind>` when this file lies in a source checkout; else
    `afflux` in the user's cache directory (XDG Base Directory Specification).
    """
    chosen = os.environ.get("AFFLUX_CACHE")
    if chosen:
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "pyproject.toml").is_file() and (checkout / "hdl").is_dir():
        return checkout / "build" / kind
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "afflux"


def digest(*parts: str) -> str:
    """Name the result that `parts` determine. No two lists of parts give the same text."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:32]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock is the open file's, so it is released when the process ends, however it ends. The
    # file itself stays: were it removed, two processes could hold locks on two files of this name.
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_remains(folder: Path, own: str) -> None:
    """Remove what killed builds have left: folders whose name's lock nobody holds.

    Args:
        folder: Of the results.
        own: The name whose lock the caller holds.
    """
    remains: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        parts = _REMAINS.fullmatch(path.name)
        if parts is not None and path.is_dir() and not path.is_symlink():
            remains.setdefault(parts[1], []).append(path)
    for name, paths in remains.items():
        with contextlib.suppress(OSError):
            if name == own:
                _remove(paths)
                continue
            # Without its lock it is not known to be a build's.
            with (folder / f"{name}.lock").open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(paths)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        # A compiler that has outlived its builder may still write to it: the next build removes it.
        shutil.rmtree(path, ignore_errors=True)


def cached(
    folder: Path,
    name: str,
    build: Callable[[Path], None],
    *,
    tools: str = "",
    again: bool = False,
) -> Path:
    """Return the result `name`, a folder in `folder`; `build` fills it if it is not there yet.

    `build` is given a new folder to fill. If it fails, its folder is kept as `NAME.failed`.

    Args:
        folder: Of the results.
        name: Of this one.
        build: Fills the folder that it is given.
        tools: Names and versions of the build's tools. If given, a failure is remembered: as long
            as they are the same, the next calls raise it at once. If not, they try again.
        again: Try again in any case.

    Raises:
        BuildError: From `build`, with the paths in its message as they are after the failure.
    """
    result, failed = folder / name, folder / f"{name}.failed"
    if result.is_dir():
        return result
    if tools and not again:
        _raise_remembered(failed, tools)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{name}.lock"):
        if result.is_dir():
            return result
        if tools and not again:
            # Another process has tried while this one waited for it.
            _raise_remembered(failed, tools)
        _remove_remains(folder, name)
        # In the same folder, because a rename is atomic only within a file system.
        work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder))
        try:
            build(work)
        except BaseException as error:
            text = str(error).replace(str(work), str(failed))
            if tools and isinstance(error, BuildError) and not isinstance(error, PassingBuildError):
                (work / _REMEMBERED).write_text(f"{digest(tools)}\n{text}", encoding="utf-8")
            shutil.rmtree(failed, ignore_errors=True)
            work.rename(failed)
            if isinstance(error, BuildError):
                raise type(error)(text) from None
            raise
        shutil.rmtree(failed, ignore_errors=True)
        work.rename(result)
    return result


def _raise_remembered(failed: Path, tools: str) -> None:
    try:
        known, _, text = (failed / _REMEMBERED).read_text(encoding="utf-8").partition("\n")
    except OSError:
        return
    if known == digest(tools):
        raise BuildError(text)
