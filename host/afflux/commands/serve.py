"""`afflux serve`: an aggregator as a process: of streams, of UDP packets, or of a board.

soft://, rtl:// and board:// start this file as a script (`python serve.py soft …`), so it imports
nothing from the package above it, whose first import would load torch.
"""

import argparse
import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from afflux_drivers.addresses import authority, is_ipv6
from afflux_drivers.aggregator.board import Board, BoardFailed
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.aggregator.job_journal import journal_of
from afflux_drivers.aggregator.process import Server, log_to_error_output, serve_until_stopped
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.aggregator.server_options import access_of, server_options
from afflux_drivers.aggregator.streams_server import StreamsServer
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.option_types import checked, whole
from afflux_drivers.registers import Registers
from afflux_hdl.contract import wire

__all__ = ["SIZES", "add_arguments", "main", "run"]

_MOST = {"workers": wire.WORKERS_MAX, "lanes": wire.LANES_MAX}
_IN_HARDWARE = {**_MOST, "jobs": 8, "slots": 512}
SIZES = {
    "soft": {**_MOST, "jobs": 64, "slots": 2048},
    "rtl": _IN_HARDWARE,
    "node": _IN_HARDWARE,
    "board": {"workers": 8, "lanes": 5, "jobs": 2, "slots": 16},
}
"""The sizes of engines, unless options say otherwise. A job is a few numbers in software, but
a row of every table in hardware; the board's are those of
`afflux_sim.board.simulated_appliance.SIZES`, an ECP5 with 45,000 LUTs."""

_QUEUE = 256
"""Full packets of five lanes are 350 KB, which the buffer of a small switch has for a port."""

_log = logging.getLogger("afflux")


def main(words: Sequence[str] | None = None) -> int:
    """Run the script, as `afflux serve` would, with options as they are spelt now."""
    parser = argparse.ArgumentParser(prog="afflux serve")
    parser.set_defaults(parser=parser)
    add_arguments(parser)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        arguments.parser.error(arguments.about_unknown(unknown))
    return run(arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux serve`."""
    engines = parser.add_subparsers(title="engines", metavar="ENGINE", dest="engine")
    for name, make, text in (
        ("streams", None, "software, by TCP, on this host's processors"),
        ("soft", _soft, "software, by UDP packets as an engine in hardware takes them"),
        ("rtl", _rtl, "the gateware, simulated, behind this host's socket"),
        ("node", _node, "a node, simulated, between two tap devices"),
        ("board", _board, "a whole board, simulated from pins to pins"),
        ("device", _device, "a board, by the URL of its registers"),
    ):
        engine = engines.add_parser(
            name,
            help=text,
            usage=f"%(prog)s [options]{' URL' if name == 'device' else ''}",
            description=f"An aggregator: {text}.",
            parents=[_own_options(name), server_options(packets=make is not None)],
        )
        engine.set_defaults(make=make, parser=engine)
    parser.set_defaults(run=run, about_unknown=lambda unknown: _about(unknown, engines.choices))


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status."""
    if arguments.engine is None:
        arguments.parser.print_help(sys.stderr)
        return 2
    # Ranks that start one for themselves want to hear only of trouble.
    usual = logging.WARNING if arguments.owner else logging.INFO
    with log_to_error_output(arguments.log_level or usual):
        return serve_until_stopped(_serving(arguments), arguments.owner, arguments.owner_signal)


def _about(unknown: Sequence[str], engines: dict[str, argparse.ArgumentParser]) -> str:
    """Return what to type instead of words that an engine's options do not have."""
    option = unknown[0].partition("=")[0]
    having = [
        f"`afflux serve {name}`"
        for name, parser in engines.items()
        if option in re.findall(r"--[a-z-]+", parser.format_help())
    ]
    hint = f"it is one of {' and '.join(having)}" if having else "--help lists the options"
    return f"{' '.join(unknown)}: this engine has no such option; {hint}"


def _own_options(engine: str) -> argparse.ArgumentParser:
    """Return a parser with the options that one engine has."""
    parser = argparse.ArgumentParser(add_help=False)
    if engine == "streams":
        return parser
    add = parser.add_argument_group("the engine").add_argument
    if engine == "device":
        parser.add_argument(
            "url",
            metavar="URL",
            type=checked(DeviceUrl.parse),
            help="udp://ADDRESS[:PORT] from a board's controller, or pcie://0000:3b:00.0 from the "
            "host of a card",
        )
        add(
            "--key-file",
            metavar="FILE",
            help="has the key of a board at udp:// (default: AFFLUX_DEVICE_KEY_FILE)",
        )
        add(
            "--queue",
            type=whole(1),
            metavar="N",
            default=_QUEUE,
            help="full packets that the way to the board holds: the buffer of its switch port "
            "(%(default)s)",
        )
        return parser
    for name, text in (
        ("workers", "most workers of a job"),
        ("lanes", "most lanes of a slot"),
        ("jobs", "most jobs at once"),
        ("slots", "slots, shared by all jobs"),
    ):
        default = SIZES[engine][name]
        add(f"--{name}", type=whole(1), metavar="N", default=default, help=f"{text} (%(default)s)")
    if engine == "soft":
        add(
            "--threads", type=int, metavar="N", default=1, help="they share the slots (%(default)s)"
        )
    if engine in ("rtl", "node"):
        add("--bus-bits", type=int, choices=[32, 512], default=512, help="bus width (%(default)s)")
    if engine == "rtl":
        add("--waves", metavar="FILE", help="write the engine's signals to FILE.fst or FILE.vcd")
        add("--waves-window", metavar="FROM:TO", help="in these clock cycles; either may be absent")
    if engine == "node":
        tap = "tap device at whose other end the"
        add("--network-tap", metavar="NAME", required=True, help=f"{tap} network port is")
        add(
            "--host-tap",
            metavar="NAME",
            required=True,
            help=f"{tap} host port is; it has the address that --host names, and its MAC address "
            "is the node's",
        )
    return parser


def _soft(arguments: argparse.Namespace) -> SoftEngine:
    return SoftEngine(**_size(arguments), shares=arguments.threads)


def _rtl(arguments: argparse.Namespace) -> Engine:
    from afflux_sim.rtl.verilated import VerilatedEngine
    from afflux_sim.rtl.waves import Waves

    waves, window = None, arguments.waves_window
    if arguments.waves is not None:
        waves = Waves.parse(arguments.waves, window)
    elif window is not None:
        raise ValueError(f"--waves-window {window}: name the file too, by --waves FILE")
    engine = VerilatedEngine(bus_bits=arguments.bus_bits, **_size(arguments), waves=waves)
    if engine.waves_path is not None:
        _log.warning("the engine's waves are in %s", engine.waves_path)
    return engine


def _node(arguments: argparse.Namespace) -> Board:
    from afflux_sim.board.simulated_board import open_board

    taps = arguments.network_tap, arguments.host_tap
    port, queue = open_board(*taps, arguments.bus_bits, **_size(arguments))
    return _board_at(port, "node", queue)


def _board(arguments: argparse.Namespace) -> Board:
    from afflux_sim.board.simulated_appliance import open_board_in_process

    return _board_at(open_board_in_process(**_size(arguments)), "board", _QUEUE, apart=True)


def _device(arguments: argparse.Namespace) -> Board:
    from afflux_drivers.device.device import open_device
    from afflux_drivers.device.key import key_of_file

    file = arguments.key_file or os.environ.get("AFFLUX_DEVICE_KEY_FILE")
    port = open_device(arguments.url, key=None if file is None else key_of_file(file))
    return _board_at(port, "board", arguments.queue, apart=arguments.url.scheme == "udp")


def _board_at(port: Registers, name: str, queue: int, *, apart: bool = False) -> Board:
    try:
        return Board(port, name, queue, apart=apart)
    except BaseException:
        port.close()
        raise


def _size(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in SIZES[arguments.engine]}


@contextlib.contextmanager
def _serving(arguments: argparse.Namespace) -> Iterator[Server]:
    """Yield the server that the options describe, and end its engine afterwards.

    Raises:
        AffluxError: A device cannot be opened, or another process has it.
        OSError: A port of a node cannot be had.
        RuntimeError: The packages of a simulated engine are not installed; there is no room on a
            board, or it does not answer; the address cannot be bound.
        ValueError: An option cannot be.
    """
    access = access_of(arguments, os.environ)
    host = arguments.host
    # Before an engine is built, which may take half a minute.
    if host.startswith("["):
        raise ValueError(f"--host {host}: here an address stands without brackets")
    if is_ipv6(host) and arguments.engine not in ("soft", "streams"):
        raise ValueError(f"--host {host}: the engine {arguments.engine} has IPv4 only")
    # The server reports what is wrong with the name.
    with contextlib.suppress(OSError):
        access.check_host(host)
    if arguments.engine == "streams":
        with _bound_at(host, arguments.port):
            streams = StreamsServer(host, arguments.port, access)
        yield streams
        return
    try:
        engine = arguments.make(arguments)
    except ImportError as error:
        raise RuntimeError(
            f"the simulated engine needs the extra 'rtl' (pip install 'afflux[rtl]'): {error}"
        ) from error
    with contextlib.closing(engine):
        url = arguments.url if arguments.engine == "device" else None
        try:
            with _bound_at(host, arguments.port):
                server = AggregatorServer(
                    engine,
                    host,
                    arguments.port,
                    arguments.group,
                    arguments.group_ttl,
                    access,
                    arguments.workers_may_move,
                    None if url is None else journal_of(url, os.environ.get("XDG_STATE_HOME", "")),
                )
        except (BoardFailed, NoRoom) as error:
            raise RuntimeError(f"{url or engine.name}: {error}") from error
        yield server


@contextlib.contextmanager
def _bound_at(host: str, port: int) -> Iterator[None]:
    """Name the address in errors of sockets."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(f"{authority(host, port)}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
