"""The gateware's checks, played to the software engine: cases, floods, random frames."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_hdl.contract import registers
from afflux_sim.golden.frames import PARTIAL_DTYPES
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import (
    DROPS,
    check_any_frame,
    check_cases,
    check_floods,
    check_garbage,
)
from tests.checks.near_checks import misjudged
from tests.fuzz.fuzzer import BUILD, Fuzzer
from tests.scenarios.director import LARGE, SMALL, Build
from tests.scenarios.job_frames import Job


class BehindMac(SoftEngine):
    """The engine behind a MAC, in the place of a simulated one: its pace is what it is.

    Frames that the MAC marks as bad never reach the software engine; they are counted here.
    """

    def __init__(self, **build: Any) -> None:
        super().__init__(**build)
        self._bad: list[bytes] = []
        self._latched = 0

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: object = None,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        del stimulus
        marks = mac_errors or [False] * len(frames)
        self._bad += [frame for frame, bad in zip(frames, marks, strict=True) if bad]
        return super().play([frame for frame, bad in zip(frames, marks, strict=True) if not bad])

    def read(self, address: int) -> int:
        added = {
            registers.counter_address("mac_error"): len(self._bad),
            registers.counter_address("frames_in"): len(self._bad),
            registers.counter_address("bytes_in"): sum(map(len, self._bad)),
        }
        # None of these counters leaves 32 bits here.
        return super().read(address) + added.get(address, 0)

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(receive_stalls=0)


def behind_mac(build: Build) -> VerilatedEngine:
    """Return what the checks need of a Verilated engine."""
    return cast(VerilatedEngine, BehindMac(**build))


LONG = [(1, "tree"), (2, "tree")]
"""Of the jobs below, by number, and cases: what takes longest."""


@pytest.mark.parametrize(
    ("build", "job", "cases"),
    [
        pytest.param(*each, cases, marks=pytest.mark.long if (n, cases) in LONG else ())
        for n, each in enumerate(
            [
                (SMALL, Job(number=1, workers=3, lanes=2, slots=4)),
                (SMALL, Job(number=2, workers=5, lanes=3, slots=1)),
                (LARGE, Job(number=3, workers=9, lanes=16, slots=1)),
            ]
        )
        for cases in ("ten", "tree")
    ],
    ids=[f"{sizes}-{cases}" for sizes in ("3x2x4", "5x3x1", "9x16x1") for cases in ("ten", "tree")],
)
def test_cases(build: Build, job: Job, cases: str) -> None:
    check_cases(behind_mac(build), build, job, cases=cases)


@pytest.mark.parametrize("build", [SMALL, LARGE], ids=["small", "large"])
def test_any_frame(build: Build) -> None:
    counters = check_any_frame(behind_mac(build), build, seed=4)
    never = {name for name, count in counters.items() if count == 0}
    assert never == DROPS


def test_near_misses() -> None:
    assert not list(misjudged(behind_mac(SMALL), SMALL, PARTIAL_DTYPES))


def test_floods() -> None:
    check_floods(behind_mac(SMALL), SMALL, ready_share=1.0)


def test_garbage() -> None:
    check_garbage(behind_mac(SMALL), SMALL)


def test_fuzz() -> None:
    report = Fuzzer(behind_mac(BUILD), seed=8, batch=500, partials=PARTIAL_DTYPES).run(6000)
    assert report.results > 1000
    assert report.left_out == 0
