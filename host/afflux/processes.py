"""Ends processes that were started here, each by its id."""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = ["end_processes"]


def end_processes(
    processes: "Sequence[subprocess.Popen[Any]]", *, patience_s: float, with_groups: bool = False
) -> None:
    """Ask those that still run to end, kill those that do not, and close what they wrote into.

    Args:
        processes: All are asked before any is waited for.
        patience_s: Seconds that each of them has.
        with_groups: Ask all processes of their groups: a launcher may be a script, which ends
            without its own children.
    """
    for process in processes:
        if process.poll() is None:
            if with_groups:
                os.killpg(process.pid, signal.SIGTERM)
            else:
                process.terminate()
    for process in processes:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
