"""Builds engine and node for cocotb, once for each set of parameters, and runs tests in them."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cocotb_tools import runner

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.build.cache import BuildError, cached, default_folder, digest
from afflux_sim.rtl.build.initial_values import loops_for_initial_values
from afflux_sim.rtl.build.toolchain import Toolchain, find_toolchain
from afflux_sim.rtl.build.verilator import ENGINE, NODE
from afflux_sim.rtl.build.verilog_cache import engine_verilog, node_verilog

__all__ = ["build_simulator", "build_verilog", "run_module"]

# Only the pins need to be visible from Python. cocotb makes all signals so, which costs speed.
PUBLIC_FLAGS = ("--public-depth", "1")
BUILD_FLAGS = (
    *("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-timing"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *("-CFLAGS", "-std=c++20"),
)
# The testbench, which is Python, is what takes the time.
OPTIMISATION = {"OPT_FAST": "-O1", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}


# A model is compiled as one unit: most of its files hold little but the same headers.
UNITS = {"VM_PARALLEL_BUILDS": "0"}
RUNTIME = ("verilated.o", "verilated_vpi.o", "verilated_threads.o")
NO_MODEL = "module nothing(input clk, output q); assign q = clk; endmodule\n"


class Verilator(runner.Verilator):
    """cocotb's runner, with only the top module's pins public, and with a runtime compiled before.

    Args:
        runtime: Folder with Verilator's runtime; compiled with the model if None.
    """

    def __init__(self, runtime: Path | None = None) -> None:
        super().__init__()
        self._runtime = runtime

    def _build_command(self) -> list[list[str]]:
        (verilate, make) = super()._build_command()
        at = verilate.index("--public-flat-rw")
        verilate[at : at + 1] = PUBLIC_FLAGS
        variables = OPTIMISATION | UNITS
        if self._runtime is not None:
            objects = " ".join(str(self._runtime / name) for name in RUNTIME)
            variables |= {"VK_GLOBAL_OBJS": "", "LOADLIBES": objects}
        return [verilate, [*make, *(f"{name}={value}" for name, value in variables.items())]]


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


def build_simulator(folder: Path, parameters: Parameters | NodeParameters) -> Path:
    """Return the build folder of the engine, or node, with `parameters`, from the cache if there.

    Args:
        folder: The cache. The Verilog comes from where the in-process simulation keeps its own.
        parameters: What the engine or node is built for.

    Raises:
        BuildError: If the build fails; the message names the log.
        ToolchainError: If a tool is missing.
    """
    if isinstance(parameters, NodeParameters):
        return build_verilog(folder, node_verilog(default_folder(), parameters), NODE.top)
    return build_verilog(folder, engine_verilog(default_folder(), parameters), ENGINE.top)


def build_verilog(folder: Path, text: str, top: str) -> Path:
    """Return the build folder of the Verilog `text`, whose top module is `top`, likewise."""
    toolchain = find_toolchain()
    verilog = loops_for_initial_values(text)
    name = digest("cocotb", verilog, *_identity(toolchain))
    return cached(folder, name, partial(_build_model, toolchain, folder, verilog, top))


def _identity(toolchain: Toolchain) -> Sequence[str]:
    """Return all that decides what a build makes of a Verilog text."""
    flags = repr((PUBLIC_FLAGS, BUILD_FLAGS, OPTIMISATION, UNITS))
    return toolchain.verilator_version, toolchain.compiler_identity, flags


def _build_model(toolchain: Toolchain, folder: Path, verilog: str, top: str, work: Path) -> None:
    """Compile the simulator of a Verilog text into `work`, where it has the name of its module.

    Args:
        toolchain: What to build with.
        folder: The cache, in which the runtime of all models is.
        verilog: The text.
        top: Name of the module.
        work: A new folder.

    Raises:
        BuildError: If the build fails; the message names the log.
    """
    runtime = cached(
        folder,
        digest("cocotb's runtime", *_identity(toolchain)),
        partial(_build_runtime, toolchain),
    )
    _compile(Verilator(runtime), toolchain, verilog, top, work)
    shutil.copy(work / "model" / top, work / top)
    shutil.rmtree(work / "model")


def _build_runtime(toolchain: Toolchain, work: Path) -> None:
    """Compile what is the same for every model, by way of one that is nothing else."""
    _compile(Verilator(), toolchain, NO_MODEL, "nothing", work)
    for name in RUNTIME:
        shutil.copy(work / "model" / name, work / name)
    shutil.rmtree(work / "model")


def _compile(
    verilator: Verilator, toolchain: Toolchain, verilog: str, top: str, work: Path
) -> None:
    source = work / f"{top}.v"
    source.write_text(verilog, encoding="utf-8")
    log = work / "build.log"
    with _environment(toolchain.runner_environment()):
        try:
            verilator.build(
                sources=[source],
                hdl_toplevel=top,
                build_dir=work / "model",
                build_args=BUILD_FLAGS,
                timescale=("1ns", "1ps"),
                log_file=log,
            )
        except (Exception, SystemExit) as error:
            ending = "\n".join(log.read_text(encoding="utf-8").splitlines()[-12:])
            raise BuildError(f"cocotb's build failed. Whole log: {log}\n{ending}") from error


def run_module(
    build: Path,
    results: Path,
    module: str,
    *,
    top: str | None = None,
    tests: Sequence[str] = (),
    seed: int = 1,
    plusargs: Sequence[str] = (),
) -> None:
    """Run the cocotb tests of a module in a simulator process of its own.

    Args:
        build: From `build_simulator`.
        results: Folder for cocotb's results; made if it is not there.
        module: Name that the module is imported by.
        top: The top module, if it is neither the engine's nor the node's.
        tests: Names of the tests to run; all, if empty.
        seed: cocotb's random seed, which it prints.
        plusargs: Arguments of the simulator that the Verilog looks at.

    Raises:
        AssertionError: If a test fails. The simulator's output shows which and why.
    """
    results.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain()
    # The simulator stands in its folder under the name of its module.
    if top is None:
        (top,) = (model.top for model in (ENGINE, NODE) if (build / model.top).exists())
    file = results / "results.xml"
    with _environment(toolchain.runner_environment()), suppress(SystemExit):
        # It exits if a test has failed; the results show that too, and which one.
        Verilator().test(
            test_module=module,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=build,
            test_dir=results,
            results_xml=str(file),
            testcase=list(tests) or None,
            seed=seed,
            plusargs=list(plusargs),
        )
    ran, failed = runner.get_results(file)
    assert ran > 0, f"no test ran in {module}"
    assert failed == 0, f"{failed} of {ran} tests of {module} failed"
