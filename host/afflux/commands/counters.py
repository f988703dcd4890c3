"""The command `afflux counters`: what a running aggregator has counted, over all its jobs."""

import argparse
import sys
from collections import Counter

from afflux.commands.device.watching import add_watch_arguments, show_counters
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux_drivers.control.client import read_counters
from afflux_drivers.errors import AffluxError
from afflux_drivers.option_types import checked, seconds

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux counters`."""
    parser.add_argument(
        "url", type=checked(AggregatorUrl.parse_running), metavar="URL", help="udp://host[:port]"
    )
    add_watch_arguments(parser)
    parser.add_argument(
        "--timeout",
        type=seconds(3600),
        default=5.0,
        metavar="SECONDS",
        help="for each answer (%(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the sums over all aggregators that the URL names; return 1 if one does not answer."""
    if arguments.watch is None and arguments.times is not None:
        arguments.parser.error("--times goes with --watch")
    try:
        secret = Settings.from_environment().control_secret()

        def read() -> dict[str, int]:
            found: Counter[str] = Counter()
            for address in arguments.url.addresses:
                found.update(read_counters(address, arguments.timeout, secret))
            return found

        show_counters(arguments, str(arguments.url), read, zeros=arguments.watch is None)
    except BrokenPipeError:
        raise
    except (AffluxError, OSError) as error:
        print(f"afflux counters: {error}", file=sys.stderr)
        return 1
    return 0
