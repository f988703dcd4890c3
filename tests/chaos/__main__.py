"""`python -m tests.chaos`: kills and faults at random moments, every surviving sum judged.

Each trial is a line of `build/chaos/trials.jsonl`: a run that is interrupted goes on where it was,
with the same seed. `--trial` plays one again. Ends with status 1 if a trial was bad.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.network.namespaces import boards_missing
from tests.chaos import crew, plan
from tests.chaos.crew import Crew
from tests.chaos.place import Place
from tests.chaos.planted import BUGS
from tests.chaos.record import Records
from tests.chaos.soak import Soak
from tests.chaos.trial import Player
from tests.support.checkout import BUILD

FOLDER = BUILD / "chaos"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="of the campaign (%(default)s)")
    add("--trials", type=int, default=0, help="play up to this number (no limit)")
    add("--minutes", type=float, default=10.0, help="begin none later (%(default)s)")
    add("--ways", nargs="+", choices=plan.WAYS, default=list(plan.WAYS))
    add("--only", default="", help="part of a fault's name")
    add("--trial", type=int, nargs="+", default=[], help="play these, and record nothing")
    add("--record", type=Path, default=FOLDER / "trials.jsonl", help="a file (%(default)s)")
    add("--plant", choices=BUGS, default="", help="a bug in rank 1: the campaign must fail")
    add("--soak", action="store_true", help="end no process; tell whether what they have grows")
    add("--verbose", action="store_true", help="print a line for each trial")
    options = parser.parse_args(arguments)
    if reason := boards_missing():
        print(f"no campaign: {reason}", file=sys.stderr)
        return 2
    crew.preload()
    only_these = bool(options.trial or options.plant or options.soak)
    records, soak = Records(None if only_these else options.record, options.seed), Soak()
    ways = tuple(options.ways)
    wanted = options.trial or range(records.next, options.trials or sys.maxsize)
    until = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}, from trial {records.next}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="afflux-chaos-") as folder,
        Place(options.seed) as place,
        contextlib.closing(Crew(place.hosts, Path(folder), {})) as members,
    ):
        player = Player(place, members, options.plant)
        begun, bad = time.monotonic(), 0
        try:
            for number in wanted:
                if time.monotonic() > until:
                    break
                trial = plan.drawn(options.seed, number, ways, options.only, options.soak)
                record = player.play(trial)
                records.add(record)
                soak.add(record)
                bad += record["bad"]
                if record["bad"] or options.verbose:
                    print(_line(record), flush=True)
                if record["bad"] and options.plant:
                    break
        except KeyboardInterrupt:
            print("interrupted; the same command goes on", flush=True)
        print(records.told(time.monotonic() - begun), flush=True)
        flat = True
        if options.soak:
            text, flat = soak.told()
            print(text, flush=True)
    return bool(bad) or not flat


def _line(record: dict[str, object]) -> str:
    if not record["bad"]:
        keys = ("trial", "way", "ranks", "fault", "beneath", "outcome", "notice_s", "go_on_s")
        return " ".join(f"{record[key]}" for key in (*keys, "errors", "seconds"))
    return json.dumps(record, indent=1).replace("\\n", "\n")


if __name__ == "__main__":
    sys.exit(main())
