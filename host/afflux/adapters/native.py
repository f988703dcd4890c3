"""The adapter in C++: compiled for the installed torch when a group first needs it, and kept.

It is not a part of the wheel, because torch's C++ interface has no stable form: every version needs
its own. Compiling takes about half a minute, once for each version of torch. One process of a host
compiles, the others wait for it. If it fails, none tries again until compiler, torch or sources are
others, or somebody runs `python -m afflux.adapters.native`.
"""

import functools
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._C._distributed_c10d import Store

import afflux_drivers
from afflux.adapters.default_group import default_group
from afflux.group.call.errors import OperationTimeout
from afflux.group.core import Group
from afflux.group.reducers.reducer import Comparison
from afflux.group.settings.membership import Membership
from afflux.group.shrinking import shrunk
from afflux_drivers import _native
from afflux_sim.rtl.compile.attended import run_attended
from afflux_sim.rtl.compile.cache import (
    BuildError,
    PassingBuildError,
    cached,
    default_folder,
    digest,
)

__all__ = ["AdapterUnavailable", "compiler_flags", "create", "load", "main"]

_SOURCES = Path(__file__).parent / "native"
_MAIN = _SOURCES / "unity.cpp"
_INCLUDES = Path(afflux_drivers.__file__).parent
_NAME = "afflux_torch"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"

_LIMIT_S = 300.0
"""Ten times as long as it takes."""

_PASSING = ("No space left", "Cannot allocate memory", "memory exhausted", "Killed signal")
"""Messages of compilers and linkers about the machine, not about the source."""


class AdapterUnavailable(RuntimeError):
    """The adapter in C++ cannot be had on this machine; the message gives the reason."""


@functools.cache
def load(again: bool = False) -> ModuleType:
    """Return the compiled module, compiled now if it is not there yet.

    Args:
        again: Compile even if this compiler has failed before.

    Raises:
        AdapterUnavailable: There is no compiler, or it does not compile within its time.
    """
    chosen = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not chosen:
        raise AdapterUnavailable("no C++ compiler (g++, c++ or $CXX)")
    compiler = chosen.split()
    if shutil.which(compiler[0]) is None:
        raise AdapterUnavailable(f"no C++ compiler ({compiler[0]})")
    command = [*compiler, *compiler_flags(_NAME)]
    texts = [path.read_text(encoding="utf-8") for path in sorted(_SOURCES.iterdir())]
    texts += [(_INCLUDES / each).read_text(encoding="utf-8") for each in ("c_api.h", "turn.h")]
    key = digest(torch.__version__, _SUFFIX, sys.prefix, *command, *texts)
    folder, build = default_folder("adapter"), functools.partial(_compile, command)
    try:
        made = cached(folder, key, build, tools=_identity(compiler), again=again)
    except (BuildError, OSError) as error:
        raise AdapterUnavailable(str(error)) from error
    return _import(made / f"{_NAME}{_SUFFIX}")


def create(membership: Membership, completions: Any = None) -> Any:
    """Make a group with this adapter, and return the backend.

    Args:
        membership: Of this rank.
        completions: Those who are told of the end of operations; None for nobody yet.

    Raises:
        AdapterUnavailable: See `load`.
        AffluxError: See `Group`.
    """
    module = load()
    parts = _Parts(module, completions)
    core = Group(membership, parts)
    reducer = core.reducer
    calls = None if reducer.native is None else reducer.native.calls()
    only_gloo = reducer.comparison is Comparison.NEVER
    backend = module.AffluxBackend(
        core.rank,
        core.size,
        core,
        core.gloo,
        core.turn,
        calls,
        _native.sum_calls(),
        only_gloo,
        _split,
        _shrink,
        parts.completions,
        OperationTimeout.of_wait,
    )
    core.attach(backend.gloo_counts, backend.let_go)

    def observe(active: bool) -> None:
        backend.observed = active

    core.observers.tell(observe)
    return backend


class _Parts:
    """Turn and Works in C++."""

    def __init__(self, module: ModuleType, completions: Any) -> None:
        # torch's hooks, which are told of the end of what is in flight.
        self.completions = module.Completions() if completions is None else completions
        self.turn = module.Turn
        self.pending_work = functools.partial(
            module.PendingWork, completions=self.completions, timed_out=OperationTimeout.of_wait
        )
        self.finished_work = module.FinishedWork
        self.list_keys = module.list_keys


def _split(core: Group, store: Store, ranks: list[int], timeout: timedelta, name: str) -> Any:
    """Make the group of some of a group's ranks; return None at the others."""
    if core.rank not in ranks:
        return None
    members = [core.global_ranks[rank] for rank in ranks]
    own = ranks.index(core.rank)
    options = core.pg_options
    return create(Membership(store, own, len(ranks), timeout, name, members, options))


def _shrink(core: Group, excluded: list[int], aborts: bool) -> Any:
    """Make the group of the other ranks of a group, and end that."""
    if aborts:
        core.abort()
    made = create(shrunk(core, excluded))
    default_group.replaces(core, made.core)
    core.abort()
    return made


def compiler_flags(name: str) -> list[str]:
    """Return the flags for a module of that name that includes torch's headers."""
    root = Path(torch.__file__).parent
    return [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-shared",
        # torch's headers want it, and warn at length without it.
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-DTORCH_EXTENSION_NAME={name}",
        f"-isystem{root / 'include'}",
        f"-isystem{root / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-isystem{sysconfig.get_path('include')}",
        f"-I{_INCLUDES}",
        f"-L{root / 'lib'}",
    ]


def _identity(compiler: list[str]) -> str:
    """Return a text that changes when a program of the command is another one, or a newer one."""
    found = []
    for word in compiler:
        path = shutil.which(word)
        if path is not None:
            state = Path(path).stat()
            found.append(f"{os.path.realpath(path)} {state.st_size} {state.st_mtime_ns}")
    return "\n".join(found or compiler)


def _compile(command: list[str], folder: Path) -> None:
    # Half a minute of silence looks like a hang, so this goes to the screen, whatever the log does.
    # It comes once for a host: other processes wait for this one.
    _tell(f"compiling the torch adapter for torch {torch.__version__} (once, about 30 s)")
    start_s = time.monotonic()
    target = folder / f"{_NAME}{_SUFFIX}"
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    whole = [*command, str(_MAIN), "-o", str(target), *libraries]
    log = folder / "compiler.log"
    failed = f"{command[0]} does not compile the adapter for torch {torch.__version__}"
    with log.open("w", encoding="utf-8") as output:
        print(*whole, file=output, flush=True)
        try:
            done = run_attended(whole, stdout=output, limit_s=_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise BuildError(f"{failed} within {_LIMIT_S:g} s (log: {log})") from None
    if done.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        cause = next((line for line in said if "error" in line), "\n".join(said[-1:])).strip()
        passing = done.returncode > 128 or any(sign in line for line in said for sign in _PASSING)
        kind = PassingBuildError if passing else BuildError
        raise kind(f"{failed}: {cause or f'status {done.returncode}'} (log: {log})")
    _tell(f"the torch adapter is compiled ({time.monotonic() - start_s:.0f} s)")


def _tell(text: str) -> None:
    print(f"afflux: {text}", file=sys.stderr, flush=True)


def _import(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    if spec is None:
        raise AdapterUnavailable(f"{path} cannot be imported")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise AdapterUnavailable(f"{path}: {error}") from error
    return module


def main() -> int:
    """Compile it, if need be, also if that has failed before; print where it is."""
    try:
        print(load(again=True).__file__)
    except AdapterUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
