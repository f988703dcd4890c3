"""`python -m afflux_sim.board`: a simulated board alone, as a real one is without a controller.

It prints where it is, and runs until SIGTERM or Ctrl-C. It is used like a board on a table: `afflux
device show`, `afflux serve device`.
"""

import argparse
import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from afflux_drivers.device.key import key_of_file
from afflux_drivers.errors import AffluxError
from afflux_hdl.contract import management, wire
from afflux_sim.board.simulated_appliance import (
    SIZES,
    BoardInProcess,
    SimulatedAppliance,
    board_parameters,
    board_settings,
)
from afflux_sim.rtl.verilated_board import VerilatedBoard
from afflux_sim.rtl.verilated_model import SimulationError

__all__ = ["main"]

READY = "afflux: simulated board at udp://{}:{}, its engine's port is {}"
"""The line on standard output when it answers."""

FAILED = "afflux: cannot simulate a board: {}"
"""The line on standard error if it does not start."""

_STARTING = "afflux: starting a simulated board (the first time, it is compiled: half a minute)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m afflux_sim.board", description=__doc__)
    parser.add_argument(
        "--port",
        type=_port,
        default=management.PORT,
        help="UDP port of the management; 0: any free one (%(default)s)",
    )
    parser.add_argument(
        "--engine-port",
        type=_port,
        default=wire.PORT,
        help="UDP port of the engine; 0: any free one (%(default)s)",
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        required=True,
        help="has the board's key; if it is not there, one is made, mode 600",
    )
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size, help="of the engine (%(default)s)")
    arguments = parser.parse_args(argv)
    stopped, ready = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        # A compiler at work is ended, and not waited for.
        if not ready.is_set():
            raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        with contextlib.suppress(FileExistsError):
            _make_key(arguments.key_file)
        key = key_of_file(str(arguments.key_file))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(_STARTING, file=sys.stderr, flush=True)
    try:
        sizes = {name: getattr(arguments, name) for name in SIZES}
        board = VerilatedBoard(board_parameters(**sizes), board_settings(key))
        appliance = SimulatedAppliance(board, arguments.engine_port, arguments.port)
        # The port is said to the board; then its registers are left to whoever comes.
        BoardInProcess(appliance, key).leave()
    except (AffluxError, OSError, RuntimeError, ValueError) as error:
        print(FAILED.format(error), file=sys.stderr)
        return 1
    try:
        ready.set()
        print(READY.format(*appliance.management, appliance.address[1]), flush=True)
        while not stopped.wait(0.5):
            appliance.check()
        return 0
    except SimulationError as error:
        print(FAILED.format(error), file=sys.stderr)
        return 1
    finally:
        appliance.close()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def _make_key(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w", encoding="ascii") as text:
            text.write(f"{secrets.token_hex(16)}\n")
    except BaseException:
        # Half a key would be found the next time.
        path.unlink()
        raise


if __name__ == "__main__":
    sys.exit(main())
