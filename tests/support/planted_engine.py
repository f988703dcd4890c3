"""Verilog of the engine from a copy of its sources, with a bug planted in them or without."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import afflux_hdl
from tests.support.planting import Bug, copy_package
from tests.support.shadow import environment_with

__all__ = ["engine_verilog"]


def engine_verilog(
    folder: Path, bug: Bug | None, bus_bits: int, build: Mapping[str, object], *more: Bug
) -> str:
    """Return the Verilog.

    Args:
        folder: Where the copy goes; what is there is removed.
        bug: The bug; its file is given below `afflux_hdl`.
        bus_bits: Width of the bus.
        build: The other parameters of the engine, by name.
        more: Further bugs.
    """
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(afflux_hdl, folder, bug)
    for each in more:
        path = folder / afflux_hdl.__name__ / each.file
        path.write_text(each.planted_in(path.read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "-m", "afflux_hdl.engine.verilog", "-o", str(folder)]
    for name, value in {"bus_bits": bus_bits, **build}.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    subprocess.run(command, env=environment_with(folder), check=True, capture_output=True)
    return (folder / "afflux_engine.v").read_text()
