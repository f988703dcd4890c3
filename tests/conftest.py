"""Settings of the whole test run: what tests write goes under build/, what they draw is printed."""

import os

from hypothesis import settings

from tests.support.checkout import BUILD

# Before hypothesis first looks for it; without it, it writes .hypothesis/ where pytest was started.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(BUILD / "hypothesis"))

# Most models run for seconds only. The benchmarks' figures are not made here.
os.environ.setdefault("AFFLUX_BUILD", "quick")

IN_CI = bool(os.environ.get("CI"))

settings.register_profile(
    "afflux",
    # pytest's own time limit ends a hang; a busy two-core machine is no reason to fail.
    deadline=None,
    # A failure prints the line that repeats it anywhere.
    print_blob=True,
    # In CI the same commit draws the same examples; elsewhere every run looks further.
    derandomize=IN_CI,
)
settings.load_profile("afflux")
