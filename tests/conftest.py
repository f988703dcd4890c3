"""Settings of the whole test run: what tests write goes under build/, what they draw is printed.

And how many processes share the tests, and which of them begin.
"""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.checkout import BUILD
from tests.support.compiled_yosys import compile_yosys

# Before hypothesis first looks for it; without it, it writes .hypothesis/ where pytest was started.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(BUILD / "hypothesis"))

# Most models run for seconds only. The benchmarks' figures are not made here.
os.environ.setdefault("AFFLUX_BUILD", "quick")

# torch's store asks the name service who connects. One that does not answer would be waited for in
# many tests, five seconds each time.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

IN_CI = bool(os.environ.get("CI"))

settings.register_profile(
    "afflux",
    # pytest's own time limit ends a hang; a busy two-core machine does not justify a failure.
    deadline=None,
    # A failure prints the line that repeats it anywhere.
    print_blob=True,
    # In CI the same commit draws the same examples; elsewhere every run looks further.
    derandomize=IN_CI,
)
settings.load_profile("afflux")

# The memory of one process at its peak: a compiler with a large model, or ranks with torch.
PROCESS_BYTES = 2 << 30


def memory_bytes() -> int:
    """Return the memory of the machine, or of the control group if that has less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        # No such file, or `max`.
        return memory


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` means.

    Three for two cores, as tests of failures and timeouts wait; fewer where memory is short.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores + cores // 2, memory_bytes() // PROCESS_BYTES))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules with slow tests first, so that no process begins one when others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what has been imported.

    Simulated designs are millions of objects that live; looking at them takes a sixth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def compiled_yosys() -> None:
    """Compile Yosys for tests that start it, as several processes must not be the first to."""
    compile_yosys()
