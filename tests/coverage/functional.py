"""`python -m tests.coverage.functional`: how much of the functional-coverage model is reached.

Writes `build/coverage/functional.json`; ends with status 1 if the target is missed, or if something
has happened that the model holds for impossible.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, open_engine
from tests.coverage.bins import Model
from tests.coverage.engine_bins import engine_model
from tests.coverage.mixed_traffic import MixedTraffic, draw_jobs
from tests.coverage.observer import Observer
from tests.scenarios.director import Build, Director
from tests.scenarios.performer import perform
from tests.support.checkout import BUILD as BUILD_FOLDER

__all__ = ["cover"]

WANTED = 0.95
RESET_CYCLES = 4
RESETS = 3
"""In a row: what comes behind the first one finds an engine at rest, without jobs."""

SPELL = 120
"""Frames between two drains of the queues."""


def cover(
    engine: VerilatedEngine, model: Model, build: Build, bus_bits: int, frames: int, seed: int
) -> None:
    """Play about `frames` random frames, and add what happens to the model.

    Raises:
        AssertionError: If the engine counts a frame otherwise than the golden model.
    """
    choose = random.Random(seed)
    observer = Observer(engine, model, bus_bits=bus_bits, slots=build["slots"])
    played = 0
    while played < frames:
        director = Director(**build)
        perform(engine, director.configure())
        jobs = draw_jobs(choose, build)
        for job in jobs:
            perform(engine, director.create(job))
        observer.know(jobs)
        observer.restart()
        traffic = MixedTraffic(choose, director.golden, jobs)
        for _ in range(choose.choice((1, 1, 2, 5, 10))):
            if choose.random() < 0.8:
                observer.drain()
            played += _spell(choose, observer, traffic, director)
        ends = choose.choice(("reset", "destroyed"))
        observer.end(ends)
        if ends == "reset":
            for _ in range(RESETS):
                _reset(choose, observer, traffic, bus_bits)
        else:
            observer.discard(False)
            # The network takes all again, for a job's end waits for what is on its way.
            engine.run(0)
            for job in jobs:
                perform(engine, director.destroy(job))
            observer.drain()
        # Frames that left meanwhile are nobody's any more.
        engine.run(0)


def _spell(
    choose: random.Random, observer: Observer, traffic: MixedTraffic, director: Director
) -> int:
    golden = director.golden
    ready = choose.choice((1.0, 0.4, 0.0, 0.0))
    link = choose.choices(("up", "down by command", "down by itself"), (7, 2, 2))[0]
    observer.discard(link == "down by command")
    if link == "down by itself":
        ready = 0.0
    for number in range(SPELL):
        if link == "down by itself" and number in (SPELL // 8, SPELL // 4):
            # By now something waits to be sent.
            observer.wait_until_down()
        seed = choose.getrandbits(32)
        if choose.random() < 0.15:
            pair = []
            before = dict(golden.counters)
            for _ in range(2):
                pair.append(traffic.frame())
                golden.receive(pair[-1].frame, pair[-1].mac_error)
            verdicts = observer.play_pair(pair, ready, seed)
        else:
            sent = traffic.frame()
            before = dict(golden.counters)
            golden.receive(sent.frame, sent.mac_error)
            gaps = choose.choice((0.0, 0.0, 0.3))
            verdicts = [observer.play(sent, ready, gaps, seed)]
        expected = sorted(
            name
            for name in before
            if name in observer.verdict_names
            for _ in range(golden.counters[name] - before[name])
        )
        assert sorted(verdicts) == expected, f"counted as {verdicts}, not as {expected}"
    return SPELL


def _reset(choose: random.Random, observer: Observer, traffic: MixedTraffic, bus_bits: int) -> None:
    """Reset the engine while frames come, in one of them or between two."""
    # The first one only lets time pass.
    frames = [choose.randbytes(600)]
    for _ in range(6):
        small = choose.randbytes(choose.randrange(1, 4 * bus_bits // 8))
        frames.append(choose.choice((small, traffic.frame().frame)))
    beats = [-(-len(frame) // (bus_bits // 8)) for frame in frames]
    at = choose.randrange(1, len(frames))
    # The reset acts on what comes in the cycle behind the four for which its pin is held.
    reset_at = sum(beats[:at]) + choose.randrange(beats[at]) - RESET_CYCLES
    pace = Stimulus(
        ready_share=choose.choice((1.0, 0.4, 0.0)),
        seed=choose.getrandbits(32),
        reset_at=reset_at,
        drain=False,
    )
    observer.reset(frames, at, pace)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage.functional")
    parser.add_argument("--frames", type=int, default=62_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=BUILD_FOLDER / "coverage")
    options = parser.parse_args(arguments)
    bus_bits, model = 512, engine_model()
    begun = time.monotonic()
    with open_engine(bus_bits) as engine:
        cover(engine, model, BUILDS[bus_bits], bus_bits, options.frames, options.seed)
    figures = model.figures() | {"frames": options.frames, "seed": options.seed}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "functional.json"
    path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for cross in model.crosses:
        report = model.report(cross)
        print(f"{cross.name:<44}{report.reached:>6} of {report.bins:>5}{report.share:>8.1%}")
    print(f"{'all':<44}{figures['reached']:>6} of {figures['bins']:>5}{figures['share']:>8.1%}")
    for text in figures["contradicted"]:
        print(f"held for impossible, but reached: {text}")
    print(f"{time.monotonic() - begun:.0f} s, {path}")
    return 0 if figures["share"] >= WANTED and not figures["contradicted"] else 1


if __name__ == "__main__":
    sys.exit(main())
