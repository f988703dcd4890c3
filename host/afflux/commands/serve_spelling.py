"""How `afflux serve` was told its engine before this release; the next one does without.

Then `afflux serve --port 0` was an engine in software, and `--engine` or `--device` named another.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence

__all__ = ["current"]


def current(words: Sequence[str]) -> list[str]:
    """Return the words of `afflux serve` as they are spelt now.

    If they were spelt otherwise, a line on standard error says how to.
    """
    if not words or not words[0].startswith("-") or words[0] in ("-h", "--help"):
        return list(words)
    parser = argparse.ArgumentParser(prog="afflux serve", add_help=False)
    parser.add_argument("--engine", default="soft")
    parser.add_argument("--device")
    before, rest = parser.parse_known_args(words)
    if before.device is None:
        now = [before.engine, *rest]
    elif before.engine == "soft":
        now = ["device", before.device, *rest]
    else:
        parser.error(f"--engine {before.engine}: --device {before.device} is instead of an engine")
    print(
        f"afflux: the next release takes this as: {shlex.join(['afflux', 'serve', *now])}",
        file=sys.stderr,
    )
    return now
