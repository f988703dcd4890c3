"""The command `afflux`: aggregators, boards, measurements, and what this machine offers."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux_drivers.control.client import read_counters
from afflux_drivers.errors import AffluxError
from afflux_drivers.option_types import seconds

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    _keep_standard_files()
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        return status if _flushed() else 1
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does.
        _drop_output()
        return 1
    except OSError as error:
        # Most likely the disk below the output is full.
        print(f"afflux: {error}", file=sys.stderr)
        _drop_output()
        return 1
    except KeyboardInterrupt:
        print("afflux: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _flushed() -> bool:
    """Return whether all output could be written, and report it otherwise."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"afflux: cannot write the output: {error.strerror}", file=sys.stderr)
        _drop_output()
        return False
    return True


def _drop_output() -> None:
    # Python would flush it once more.
    if sys.stdout is None:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _keep_standard_files() -> None:
    # If standard output is closed, its lines would go to the next file that is opened: the
    # registers of a card, or a lock.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="afflux", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="run an aggregator until SIGTERM or Ctrl-C")
    counters = commands.add_parser("counters", help="print the counters of an aggregator")
    counters.add_argument("url", help="udp://host[:port]")
    counters.add_argument(
        "--timeout",
        type=seconds(3600),
        default=5.0,
        metavar="SECONDS",
        help="for each answer (%(default)s)",
    )
    device = commands.add_parser("device", help="look at boards, and configure them")
    flash_it = commands.add_parser("flash", help="load a bitstream into a board")
    info = commands.add_parser("info", help="what this machine offers, and what would help")
    bench = commands.add_parser("bench", help="time collectives, in the columns of nccl-tests")

    # Their modules load what the other commands do not need.
    if words[:1] == ["serve"]:
        from afflux.commands import serve, serve_spelling

        return serve.main(serve_spelling.current(words[1:]))
    if words[:1] == ["device"]:
        from afflux.commands.device import command as device_command

        device_command.add_arguments(device)
        return device_command.run(parser.parse_args(words))
    if words[:1] == ["flash"]:
        from afflux.commands import flash

        flash.add_arguments(flash_it)
        return flash.run(parser.parse_args(words))
    if words[:1] == ["info"]:
        from afflux.commands.info import command as info_command

        info_command.add_arguments(info)
        return info_command.run(parser.parse_args(words))
    if words[:1] == ["bench"]:
        from afflux.commands.bench import command, options

        options.add_arguments(bench)
        return command.run(bench, parser.parse_args(words), words[1:])

    return _print_counters(parser, parser.parse_args(words))


def _print_counters(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    try:
        url = AggregatorUrl.parse(arguments.url)
    except ValueError as error:
        parser.error(f"{arguments.url!r}: {error}")
    if url.embedded:
        parser.error(f"{arguments.url!r} is not a running aggregator; expected udp://host[:port]")
    try:
        found: Counter[str] = Counter()
        secret = Settings.from_environment().control_secret()
        for address in url.addresses:
            found.update(read_counters(address, arguments.timeout, secret))
    except (AffluxError, OSError) as error:
        print(f"afflux: {error}", file=sys.stderr)
        return 1
    width = max(map(len, found), default=0)
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
