"""A folder of build results, each made once and named by a digest of all that went into it.

Several processes may ask for the same result at the same moment: one builds, the others wait. A
result appears under its name only when it is whole, so a build that was cut off leaves nothing that
a later one could take for a result.

    NAME             the result; NAME is a digest
    NAME.lock        locked while somebody builds it
    NAME.<8 signs>   what is being built, and remains if the builder is killed
    NAME.failed      the last build that failed
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

__all__ = ["BuildError", "cached", "default_folder", "digest"]

_REMAINS = re.compile(r"([0-9a-f]{32})\.[a-z0-9_]{8}")
"""A digest, and what `mkdtemp` appends."""


class BuildError(RuntimeError):
    """A build failed. The message names the log, which is kept."""


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


def cached(folder: Path, name: str, build: Callable[[Path], None]) -> Path:
    """Return the result `name`, a folder in `folder`; `build` fills it if it is not there yet.

    `build` is given a new folder to fill. If it fails, its folder is kept as `NAME.failed`,
    and the next call tries again.

    Raises:
        BuildError: From `build`, with the paths in its message as they are after the failure.
    """
    result = folder / name
    if result.is_dir():
        return result
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{name}.lock"):
        if result.is_dir():
            return result
        _remove_remains(folder, name)
        # In the same folder, because a rename is atomic only within a file system.
        work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder))
        try:
            build(work)
        except BaseException as error:
            failed = folder / f"{name}.failed"
            shutil.rmtree(failed, ignore_errors=True)
            work.rename(failed)
            if isinstance(error, BuildError):
                raise BuildError(str(error).replace(str(work), str(failed))) from None
            raise
        work.rename(result)
    return result
