"""`python -m tests.compat`: some of the tests on several versions of torch, with each adapter.

Each version gets a virtual environment of its own in `build/compat/<version>`, which is kept.
Versions come from the command line, or else from COMPAT_VERSIONS. pip's own variables and
configuration apply: a source of CPU builds of torch saves gigabytes (PIP_EXTRA_INDEX_URL,
PIP_FIND_LINKS). Ends with 1 if a test fails anywhere.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.support.checkout import BUILD, ROOT
from tests.support.environments import Environment, pinned

VERSIONS = ("2.11.0", "2.12.1", "2.13", "2.14.1", "2.15.0")

ADAPTERS = {"C++": "native", "Python": "python"}
"""By name, what AFFLUX_ADAPTER says."""

SUBSET = (
    "tests/host/test_collectives.py",
    "tests/host/test_ddp.py",
    "tests/host/test_groups.py",
    "tests/host/test_python_backend.py",
    "tests/host/test_registration.py",
    "tests/host/test_torch_flight_recorder.py",
)

# The imports of these tests, and those of the package.
_NEEDS = ("numpy", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis")

_FOLDER = BUILD / "compat"


@dataclass(frozen=True)
class Row:
    """The outcome of the tests with one version and one adapter."""

    version: str
    adapter: str
    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        told = self.error or f"{self.passed:6} {self.skipped:8} {len(self.failed):7}"
        return f"{self.version:16} {self.adapter:8} {told}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat", description="Runs some tests on several versions of torch."
    )
    listed = os.environ.get("COMPAT_VERSIONS", "").replace(",", " ").split()
    parser.add_argument("versions", nargs="*", default=listed or VERSIONS)
    parser.add_argument("--wheels", type=Path, help="look for wheels of torch in this folder first")
    arguments = parser.parse_args()
    wheel = _build_wheel()
    rows: list[Row] = []
    for version in arguments.versions:
        try:
            python = _environment(version, wheel, arguments.wheels)
        except subprocess.CalledProcessError as error:
            rows += [Row(version, each, error=f"not installed: {error}") for each in ADAPTERS]
            continue
        rows += [_run(python, version, adapter) for adapter in ADAPTERS]
    print(f"\n{'torch':16} {'adapter':8} {'passed':>6} {'skipped':>8} {'failed':>7}")
    for row in rows:
        print(row)
    for row in rows:
        for name in row.failed:
            print(f"failed: torch {row.version}, {row.adapter}: {name}")
    return int(any(row.failed or row.error for row in rows))


def _build_wheel() -> Path:
    """Return the package as a wheel: its C++ does not depend on torch's version."""
    folder = _FOLDER / "wheel"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    own_build = f"--config-settings=build-dir={_FOLDER / 'native'}"
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", own_build]
    subprocess.run(
        [sys.executable, "-m", "pip", *command, "--wheel-dir", str(folder), str(ROOT)], check=True
    )
    (built,) = folder.glob("*.whl")
    return built


def _environment(version: str, wheel: Path, wheels: Path | None) -> Path:
    """Return the interpreter of an environment that has this torch and this wheel."""
    made = Environment(_FOLDER / version)
    # 2.14 means its latest.
    wanted = f"torch=={version}" + (".*" if version.count(".") == 1 else "")
    source = ("--find-links", str(wheels)) if wheels else ()
    made.announce_cuda(*source, wanted)
    made.pip("install", "--quiet", *source, wanted, *pinned(*_NEEDS))
    made.pip("install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))
    return made.python


def _run(python: Path, version: str, adapter: str) -> Row:
    print(f"\ntorch {version}, {adapter} adapter:", flush=True)
    report = _FOLDER / f"{version}-{ADAPTERS[adapter]}.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "AFFLUX_ADAPTER": ADAPTERS[adapter],
        "AFFLUX_CACHE": str(_FOLDER / "cache"),
    }
    if ADAPTERS[adapter] == "native":
        # Now, as it takes longer than some tests may.
        compiled = [str(python), "-m", "afflux.adapters.native"]
        if subprocess.run(compiled, check=False, cwd=BUILD, env=environment).returncode:
            return Row(version, adapter, error="does not compile")
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *SUBSET]
    subprocess.run(command, check=False, cwd=ROOT, env=environment)
    return _read(report, version, adapter)


def _read(report: Path, version: str, adapter: str) -> Row:
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        return Row(version, adapter, error=f"pytest did not finish: {error}")
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(failed) - skipped
    return Row(version, adapter, passed, skipped, tuple(failed))


if __name__ == "__main__":
    sys.exit(main())
