"""`python -m tests.compat`: some of the tests on several versions of torch, with each adapter.

Each version gets a virtual environment of its own in `build/compat/<version>`, which is kept.
Versions come from the command line, or else from COMPAT_VERSIONS. pip's own variables and
configuration apply: a source of CPU builds of torch saves gigabytes (PIP_EXTRA_INDEX_URL,
PIP_FIND_LINKS). Where TORCH_FAULT_TOLERANCE names PyTorch's own tests of fault tolerance
(`tests.compat.fault_tolerance`), these run too, from torch 2.14 on. Ends with 1 if a test fails
anywhere.
"""

import argparse
import os
import re
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
    "tests/host/test_reconfiguring.py",
    "tests/host/test_registration.py",
    "tests/host/test_torch_flight_recorder.py",
)

# The imports of these tests, of PyTorch's own, and of the package.
_NEEDS = ("numpy", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "expecttest")

FAULT_TOLERANCE = "fault tolerance"
"""Stands for the adapter in the row of PyTorch's own tests; theirs is the native one."""

_FAULT_TOLERANCE_SINCE = 2, 14

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
        return f"{self.version:16} {self.adapter:15} {told}"


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
        if os.environ.get("TORCH_FAULT_TOLERANCE") and has_fault_tolerance(version):
            rows.append(run_fault_tolerance(python, version, _FOLDER))
    print(f"\n{'torch':16} {'adapter':15} {'passed':>6} {'skipped':>8} {'failed':>7}")
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
    torch = f"torch=={version}" + (".*" if version.count(".") == 1 else "")
    source = ("--find-links", str(wheels)) if wheels else ()
    wanted = *source, torch, *pinned(*_NEEDS)
    made.announce(*wanted)
    made.pip("install", "--quiet", *wanted)
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


def has_fault_tolerance(version: str) -> bool:
    """Return whether this version of torch has what its own tests of fault tolerance try."""
    return tuple(map(int, version.split(".")[:2])) >= _FAULT_TOLERANCE_SINCE


def run_fault_tolerance(python: Path, version: str, folder: Path) -> Row:
    """Run PyTorch's own tests of fault tolerance, which TORCH_FAULT_TOLERANCE names.

    Args:
        python: The interpreter.
        version: That of its torch.
        folder: For what the tests write, in `<version>-fault-tolerance.log`.
    """
    print(f"\ntorch {version}, PyTorch's own tests of fault tolerance:", flush=True)
    environment = {**os.environ, "AFFLUX_ADAPTER": "native", "AFFLUX_CACHE": str(_FOLDER / "cache")}
    done = subprocess.run(
        [str(python), "-m", "tests.compat.fault_tolerance"],
        check=False,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log = folder / f"{version}-fault-tolerance.log"
    log.write_text(done.stdout, encoding="utf-8")
    print(done.stdout, flush=True)
    ran = re.search(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(.*)$", done.stdout, re.MULTILINE)
    if ran is None or not int(ran[1]):
        return Row(version, FAULT_TOLERANCE, error=f"no test was run: see {log}")
    failed = tuple(re.findall(r"^(?:FAIL|ERROR): (\S+)", done.stdout, re.MULTILINE))
    skipped = int((re.findall(r"skipped=(\d+)", ran[2]) or ["0"])[0])
    return Row(version, FAULT_TOLERANCE, int(ran[1]) - skipped - len(failed), skipped, failed)


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
