"""`python -m tests.explorer`: aggregators that die and come back, in virtual time.

Each trial is a seed: the ranks of one group run their own code, and a scheduler draws which of them
comes next, what the network does to each packet, and what dies when. Ends with status 1 if a trial
was bad: a wrong element, an error where ranks should have gone on, or a rank that waits for ever.
"""

import argparse
import logging
import sys
import time
from collections import Counter

from tests.explorer.plan import drawn
from tests.explorer.planted import BUGS, planted
from tests.explorer.world import World, Wrong

__all__ = ["main"]


def main() -> int:
    """Play trials; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.explorer", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first trial (%(default)s)")
    parser.add_argument(
        "--steps", type=int, default=10_000_000, help="begin no trial after these (%(default)s)"
    )
    parser.add_argument("--trial", type=int, help="play this seed alone, and say what it is")
    parser.add_argument("--plant", choices=[*BUGS], default="", help="a bug, to be found")
    options = parser.parse_args()
    logging.getLogger("afflux").setLevel(logging.CRITICAL)
    if options.trial is not None:
        print(drawn(options.trial))
    began, steps, bad, trials = time.monotonic(), 0, 0, 0
    counts: Counter[str] = Counter()
    seed = options.seed if options.trial is None else options.trial
    while steps < (options.steps if options.trial is None else 1):
        world = World(drawn(seed))
        try:
            with planted(options.plant):
                world.play()
        except Wrong as wrong:
            bad += 1
            print(f"seed {seed}: {wrong}", flush=True)
        steps, trials, seed = steps + world.scheduler.steps, trials + 1, seed + 1
        counts.update(world.counts)
    print(
        f"{steps:,} steps of {trials:,} trials in {time.monotonic() - began:.0f} s: "
        f"{counts['results']:,} results judged, {counts['kills']} ranks killed, at their ends "
        f"{counts['fail_overs']:,} ranks had gone over, and {counts['fail_backs']:,} come back; "
        f"{bad} bad"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
