"""Describes the machine that a result comes from, without naming it."""

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["describe_machine", "processor_name"]


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory, system and versions, without names of people or folders."""
    return {
        "processor": processor_name() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def processor_name() -> str:
    """Return the name that the processor gives itself; empty if it gives none."""
    return _field("/proc/cpuinfo", "model name")


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
