"""Runs small Python scripts and torchrun in processes of their own, within a time limit."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def run_script(
    text: str,
    folder: Path,
    *,
    ranks: int = 0,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a script, under torchrun if `ranks` is not 0; kills what is left of it at the limit."""
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command.append(str(script))
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nkilled after {limit_s:g} s"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def alive(pid: int) -> bool:
    """Return whether a process exists that has not merely left its status behind."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
