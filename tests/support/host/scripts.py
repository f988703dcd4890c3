"""Runs small Python scripts and torchrun in processes of their own, within a time limit."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_script(
    text: str,
    folder: Path,
    *,
    ranks: int = 0,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 60.0,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a script; kills what is left of it at the limit.

    Args:
        text: The script.
        folder: Where to write it.
        ranks: Start that many of it under torchrun; 0 starts it by itself.
        environment: Variables that it sees besides this process's.
        limit_s: Seconds that it may take.
        options: More of torchrun's options.
    """
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command += options
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
        # torchrun starts each rank in a session of its own, and cannot end it once it is killed.
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nkilled after {limit_s:g} s"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have, and so on."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (each / "stat").read_text(encoding="ascii", errors="replace")
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(each.name))
    found = [pid]
    for each_pid in found:
        found += children.get(each_pid, [])
    return found[1:]


def alive(pid: int) -> bool:
    """Return whether a process exists that has not merely left its status behind."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
