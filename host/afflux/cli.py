"""The command `afflux`: run an aggregator, and read one's counters."""

import argparse
import sys
from collections.abc import Sequence

from afflux import serve
from afflux.location import Location
from afflux_drivers.control import read_counters
from afflux_drivers.errors import AffluxError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="afflux", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("serve", help="run an aggregator until SIGTERM or Ctrl-C")
    serve.add_arguments(run)
    counters = commands.add_parser("counters", help="print the counters of an aggregator")
    counters.add_argument("url", help="udp://host[:port]")
    counters.add_argument("--timeout", type=float, default=5.0, help="seconds (%(default)s)")
    arguments = parser.parse_args(argv)
    if arguments.command == "serve":
        return serve.serve(arguments)
    try:
        location = Location.parse(arguments.url)
        if location.embedded:
            parser.error(f"{arguments.url} names no running aggregator; expected udp://host[:port]")
        found = read_counters((location.host, location.port), arguments.timeout)
    except (AffluxError, OSError) as error:
        print(f"afflux: {error}", file=sys.stderr)
        return 1
    width = max(map(len, found), default=0)
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
