"""Shows counters, once or by how much they grow, as lines for people or as JSON."""

import argparse
import json
import time
from collections.abc import Callable

from afflux.commands.device.text import columns
from afflux_drivers.device.counters import difference
from afflux_drivers.option_types import seconds, whole

__all__ = ["add_watch_arguments", "show_counters"]

_HOUR_S = 3600


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `show_counters` reads, but for `--all`."""
    parser.add_argument("--json", action="store_true", help="print JSON, a line each time")
    parser.add_argument(
        "--watch",
        type=seconds(_HOUR_S),
        metavar="SECONDS",
        help="print by how much they have grown, again and again, until Ctrl-C",
    )
    parser.add_argument(
        "--times", type=whole(1), metavar="N", help="with --watch: end after N times"
    )


def show_counters(
    arguments: argparse.Namespace, name: str, read: Callable[[], dict[str, int]], zeros: bool
) -> None:
    """Show counters as `add_watch_arguments` asks for; Ctrl-C ends it.

    Args:
        arguments: The options.
        name: Of what has them, for messages.
        read: Reads them all.
        zeros: Show also those that are 0, or have not grown.
    """
    if arguments.watch is None:
        _print(arguments.json, read(), zeros)
        return
    try:
        _watch(arguments, name, read, zeros)
    except KeyboardInterrupt:
        print()


def _watch(
    arguments: argparse.Namespace, name: str, read: Callable[[], dict[str, int]], zeros: bool
) -> None:
    before, start = read(), time.monotonic()
    due, done = start, 0
    while arguments.times is None or done < arguments.times:
        # Not in step for ever: a process that was stopped for an hour does not read all that once.
        due = max(due + arguments.watch, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        after, now = read(), time.monotonic()
        grown = difference(before, after)
        if grown is None:
            print(f"{name}: counters have begun anew: a reset", flush=True)
        else:
            _print(arguments.json, grown, zeros, now - start)
        before, start, done = after, now, done + 1


def _print(as_json: bool, found: dict[str, int], zeros: bool, seconds: float | None = None) -> None:
    shown = {name: value for name, value in found.items() if value or zeros}
    if as_json:
        timed = {} if seconds is None else {"seconds": round(seconds, 6)}
        print(json.dumps(timed | shown), flush=True)
    elif seconds is None:
        print(columns((name, str(value)) for name, value in shown.items()) or "all are 0")
    else:
        print(f"in {seconds:.3f} s", flush=True)
        rows = [
            (f"  {name}", f"+{value}", f"{value / seconds:.4g}/s") for name, value in shown.items()
        ]
        print(columns(rows) or "  nothing", flush=True)
