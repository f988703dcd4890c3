"""Write a Vivado project: `python -m afflux_hdl.vivado as02mc04 -o DIR`."""

import argparse
import sys
from functools import partial
from pathlib import Path

from afflux_hdl.boards.options import add_options, settings_of
from afflux_hdl.vivado import as02mc04
from afflux_hdl.vivado.alveo import ALVEO
from afflux_hdl.vivado.cmac import write_cmac

__all__ = ["PROJECTS", "main"]

PROJECTS = {as02mc04.TOP: as02mc04.write_project} | {
    name: partial(write_cmac, card=card) for name, card in ALVEO.items()
}
"""By board: what writes its project."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m afflux_hdl.vivado",
        description="Write a complete Vivado project for a board. Vivado itself is not needed.",
    )
    parser.add_argument("board", choices=sorted(PROJECTS))
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        settings, key_file = settings_of(options, options.board, options.output)
        files = PROJECTS[options.board](
            options.output,
            settings=settings,
            build_time=options.build_time,
            build_commit=options.build_commit,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"error: {options.board}: {error}")
    for path in files:
        sys.stdout.write(f"{path}\n")
    sys.stdout.write(f"the board's key: {key_file}\n")


if __name__ == "__main__":
    main()
