"""The stress test of the shared-memory group sees bugs that are planted into it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

BUILD = ROOT / "build/native-planted"

# The numbers of drivers/native/shared/planted.hpp. 4 is the thread sanitizer's alone: the order in
# which x86 processors write makes it harmless there.
PLANTS = {
    1: "early gate",
    2: "one parity",
    3: "short ring",
    5: "no comparison",
    6: "stale presence",
}


@pytest.fixture(scope="module")
def program() -> Path:
    environment = os.environ | {
        "CXXFLAGS": "-DAFFLUX_PLANTS",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        # The processes that share the tests build in the same folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            f"cmake -S drivers/native -B {BUILD} -DAFFLUX_EXTENSION=OFF -DAFFLUX_TESTS=ON",
            f"cmake --build {BUILD} --target shared_stress_test",
        ):
            subprocess.run(
                command.split(), cwd=ROOT, env=environment, check=True, capture_output=True
            )
    return BUILD / "shared_stress_test"


def run(program: Path, plant: int) -> int:
    environment = os.environ | {"AFFLUX_PLANT": str(plant)}
    command = [program, "1", "24"]
    return subprocess.run(command, env=environment, check=False, timeout=300).returncode


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_planted(program: Path) -> None:
    assert run(program, 0) == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: PLANTS[plant].replace(" ", "-"))
def test_planted(program: Path, plant: int) -> None:
    assert run(program, plant) != 0
