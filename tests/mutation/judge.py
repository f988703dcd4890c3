"""Judges each mutant: do the checks notice it?

Each mutant is judged in a process of its own, because it may do anything: hang, or crash the model.
"""

import contextlib
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, cast

from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.mutation.battery import Trial
from tests.mutation.mutants import SELECTOR
from tests.mutation.transcript import (
    Bounded,
    BoundedNode,
    NodeRecorder,
    Recorder,
    Transcript,
)
from tests.support.counter_starts import CountsFromStart
from tests.support.ported.ported_engine import PortedEngine

__all__ = ["EngineBench", "Judge", "NodeBench", "PortedBench", "Verdict"]

PATIENCE_S = 180.0
"""After which a mutant counts as a hang of the simulation: far more than any check takes."""

REST_CYCLES = 100_000
"""Many more than any answer takes, once nothing is offered and all is taken."""

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant.

    Attributes:
        caught: A check has noticed it.
        trial: Name of that check.
        how: `answer`, `hang` (or a broken rule of the output stream) or `crash`; `""`.
        what: The check's message.
        seconds: How long it took.
    """

    caught: bool
    trial: str
    how: str
    what: str
    seconds: float


class Bench(Protocol):
    """The subject of a library: how it is opened, recorded, and given up on."""

    def open(self, library: Path, number: int) -> Any:
        """Open a new model that is that mutant since its reset."""

    def recorder(self, model: Any) -> Any:
        """Return the model behind something that writes down what it is asked."""

    def bounded(self, model: Any, limit: int) -> Any:
        """Return the model behind something that gives up after `limit` cycles of a play."""

    def never_rests(self, model: Any) -> bool:
        """Return whether a model left alone does not become idle, or breaks a rule again."""


class EngineBench:
    """Engines."""

    kind: type[VerilatedEngine] = VerilatedEngine

    def open(self, library: Path, number: int) -> Any:
        engine = self.kind.from_library(library)
        engine.write(SELECTOR, number)
        engine.reset()
        return CountsFromStart(engine)

    def recorder(self, model: Any) -> Any:
        return Recorder(model)

    def bounded(self, model: Any, limit: int) -> Any:
        return Bounded(model, limit)

    def never_rests(self, model: Any) -> bool:
        try:
            model.play([], Stimulus(max_cycles=REST_CYCLES))
        except SimulationError:
            return True
        return False


class PortedBench(EngineBench):
    """Engines with two network ports."""

    kind = PortedEngine


class NodeBench:
    """Nodes."""

    def open(self, library: Path, number: int) -> Any:
        node = VerilatedNode.from_library(library)
        # There is no such register: it is refused, which a mutant may not even do.
        with contextlib.suppress(SimulationError):
            node.access(write=(SELECTOR, number))
        node.reset()
        return CountsFromStart(node)

    def recorder(self, model: Any) -> Any:
        return NodeRecorder(model)

    def bounded(self, model: Any, limit: int) -> Any:
        return BoundedNode(model, limit)

    def never_rests(self, model: Any) -> bool:
        try:
            model.pace(NodePace())
            model.play([], [], max_cycles=REST_CYCLES)
        except SimulationError:
            return True
        return False


class Judge:
    """Holds the transcripts of a battery and judges mutants by it.

    Args:
        library: The engine with its mutants.
        battery: The checks, in the order in which they are tried.
        bench: The library's subject; an engine unless said otherwise.

    Raises:
        AssertionError: If the engine itself, mutant 0, does not pass.
    """

    def __init__(self, library: Path, battery: Sequence[Trial], bench: Bench | None = None) -> None:
        self._library = library
        self._bench = bench or EngineBench()
        self._trials: list[tuple[Trial, Transcript]] = []
        for trial in battery:
            with self._open(0) as model:
                recorder = self._bench.recorder(model)
                trial.check(recorder)
            self._trials.append((trial, recorder.transcript))

    @property
    def cycles(self) -> dict[str, int]:
        """Clock cycles of each check."""
        return {
            trial.name: sum(call.cycles for call in transcript.calls)
            for trial, transcript in self._trials
        }

    def judge_all(
        self, numbers: Sequence[int], jobs: int, until: float = math.inf
    ) -> Iterator[tuple[int, Verdict]]:
        """Judge mutants, `jobs` at a time, and yield them as they are done.

        None is begun after the monotonic clock's time `until`.
        """
        waiting = list(numbers)[::-1]
        running: dict[Any, tuple[int, BaseProcess, float]] = {}
        while waiting or running:
            if time.monotonic() >= until:
                waiting.clear()
            while waiting and len(running) < jobs:
                number = waiting.pop()
                mine, theirs = _FORK.Pipe(duplex=False)
                process: BaseProcess = _FORK.Process(target=self._child, args=(number, theirs))
                process.start()
                theirs.close()
                running[mine] = (number, process, time.monotonic())
            ready = wait(list(running), timeout=1.0)
            now = time.monotonic()
            late = [pipe for pipe, (_, _, begun) in running.items() if now - begun > PATIENCE_S]
            for pipe in {*ready, *late}:
                number, process, begun = running.pop(pipe)
                yield number, self._collect(cast(Connection, pipe), process, now - begun)

    def judge(self, number: int) -> Verdict:
        """Judge one mutant in this process, where a crash of its model ends everything."""
        begun = time.monotonic()
        trial, how, what = "", "", ""
        for tried, transcript in self._trials:
            try:
                found = self._try(number, tried, transcript)
            except SimulationError as error:
                # Already at the reset with which it is opened.
                found = "hang", str(error)
            if found is not None:
                trial, (how, what) = tried.name, found
                break
        return Verdict(bool(trial), trial, how, what, round(time.monotonic() - begun, 3))

    def _try(self, number: int, trial: Trial, transcript: Transcript) -> tuple[str, str] | None:
        """Return how the check fails on the mutant, and its message; `None` if it passes."""
        if not trial.timed:
            with self._open(number) as engine:
                try:
                    difference = transcript.first_difference(engine)
                except SimulationError as error:
                    difference = str(error)
                    if self._bench.never_rests(engine):
                        return "hang", difference
                else:
                    if difference is None:
                        return None
                    if trial.exact and "job_busy" not in difference:
                        return "answer", difference
        try:
            with self._open(number) as engine:
                limit = 20 * transcript.longest + 10_000
                trial.check(self._bench.bounded(engine, limit))
        except SimulationError as error:
            return "hang", str(error)
        except Exception as error:
            # Not AssertionError alone: a frame out of shape may fail anywhere in what reads it.
            return "answer", f"{type(error).__name__}: {error}"[:300]
        return None

    def _open(self, number: int) -> Any:
        """Open a new engine or node that is that mutant since its reset."""
        return self._bench.open(self._library, number)

    def _child(self, number: int, pipe: Connection) -> None:
        pipe.send(self.judge(number))
        pipe.close()
        # Without what the parent has registered to run at its end.
        os._exit(0)

    def _collect(self, pipe: Connection, process: BaseProcess, seconds: float) -> Verdict:
        try:
            if pipe.poll():
                return cast(Verdict, pipe.recv())
            process.kill()
            return Verdict(True, "", "hang", f"no end after {PATIENCE_S:.0f} s", seconds)
        except EOFError:
            return Verdict(True, "", "crash", "the process ended", seconds)
        finally:
            process.join()
            pipe.close()
