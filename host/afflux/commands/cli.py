"""The command `afflux`: aggregators, boards, measurements, and what this machine offers."""

import os
import sys
from collections.abc import Sequence

from afflux.commands.parser import build_parser
from afflux.commands.serve_spelling import current

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
    if words[:1] == ["serve"]:
        words = ["serve", *current(words[1:])]
    parser = build_parser(only=next((word for word in words if not word.startswith("-")), ""))
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        arguments.parser.error(arguments.about_unknown(unknown))
    arguments.words = words[1:]
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
