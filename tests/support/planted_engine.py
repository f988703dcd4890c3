"""The engine from a copy of its sources, with a bug planted in them: its Verilog, or simulated."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import afflux_hdl
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.support.checkout import BUILD
from tests.support.planting import Bug, copy_package
from tests.support.shadow import environment_with

__all__ = ["bug_is_found", "engine_verilog", "planted_engine"]


def engine_verilog(
    folder: Path, bug: Bug | None, bus_bits: int, build: Mapping[str, object], *more: Bug
) -> str:
    """Return the Verilog.

    Args:
        folder: The place of the copy; its old content is removed.
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


@contextmanager
def planted_engine(
    name: str, bug: Bug, bus_bits: int, build: Mapping[str, object], *more: Bug
) -> Iterator[VerilatedEngine]:
    """Open a simulated engine with a bug.

    Args:
        name: Of the copy of the sources, below `build/tests/planted`; no two bugs have the same.
        bug: The bug; its file is given below `afflux_hdl`.
        bus_bits: Width of the bus.
        build: The other parameters of the engine, by name.
        more: Further bugs.
    """
    folder = BUILD / "tests" / "planted" / name.replace(" ", "-")
    verilog = engine_verilog(folder, bug, bus_bits, build, *more)
    with VerilatedEngine.from_verilog(verilog, bus_bits) as engine:
        yield engine


@contextmanager
def bug_is_found(
    name: str, bug: Bug, bus_bits: int, build: Mapping[str, object]
) -> Iterator[VerilatedEngine]:
    """Open a simulated engine with a bug, for a check that must fail; print how it does.

    For the arguments see `planted_engine`. An engine that the bug keeps from being built is not one
    that a check has found it in.
    """
    with planted_engine(name, bug, bus_bits, build) as engine:
        with pytest.raises((AssertionError, SimulationError)) as caught:
            yield engine
        print(f"{name}: {str(caught.value)[:300]}")
