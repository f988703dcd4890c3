"""`python -m tests.mutation.native`: plants bugs in the C++, one by one, and names the unnoticed.

Each is compiled out of the tree: the one source that has it, or the engine as a whole.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.mutation.native_bugs import BUGS, CHECKS, caught


def say(text: str) -> None:
    """Print at once, so that a run can be watched."""
    print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status says whether all were caught, and nothing else was."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.native", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(BUGS), metavar="NAME", help="these bugs")
    names = parser.parse_args(arguments).only or list(BUGS)
    wrong = []
    # A check that fails anyway would catch everything.
    for check in dict.fromkeys(BUGS[name].check for name in names):
        failed = CHECKS[check]("none", None)
        say(f"{'fails' if failed else 'passes'} without a bug: {check}")
        wrong += [check] * failed
    for name in names:
        begun = time.monotonic()
        seen = caught(name)
        took_s = time.monotonic() - begun
        say(f"{'caught' if seen else 'MISSED'}, {took_s:.1f} s: {name} ({BUGS[name].check})")
        wrong += [name] * (not seen)
    say(f"{len(names)} bugs, wrong: {', '.join(wrong) or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
