"""WAVES=1 under cocotb, by a small model: what is in the file, and what a failure says of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pywellen import Waveform

from tests.support.checkout import BUILD, ROOT
from tests.testbench.simulator import build_verilog, run_module, waves_format
from tests.testbench.waves import PERIOD_NS, TOP, VERILOG

pytestmark = pytest.mark.slow

FOLDER = BUILD / "cocotb"
MODULE = "tests.testbench.waves"
# As the project's own tests run a testbench.
TESTS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pytest
from tests.sim.test_cocotb_waves import run_one

def test_fails(tmp_path):
    run_one(tmp_path / "results", "fails")

@pytest.mark.timeout(5)
def test_hangs(tmp_path):
    run_one(tmp_path / "results", "hangs")
"""


def run_one(results: Path, test: str) -> None:
    run_module(build_verilog(FOLDER, VERILOG, TOP), results, MODULE, top=TOP, tests=[test])


def counts(path: Path) -> list[tuple[int, int]]:
    """Return when the counter changed, in nanoseconds, and to what."""
    waves = Waveform(str(path))
    assert str(waves.timescale) == "1ps"
    return [(time // 1000, value) for time, value in waves[f"{TOP}.count"].tv]


def all_counts(cycles: int) -> list[tuple[int, int]]:
    rises = [(PERIOD_NS * cycle + PERIOD_NS // 2, cycle + 1) for cycle in range(cycles)]
    return [(0, 0), *rises]


def run_pytest(folder: Path, name: str, *options: str) -> str:
    """Run the tests above in a pytest of its own, and return what it says."""
    file = folder / "test_two.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    command += ["-c", "/dev/null", "--rootdir", str(folder), "--basetemp", str(folder / "results")]
    result = subprocess.run(
        [*command, f"{file}::{name}", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


def file_in(said: str) -> Path:
    (path,) = re.findall(r"^E +waves: (.+)$", said, re.MULTILINE)
    return Path(path)


@pytest.fixture(params=["fst", pytest.param("vcd", marks=pytest.mark.long)])
def form(request, monkeypatch):
    monkeypatch.setenv("WAVES", "1")
    monkeypatch.setenv("WAVES_FORMAT", request.param)
    # Not within the time limit below.
    build_verilog(FOLDER, VERILOG, TOP)
    return request.param


@pytest.mark.long
def test_all_that_passes_is_in_the_file(form, tmp_path):
    run_one(tmp_path, "passes")
    assert counts(tmp_path / f"dump.{form}") == all_counts(10)


@pytest.mark.long
def test_a_failure_says_where_the_waves_are(form, tmp_path):
    path = file_in(run_pytest(tmp_path, "test_fails"))
    assert path.suffix == f".{form}"
    assert counts(path) == all_counts(20)


@pytest.mark.long
def test_so_does_a_time_limit_and_the_file_is_complete(form, tmp_path):
    found = counts(file_in(run_pytest(tmp_path, "test_hangs")))
    assert len(found) > 100
    assert found == all_counts(len(found) - 1)


@pytest.mark.long
def test_without_waves_a_failure_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.delenv("WAVES", raising=False)
    said = run_pytest(tmp_path, "test_fails")
    assert re.search(r"^E +WAVES=1 .* write its waves$", said, re.MULTILINE)
    assert list(tmp_path.rglob("dump.*")) == []


@pytest.mark.parametrize(
    ("waves", "form", "want"),
    [
        ("", "", None),
        ("0", "vcd", None),
        ("1", "", "fst"),
        ("1", "vcd", "vcd"),
        ("2", "", "WAVES is '2'"),
        ("vcd", "", "WAVES is 'vcd'"),
        ("1", "lxt", "WAVES_FORMAT is 'lxt'"),
    ],
)
def test_variables(waves, form, want, monkeypatch):
    monkeypatch.setenv("WAVES", waves)
    monkeypatch.setenv("WAVES_FORMAT", form)
    if want in (None, "fst", "vcd"):
        assert waves_format() == want
    else:
        with pytest.raises(ValueError, match=want):
            waves_format()
