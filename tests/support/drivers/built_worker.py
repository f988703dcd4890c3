"""Runs a check with a bug in the native worker, in a process of its own.

`python -m tests.support.drivers.built_worker LIBRARY MODULE:FUNCTION` imports LIBRARY as the
extension and calls the function. The status says what came of it: 0 the check passed,
`CAUGHT_STATUS` it failed as a check does, anything else it could not be run.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from afflux_drivers.errors import AffluxError
from tests.support.checkout import BUILD, ROOT
from tests.support.drivers.native_builds import OBJECTS, copy_source, link
from tests.support.planting import Bug

__all__ = ["CAUGHT", "catches"]

CAUGHT = (AssertionError, AffluxError, IndexError, ValueError, RuntimeError)
"""The signs of a bug: wrong bits or counts, an impossible packet, no end, a crash."""

CAUGHT_STATUS = 3
LIMIT_S = 240


def build(name: str, bug: Bug | None) -> Path:
    """Return the extension with one source of the worker compiled again; all else as it was."""
    # Those of sources that are gone, or have another name now, stay where they were built.
    sources = ROOT / "drivers" / "native" / "bindings"
    objects = sorted(OBJECTS.glob("CMakeFiles/_native.dir/bindings/*.o"))
    bindings = [each for each in objects if (sources / each.stem).exists()]
    if not bindings:
        raise FileNotFoundError(f"no extension in {OBJECTS}: make native")
    folder = BUILD / "tests" / "worker" / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"_native.{os.getpid()}.so"
    changed = [copy_source(folder, bug)] if bug is not None else []
    # In the order of what uses what.
    ours = [
        "costs",
        "hosts",
        "streams",
        "carriers",
        "shared",
        "collectives",
        "worker",
        "c_api",
        "aggregator",
        "datagrams",
        "engine",
        "packet",
        "sums",
        "arithmetic",
        "narrow",
        "rows",
        "selection",
    ]
    link(library, [*changed, *bindings], [*ours, "nanobind-static"], "-O1", "-fPIC", "-shared")
    return library


def catches(name: str, bug: Bug | None, check: str) -> bool:
    """Return whether a check, `module:function`, fails with this bug in the worker."""
    library = build(name, bug)
    try:
        command = [sys.executable, "-m", "tests.support.drivers.built_worker", str(library), check]
        status = subprocess.run(command, cwd=ROOT, check=False, timeout=LIMIT_S).returncode
    finally:
        library.unlink()
    assert status in (0, CAUGHT_STATUS), f"{check} could not be run: status {status}"
    return status == CAUGHT_STATUS


def main(library: str, check: str) -> int:
    """Import the library as the extension, call the check, and return the status."""
    name = "afflux_drivers._native"
    loader = importlib.machinery.ExtensionFileLoader(name, library)
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    package = importlib.import_module("afflux_drivers")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    setattr(package, "_native", module)  # noqa: B010 - the module has no such attribute yet
    where, function = check.split(":")
    called = getattr(importlib.import_module(where), function)
    try:
        called()
    except CAUGHT as error:
        print(f"caught: {type(error).__name__}: {str(error)[:200]}")
        return CAUGHT_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
