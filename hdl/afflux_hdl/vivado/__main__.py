"""Write a Vivado project: `python -m afflux_hdl.vivado as02mc04 -o DIR`."""

import argparse
import re
import sys
from functools import partial
from pathlib import Path

from afflux_hdl.boards.key_file import new_key, read_key
from afflux_hdl.cmac.boards import BOARDS
from afflux_hdl.cmac.project import write_cmac
from afflux_hdl.contract import management
from afflux_hdl.contract.management import Settings
from afflux_hdl.vivado import as02mc04

__all__ = ["main"]

EXAMPLE_MAC, EXAMPLE_ADDRESS, EXAMPLE_CONTROLLER = "02:af:fa:04:00:01", "10.77.0.9", "10.77.0.1"

PROJECTS = {as02mc04.TOP: as02mc04.write_project} | {
    name: partial(write_cmac, board=board) for name, board in BOARDS.items()
}
"""By board: what writes its project."""


def _mac(text: str) -> int:
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise argparse.ArgumentTypeError(f"a MAC address is like {EXAMPLE_MAC}, not {text!r}")
    return int(text.replace(":", ""), 16)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m afflux_hdl.vivado",
        description="Write a complete Vivado project for a board. Vivado itself is not needed.",
    )
    parser.add_argument("board", choices=sorted(PROJECTS))
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    parser.add_argument(
        "--key-file",
        type=Path,
        help="the key that the controller will know; OUTPUT/board.key if not given, which is made "
        "at random unless it is there",
    )
    parser.add_argument("--mac", type=_mac, default=_mac(EXAMPLE_MAC), metavar="MAC")
    parser.add_argument(
        "--address", default=EXAMPLE_ADDRESS, help="IPv4 address of the board, or 'dhcp'"
    )
    parser.add_argument(
        "--controller", default=EXAMPLE_CONTROLLER, help="IPv4 address of the only one to configure"
    )
    parser.add_argument("--port", type=int, default=management.PORT, help="UDP port, likewise")
    parser.add_argument("--name", default="", help="up to 16 characters, for people")
    parser.add_argument(
        "--build-time", type=int, default=0, help="seconds since 1970, for a register"
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    folder: Path = options.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / "board.key"
        if options.key_file is not None:
            key = read_key(options.key_file)
        else:
            key = read_key(own) if own.exists() else new_key(own)
        settings = Settings(
            mac=options.mac,
            address=None if options.address == "dhcp" else options.address,
            controller=options.controller,
            key=key,
            port=options.port,
            name=options.name,
        )
        files = PROJECTS[options.board](folder, settings=settings, build_time=options.build_time)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {options.board}: {error}")
    for path in files:
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
