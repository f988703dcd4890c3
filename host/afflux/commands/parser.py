"""The options of the command `afflux` and of its subcommands, without what carries them out."""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from afflux.version import version

__all__ = ["COMMANDS", "build_parser"]

_DESCRIPTION = """Aggregators, boards, measurements, and what this machine offers.
The exit status is 0, 1 if something has failed, 2 if the options are wrong, 130 after Ctrl-C."""

COMMANDS = {
    "serve": ("afflux.commands.serve", "run an aggregator until SIGTERM or Ctrl-C"),
    "counters": ("afflux.commands.counters", "print the counters of an aggregator"),
    "device": ("afflux.commands.device.command", "look at boards, and configure them"),
    "flash": ("afflux.commands.flash", "load a bitstream into a board"),
    "info": ("afflux.commands.info.command", "what this machine offers, and what would help"),
    "nccl-env": ("afflux.commands.nccl_env", "print what to export so that NCCL sums here"),
    "bench": ("afflux.commands.bench.options", "time collectives, in the columns of nccl-tests"),
    "completion": ("afflux.commands.completion", "print a script that completes words in a shell"),
}
"""Each subcommand's module, and what it is for. A module has `add_arguments(parser)`, which sets
the default `run`: a function of the parsed arguments, which returns the exit status. None imports
torch, numpy or Amaranth before it runs something that needs them."""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of `afflux`.

    Args:
        only: The subcommand whose options are declared, as the modules of all take longer; None:
            all.
    """
    parser = argparse.ArgumentParser(
        prog="afflux",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version, and end")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(parser=command, about_unknown=_about_unknown)
        if only in (None, name):
            importlib.import_module(module).add_arguments(command)
    return parser


def _about_unknown(unknown: Sequence[str]) -> str:
    """Return what is wrong with words that no option takes."""
    return f"{' '.join(unknown)}: there is no such option; --help lists them"


class _Version(argparse.Action):
    """Prints the version; looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"afflux {version()}")
        parser.exit()
