"""From Verilog to a shared library with the C interface of a shim, for engine, node and board."""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from afflux_sim.rtl.compile.attended import end_attended, run_attended
from afflux_sim.rtl.compile.cache import BuildError, cached, digest
from afflux_sim.rtl.compile.initial_values import loops_for_initial_values
from afflux_sim.rtl.compile.toolchain import Toolchain

__all__ = ["BOARD", "ENGINE", "NODE", "Model", "build_library", "shim_text"]


@dataclass(frozen=True)
class Model:
    """The simulated design, and its driver.

    Attributes:
        top: The Verilog's top module.
        prefix: Name of the C++ class that Verilator makes of it.
        shim: The C interface, which includes that class.
        cells: Verilog of what the design takes from its target's library; None: nothing.
    """

    top: str
    prefix: str
    shim: Path
    cells: Path | None = None


_SHIMS = Path(__file__).parents[1]
_HEADERS = sorted(_SHIMS.glob("*.hpp"))
ENGINE = Model("afflux_engine", "VAffluxEngine", _SHIMS / "shim.cpp")
NODE = Model("afflux_node", "VAffluxNode", _SHIMS / "node_shim.cpp")
BOARD = Model(
    "afflux_rgmii", "VAffluxBoard", _SHIMS / "board_shim.cpp", cells=_SHIMS / "ecp5_cells.v"
)

VERILATOR_FLAGS = (
    "--cc",
    "-O3",
    # Amaranth gives everything an initial value, so x never occurs; a random start costs only time.
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-timing",
    "-Wno-fatal",
    # The style of generated Verilog does not matter.
    "-Wno-lint",
    "-Wno-style",
)
# VL_USER_FATAL: the shim has its own handler, which does not end the process.
COMPILER_FLAGS = ("-std=c++20", "-fPIC", "-pthread", "-DVL_USER_FATAL")
SHIM_FLAGS = ("-O3", "-march=native", "-Wall", "-Wextra")
# Straight-line code as long as this runs better if it spares the instruction cache.
# -O3 does not make the model faster, but it makes the compiler twice as slow.
MODEL_FLAGS = ("-O2", "-march=native", "-w")
# Code that runs once, at start, or never is not worth the compiler's time.
COLD_FLAGS = ("-Og", "-w")
# With these the model is a sixth slower, and compiles, in one unit, in half the time. -O1 takes the
# compiler a fifth longer, and the model runs no faster.
QUICK_FLAGS = ("-Og", "-march=native", "-w")
# The compiler's time grows faster than a function: shorter ones save a third of it.
QUICK_VERILATOR_FLAGS = ("--output-split-cfuncs", "300")
COLD_BEGINS = '#pragma GCC push_options\n#pragma GCC optimize ("O0")\n'
COLD_ENDS = "#pragma GCC pop_options\n"
RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
_ALL_FLAGS = (
    *(VERILATOR_FLAGS, COMPILER_FLAGS, SHIM_FLAGS, MODEL_FLAGS, COLD_FLAGS),
    *(QUICK_FLAGS, QUICK_VERILATOR_FLAGS, COLD_BEGINS),
)


@dataclass(frozen=True)
class Extras:
    """Flags beyond those above, for a library that can do more than run."""

    verilator: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()


NO_EXTRAS = Extras()
# Line and toggle coverage: the model is several times as large and as slow. Without optimisation
# it is slower still, so that checks of many cycles would take minutes instead of seconds.
COVERAGE = Extras(
    ("--coverage-line", "--coverage-toggle"), ("-DVM_COVERAGE=1", "-O1"), ("verilated_cov.cpp",)
)
# Verilator leaves out what is wider than 256 bits, as the streams of a wide bus are.
TRACE_FLAGS = ("--trace-max-width", "65536")
PACKING = _SHIMS / "packing"
"""Headers of what FST is packed with: it needs no library of the system."""
WAVES = {
    "vcd": Extras(("--trace-vcd", *TRACE_FLAGS), ("-DVM_TRACE=1",), ("verilated_vcd_c.cpp",)),
    "fst": Extras(
        ("--trace-fst", *TRACE_FLAGS),
        ("-DVM_TRACE=1", "-DVM_TRACE_FST=1"),
        ("verilated_fst_c.cpp",),
    ),
}
"""The additions to the build of a model that writes waves, for each format."""


def waves_text() -> str:
    """Return what the headers say that only models with waves include."""
    paths = (_SHIMS / "waves.hpp", *sorted(PACKING.glob("*.h")))
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def shim_text(model: Model) -> str:
    """Return what a model's shim says, with the headers of all of them."""
    return "".join(path.read_text(encoding="utf-8") for path in (*_HEADERS, model.shim))


def build_library(
    toolchain: Toolchain,
    folder: Path,
    verilog: str,
    bus_bits: int,
    *,
    coverage: bool = False,
    waves: str | None = None,
    model: Model = ENGINE,
    quick: bool | None = None,
) -> Path:
    """Return the shared library for `verilog`, from the cache in `folder` if it is there.

    Args:
        toolchain: The tools of the build.
        folder: The cache.
        verilog: Text that defines the model's top module, with its ports.
        bus_bits: Width of that module's packet streams.
        coverage: The library collects line and toggle coverage, which the engine's shim writes out.
        waves: The library writes the engine's waves in this format, "vcd" or "fst"; not both this
            and coverage.
        model: The design that the Verilog describes.
        quick: Build quickly rather than a fast model; `None`: as AFFLUX_BUILD says.

    Raises:
        BuildError: If Verilator or the compiler fails; the log is kept and named.
        ValueError: If AFFLUX_BUILD is something else than `fast` or `quick`.
    """
    verilog = loops_for_initial_values(verilog)
    if model.cells is not None:
        verilog += model.cells.read_text(encoding="utf-8")
    extras = COVERAGE if coverage else NO_EXTRAS if waves is None else WAVES[waves]
    quick = _is_quick() if quick is None else quick
    name = _digest(
        toolchain, extras, "library", verilog, str(bus_bits), shim_text(model), str(quick)
    )

    def build(work: Path) -> None:
        (work / "engine.v").write_text(verilog, encoding="utf-8")
        sources = work / "model"
        _verilate(toolchain, extras, model, work, sources, quick)
        units = _one_unit(sources, model.shim) if quick else _units(sources, model.shim)
        objects = _compile_model(toolchain, extras, work / "build.log", units, bus_bits)
        objects += _runtime(toolchain, NO_EXTRAS, folder, RUNTIME)
        if extras.runtime:
            objects += _runtime(toolchain, extras, folder, extras.runtime)
        command = [*toolchain.compiler, "-shared", "-pthread", "-o", str(work / "engine.so")]
        _run([*command, *map(str, objects)], work / "build.log", dict(os.environ))
        # Tens of megabytes that are not needed again. The Verilog and the log stay.
        shutil.rmtree(sources)

    return cached(folder, name, build) / "engine.so"


def _digest(toolchain: Toolchain, extras: Extras, *parts: str) -> str:
    return digest(
        *parts,
        toolchain.verilator_version,
        shlex.join(toolchain.compiler),
        toolchain.compiler_identity,
        repr(_ALL_FLAGS),
        repr(extras),
        *([waves_text()] if extras in WAVES.values() else []),
    )


def _verilate(
    toolchain: Toolchain, extras: Extras, model: Model, work: Path, sources: Path, quick: bool
) -> None:
    command = [*toolchain.verilator_command, *VERILATOR_FLAGS, *extras.verilator]
    if quick:
        command += QUICK_VERILATOR_FLAGS
    command += ["--top-module", model.top]
    command += ["--prefix", model.prefix, "--Mdir", str(sources), str(work / "engine.v")]
    _run(command, work / "build.log", toolchain.environment())


def _is_quick() -> bool:
    """Return whether AFFLUX_BUILD asks for a quick build rather than for a fast model."""
    wish = os.environ.get("AFFLUX_BUILD", "fast")
    if wish not in ("fast", "quick"):
        raise ValueError(f"AFFLUX_BUILD is {wish!r}; it can be 'fast' (a fast model) or 'quick'")
    return wish == "quick"


def _unit(folder: Path, name: str, sources: list[Path], cold: Sequence[Path] = ()) -> Path:
    """Write one file that includes these, and those that are not worth optimising after them.

    Most of them hold little but the same headers, which are then read once.
    """
    unit = folder / f"{name}.cpp"
    lines = [f'#include "{source}"\n' for source in sources]
    if cold:
        lines += [COLD_BEGINS, *(f'#include "{source}"\n' for source in cold), COLD_ENDS]
    unit.write_text("".join(lines))
    return unit


def _hot_and_cold(folder: Path) -> tuple[list[Path], list[Path]]:
    written = sorted(folder.glob("*.cpp"))
    cold = [source for source in written if source.stem.endswith("__Slow")]
    return [source for source in written if source not in cold], cold


def _units(folder: Path, shim: Path) -> dict[Path, tuple[str, ...]]:
    """Return what to compile with which flags, longest first, lest it end on one core alone."""
    hot, cold = _hot_and_cold(folder)
    return {
        _unit(folder, "hot", hot): MODEL_FLAGS,
        _unit(folder, "cold", cold): COLD_FLAGS,
        shim: SHIM_FLAGS,
    }


def _one_unit(folder: Path, shim: Path) -> dict[Path, tuple[str, ...]]:
    """Return what `_units` does, for a quick build: all in one, so that headers are read once."""
    hot, cold = _hot_and_cold(folder)
    return {_unit(folder, "all", [*hot, shim], cold): QUICK_FLAGS}


def _compile_model(
    toolchain: Toolchain,
    extras: Extras,
    log: Path,
    units: dict[Path, tuple[str, ...]],
    bus_bits: int,
) -> list[Path]:
    model = next(iter(units)).parent

    def compile_one(source: Path) -> Path:
        target = model / f"{source.stem}.o"
        # As system headers, so that warnings about them do not hide those about the shim.
        where = [f"-isystem{model}", f"-DBUS_BYTES={bus_bits // 8}"]
        _compile(toolchain, log, source, target, [*units[source], *extras.compiler, *where])
        return target

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            return list(pool.map(compile_one, units))
        except (KeyboardInterrupt, SystemExit):
            # The threads, for which the pool waits, wait for compilers that Ctrl-C does not reach.
            pool.shutdown(wait=False, cancel_futures=True)
            end_attended()
            raise


def _runtime(
    toolchain: Toolchain, extras: Extras, folder: Path, names: Sequence[str]
) -> Iterator[Path]:
    """Return these objects of Verilator's own part, which is the same for every model."""

    def build(work: Path) -> None:
        for name in names:
            source = toolchain.verilator_root / "include" / name
            target = work / f"{source.stem}.o"
            _compile(toolchain, work / "build.log", source, target, [*COLD_FLAGS, *extras.compiler])

    return cached(folder, _digest(toolchain, extras, "runtime", *names), build).glob("*.o")


def _compile(
    toolchain: Toolchain, log: Path, source: Path, target: Path, arguments: list[str]
) -> None:
    include = toolchain.verilator_root / "include"
    command = [*toolchain.compiler, *COMPILER_FLAGS, *arguments]
    command += [f"-isystem{include}", f"-isystem{include / 'vltstd'}", f"-isystem{PACKING}"]
    _run([*command, "-c", "-o", str(target), str(source)], log, dict(os.environ))


def _run(command: list[str], log: Path, environment: dict[str, str]) -> None:
    result = run_attended(command, environment=environment)
    text = result.stdout.decode(errors="replace")
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ {shlex.join(command)}\n{text}")
    if result.returncode != 0:
        ending = "\n".join(text.splitlines()[-12:])
        raise BuildError(
            f"the simulated engine could not be built: {Path(command[0]).name} ended with status "
            f"{result.returncode}. Whole log: {log}\n{ending}"
        )
