"""Describes the machine that a result comes from, without naming it."""

import os
import platform
from typing import Any

import numpy as np
import torch

from afflux.commands.bench.processor import processor_name

__all__ = ["describe_machine"]


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
