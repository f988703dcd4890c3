"""Builds the engine for cocotb, once for each set of parameters, and runs test modules in it."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cocotb_tools import runner

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.build.cache import BuildError, cached, digest
from afflux_sim.rtl.build.initial_values import loops_for_initial_values
from afflux_sim.rtl.build.toolchain import Toolchain, find_toolchain
from afflux_sim.rtl.build.verilog_cache import engine_verilog

__all__ = ["build_simulator", "run_module"]

TOP = "afflux_engine"
# Only the pins need to be visible from Python. cocotb makes all signals so, which costs speed.
PUBLIC_FLAGS = ("--public-depth", "1")
BUILD_FLAGS = (
    *("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-timing"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *("-CFLAGS", "-std=c++20"),
)
# The test bench, which is Python, is what takes the time.
OPTIMISATION = {"OPT_FAST": "-O1", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}


class Verilator(runner.Verilator):
    """cocotb's runner, with only the engine's pins public."""

    def _build_command(self) -> list[list[str]]:
        (verilate, make) = super()._build_command()
        at = verilate.index("--public-flat-rw")
        verilate[at : at + 1] = PUBLIC_FLAGS
        return [verilate, [*make, *(f"{name}={value}" for name, value in OPTIMISATION.items())]]


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    # The runner takes the process's environment and offers no other way.
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def build_simulator(folder: Path, parameters: Parameters) -> Path:
    """Return the build folder of the engine with `parameters`, from the cache if it is there.

    Args:
        folder: The cache.
        parameters: What the engine is built for.

    Raises:
        BuildError: If the build fails; the message names the log.
        ToolchainError: If a tool is missing.
    """
    toolchain = find_toolchain()
    verilog = loops_for_initial_values(engine_verilog(folder, parameters))
    name = digest(
        "cocotb",
        verilog,
        toolchain.verilator_version,
        toolchain.compiler_identity,
        repr((PUBLIC_FLAGS, BUILD_FLAGS, OPTIMISATION)),
    )
    return cached(folder, name, partial(_build, toolchain, verilog))


def _build(toolchain: Toolchain, verilog: str, work: Path) -> None:
    source = work / "engine.v"
    source.write_text(verilog, encoding="utf-8")
    log = work / "build.log"
    with _environment(toolchain.runner_environment()):
        try:
            Verilator().build(
                sources=[source],
                hdl_toplevel=TOP,
                build_dir=work / "model",
                build_args=BUILD_FLAGS,
                timescale=("1ns", "1ps"),
                log_file=log,
            )
        except (Exception, SystemExit) as error:
            ending = "\n".join(log.read_text(encoding="utf-8").splitlines()[-12:])
            raise BuildError(f"cocotb's build failed. Whole log: {log}\n{ending}") from error
    (work / TOP).write_bytes((work / "model" / TOP).read_bytes())
    (work / TOP).chmod(0o755)
    shutil.rmtree(work / "model")


def run_module(
    build: Path, results: Path, module: str, *, tests: Sequence[str] = (), seed: int = 1
) -> None:
    """Run the cocotb tests of a module in a simulator process of its own.

    Args:
        build: From `build_simulator`.
        results: Folder for cocotb's results; made if it is not there.
        module: Name that the module is imported by.
        tests: Names of the tests to run; all, if empty.
        seed: cocotb's random seed, which it prints.

    Raises:
        AssertionError: If a test fails. The simulator's output says which and why.
    """
    results.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain()
    file = results / "results.xml"
    with _environment(toolchain.runner_environment()), suppress(SystemExit):
        # It exits if a test has failed; the results show that too, and which one.
        Verilator().test(
            test_module=module,
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            build_dir=build,
            test_dir=results,
            results_xml=str(file),
            testcase=list(tests) or None,
            seed=seed,
        )
    ran, failed = runner.get_results(file)
    assert ran > 0, f"no test ran in {module}"
    assert failed == 0, f"{failed} of {ran} tests of {module} failed"
