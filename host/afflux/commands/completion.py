"""The command `afflux completion`: a script for a shell, which completes the words of `afflux`."""

import argparse
import sys

from afflux.commands.parser import build_parser

__all__ = ["add_arguments", "run"]

_SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux completion`."""
    parser.add_argument("shell", choices=_SHELLS, help='as in: eval "$(afflux completion bash)"')
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script; return 1 if the package that writes it is not here."""
    try:
        import shtab
    except ImportError:
        print(
            "afflux completion: shtab is not installed: pip install 'afflux[completion]'",
            file=sys.stderr,
        )
        return 1
    print(shtab.complete(build_parser(), arguments.shell))
    return 0
