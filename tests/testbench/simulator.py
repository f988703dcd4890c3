"""Builds engine and node for cocotb, once for each set of parameters, and runs tests in them.

`WAVES=1` in the environment has every run write its waves, by a model that is built for that;
`WAVES_FORMAT` is fst, or vcd for text, which is many times as large.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from cocotb_tools import runner

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.compile.cache import BuildError, cached, default_folder, digest
from afflux_sim.rtl.compile.initial_values import loops_for_initial_values
from afflux_sim.rtl.compile.toolchain import Toolchain, find_toolchain
from afflux_sim.rtl.compile.verilator import (
    ENGINE,
    NODE,
    PACKING,
    QUICK_VERILATOR_FLAGS,
    TRACE_FLAGS,
    waves_text,
)
from afflux_sim.rtl.compile.verilog_cache import engine_verilog, node_verilog
from afflux_sim.rtl.waves import FORMATS

__all__ = ["build_simulator", "build_verilog", "run_module"]

# Only the pins need to be visible from Python. cocotb makes all signals so, which costs speed.
PUBLIC_FLAGS = ("--public-depth", "1")
BUILD_FLAGS = (
    *("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-timing"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *("-CFLAGS", "-std=c++20"),
    # As in the quick build of the models in process.
    *QUICK_VERILATOR_FLAGS,
)
# The testbench, which is Python, is what takes the time.
OPTIMISATION = {"OPT_FAST": "-Og", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-Og"}


# A model is compiled as one unit: most of its files hold little but the same headers.
UNITS = {"VM_PARALLEL_BUILDS": "0"}
RUNTIME = ("verilated.o", "verilated_vpi.o", "verilated_threads.o")
NO_MODEL = "module nothing(input clk, output q); assign q = clk; endmodule\n"

_ENTRY = "tests.testbench.termination:start"
_END_TIMEOUT_S = 10.0
"""For a simulator that is told to end, and has its waves to complete."""


def waves_format() -> str | None:
    """Return the format in which the environment asks for waves; None if it does not.

    Raises:
        ValueError: WAVES or WAVES_FORMAT is something that it cannot be.
    """
    wish = os.environ.get("WAVES") or "0"
    if wish not in ("0", "1"):
        raise ValueError(f"WAVES is {wish!r}; it can be 1 (write waves) or 0")
    form = os.environ.get("WAVES_FORMAT") or FORMATS[0]
    if form not in FORMATS:
        raise ValueError(f"WAVES_FORMAT is {form!r}; it can be {' or '.join(FORMATS)}")
    return form if wish == "1" else None


class Verilator(runner.Verilator):
    """cocotb's runner, with only the top module's pins public, and with a runtime compiled before.

    Args:
        waves: Format of the waves that the model writes, or None.
        runtime: Folder with Verilator's runtime; compiled with the model if None.
    """

    def __init__(self, waves: str | None, runtime: Path | None = None) -> None:
        super().__init__()
        self._format = waves
        self._runtime = runtime

    def _waves_file(self) -> str:
        return _waves_name(self._format or "")

    def _build_command(self) -> list[list[str]]:
        (verilate, make) = super()._build_command()
        at = verilate.index("--public-flat-rw")
        verilate[at : at + 1] = PUBLIC_FLAGS
        variables = OPTIMISATION | UNITS
        if self._format is not None:
            at = verilate.index("--trace")
            verilate[at : at + 1] = _trace_flags(self._format)
        if self._format == "fst":
            # Without liblz4 and zlib, which its makefile would link: the headers in PACKING do.
            variables["LDLIBS"] = verilate[verilate.index("-LDFLAGS") + 1]
        if self._runtime is not None:
            objects = " ".join(str(self._runtime / name) for name in _runtime(self._format))
            variables |= {"VK_GLOBAL_OBJS": "", "LOADLIBES": objects}
        return [verilate, [*make, *(f"{name}={value}" for name, value in variables.items())]]

    def _execute_cmds(
        self, cmds: Sequence[Sequence[str]], cwd: Path, stdout: IO[str] | None = None
    ) -> None:
        if self._format is None:
            super()._execute_cmds(cmds, cwd, stdout)
            return
        # As there, but what is interrupted, as by a test's time limit, may complete its waves.
        stderr = None if stdout is None else subprocess.STDOUT
        for command in cmds:
            with subprocess.Popen(
                command, cwd=cwd, env=self.env, stdout=stdout, stderr=stderr
            ) as process:
                try:
                    status = process.wait()
                except BaseException:
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_END_TIMEOUT_S)
                    process.kill()
                    raise
            if status != 0:
                raise RuntimeError(f"Command failed with return code: {status}")


def _waves_name(waves: str) -> str:
    """Return the name of the file that the simulator writes into the folder of its results."""
    return f"dump.{waves}"


def _runtime(waves: str | None) -> tuple[str, ...]:
    return RUNTIME if waves is None else (*RUNTIME, f"verilated_{waves}_c.o")


def _trace_flags(waves: str | None) -> tuple[str, ...]:
    if waves is None:
        return ()
    return (f"--trace-{waves}", *TRACE_FLAGS, "-CFLAGS", f"-isystem{PACKING}")


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
        parameters: The sizes of the engine or node.

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
    waves = waves_format()
    verilog = loops_for_initial_values(text)
    name = digest("cocotb", verilog, *_identity(toolchain, waves))
    return cached(folder, name, partial(_build_model, toolchain, waves, folder, verilog, top))


def _identity(toolchain: Toolchain, waves: str | None) -> Sequence[str]:
    """Return all that decides what a build makes of a Verilog text."""
    flags = repr((PUBLIC_FLAGS, BUILD_FLAGS, OPTIMISATION, UNITS))
    with_waves = () if waves is None else (waves, waves_text(), repr(TRACE_FLAGS))
    return toolchain.verilator_version, toolchain.compiler_identity, flags, *with_waves


def _build_model(
    toolchain: Toolchain, waves: str | None, folder: Path, verilog: str, top: str, work: Path
) -> None:
    """Compile the simulator of a Verilog text into `work`, where it has the name of its module.

    Args:
        toolchain: The tools of the build.
        waves: Format of the waves that it writes, or None.
        folder: The cache, in which the runtime of all models is.
        verilog: The text.
        top: Name of the module.
        work: A new folder.

    Raises:
        BuildError: If the build fails; the message names the log.
    """
    runtime = cached(
        folder,
        digest("cocotb's runtime", *_identity(toolchain, waves)),
        partial(_build_runtime, toolchain, waves),
    )
    _compile(Verilator(waves, runtime), toolchain, verilog, top, work)
    shutil.copy(work / "model" / top, work / top)
    shutil.rmtree(work / "model")


def _build_runtime(toolchain: Toolchain, waves: str | None, work: Path) -> None:
    """Compile what is the same for every model, by way of one that is nothing else."""
    _compile(Verilator(waves), toolchain, NO_MODEL, "nothing", work)
    for name in _runtime(waves):
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
        AssertionError: If a test fails. The simulator's output shows which and why; the message
            says where the waves are, or how to get them.
    """
    results.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain()
    waves = waves_format()
    environment = toolchain.runner_environment()
    if waves is not None:
        (results / _waves_name(waves)).unlink(missing_ok=True)
        environment["PYGPI_USERS"] = _ENTRY
    # The simulator stands in its folder under the name of its module.
    if top is None:
        (top,) = (model.top for model in (ENGINE, NODE) if (build / model.top).exists())
    file = results / "results.xml"
    with _environment(environment), _noting(results, waves):
        # It exits if a test has failed; the results show that too, and which one.
        with suppress(SystemExit):
            Verilator(waves).test(
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
        assert not tests or ran == len(tests), f"{ran} tests of {module} ran, not {len(tests)}"
        assert failed == 0, f"{failed} of {ran} tests of {module} failed"


@contextmanager
def _noting(results: Path, waves: str | None) -> Iterator[None]:
    """Have an error say where the waves are, or how to get them."""
    try:
        yield
    except BaseException as error:
        if waves is None:
            error.add_note("WAVES=1 in the environment has the same test write its waves")
        else:
            error.add_note(f"waves: {(results / _waves_name(waves)).absolute()}")
        raise
