"""Runs a check with a fault in the native worker, in a process of its own.

`python -m tests.support.drivers.faulty_worker LIBRARY MODULE FUNCTION` imports LIBRARY as the
extension and calls the function. The status says what came of it: 0 the check passed,
`CAUGHT_STATUS` it failed as a check does, anything else it could not be run.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.drivers.built_engine import Fault

SOURCES = ROOT / "drivers" / "native"
# Where `make native` compiles.
OBJECTS = ROOT / "build" / "native"
BUILD = ROOT / "build" / "tests" / "worker"
CAUGHT_STATUS = 3
LIMIT_S = 240


def build(name: str, fault: Fault | None) -> Path:
    """The extension with one source of the worker compiled again; all else as it was built."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    bindings = sorted(OBJECTS.glob("CMakeFiles/_native.dir/bindings/*.o"))
    if compiler is None or not bindings:
        raise FileNotFoundError(f"no C++ compiler, or no extension in {OBJECTS}: make native")
    folder = BUILD / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"_native.{os.getpid()}.so"
    changed: list[str] = []
    if fault is not None:
        source = SOURCES / fault.file
        copy = folder / source.name
        copy.write_text(fault.planted(source.read_text()))
        changed = [str(copy)]
    # What stands before the archive is taken in the place of what the archive has.
    archives = [
        str(OBJECTS / f"lib{part}.a")
        for part in ("shared", "worker", "engine", "packet", "codec", "nanobind-static")
    ]
    options = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", f"-I{SOURCES}", "-shared"]
    command = [compiler, *options, *changed, *map(str, bindings), *archives, "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def catches(name: str, fault: Fault | None, check: str) -> bool:
    """Whether the check, `module:function` of `tests.drivers`, fails with this fault."""
    library = build(name, fault)
    try:
        command = [sys.executable, "-m", "tests.support.drivers.faulty_worker", str(library), check]
        status = subprocess.run(command, cwd=ROOT, check=False, timeout=LIMIT_S).returncode
    finally:
        library.unlink()
    assert status in (0, CAUGHT_STATUS), f"{check} could not be run: status {status}"
    return status == CAUGHT_STATUS


def main(library: str, check: str) -> int:
    """Imports the library as the extension, and calls the check. Returns the status."""
    name = "afflux_drivers._native"
    loader = importlib.machinery.ExtensionFileLoader(name, library)
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    package = importlib.import_module("afflux_drivers")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    package._native = module
    where, function = check.split(":")
    called = getattr(importlib.import_module(f"tests.drivers.{where}"), function)
    caught = importlib.import_module("tests.drivers.test_planted_bugs").CAUGHT
    try:
        called()
    except caught as error:
        print(f"caught: {type(error).__name__}: {str(error)[:200]}")
        return CAUGHT_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
