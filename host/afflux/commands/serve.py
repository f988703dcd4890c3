"""An aggregator as a process: an engine behind a UDP socket, or on a board, until it is stopped.

With `--device` this process is a board's controller. The board's packets do not pass here, so sums
of jobs that run go on without it; another one takes the jobs over.

soft://, rtl:// and board:// start this file as a script (`python serve.py --engine soft …`), so it
imports nothing from the package above it, whose first import would load torch.
"""

import argparse
import contextlib
import ctypes
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afflux_drivers.addresses import authority, is_ipv6
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.board import Board, BoardFailed
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.job_journal import JobJournal, journal_of
from afflux_drivers.aggregator.jobs import NoRoom
from afflux_drivers.aggregator.peers import PEER_SHARE, REQUESTS_PER_S
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.control.secret import find_secret
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import canonical
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire

__all__ = ["READY", "add_arguments", "main", "serve"]

READY = "afflux: {engine} engine on udp://{authority}"
"""The line on standard output that reports where the aggregator listens."""

FAILED = "afflux: cannot serve: {error}"
"""The line on standard output if the engine does not start."""

_log = logging.getLogger("afflux")

_MOST = {"workers": wire.WORKERS_MAX, "lanes": wire.LANES_MAX}
_IN_HARDWARE = {**_MOST, "jobs": 8, "slots": 512}
# A job is a few numbers in software, but a row of every table in hardware; the board's are those of
# `afflux_sim.board.simulated_appliance.SIZES`, an ECP5 with 45,000 LUTs.
_DEFAULTS = {
    "soft": {**_MOST, "jobs": 64, "slots": 2048},
    "rtl": _IN_HARDWARE,
    "node": _IN_HARDWARE,
    "board": {"workers": 8, "lanes": 5, "jobs": 2, "slots": 16},
}

_QUEUE = 256
"""Full packets of five lanes are 350 KB, which the buffer of a small switch has for a port."""

_SIZES = ("workers", "lanes", "jobs", "slots")
_TTL_MAX = 255
_ENGINES = ("soft", "rtl", "node", "board")
_BUS_BITS = 512

_ONLY_WITH: dict[str, tuple[tuple[str, ...], object]] = {
    **dict.fromkeys(_SIZES, (_ENGINES, None)),
    "threads": (("soft",), 1),
    "bus_bits": (("rtl", "node"), _BUS_BITS),
    **dict.fromkeys(("waves", "waves_window"), (("rtl",), None)),
    "network_tap": (("node",), None),
    "host_tap": (("node",), None),
    "queue": (("device",), _QUEUE),
    "key_file": (("device",), None),
}
"""With which engines an option means something, and what it is if it is not given."""

_PR_SET_PDEATHSIG = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux serve`."""
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default="soft",
        help="software, the simulated engine behind this host's socket, the simulated node with "
        "ports of its own, or a complete simulated board, from pins to pins, and its controller "
        "(%(default)s)",
    )
    parser.add_argument(
        "--device",
        metavar="URL",
        help="instead of an engine: a board, udp://ADDRESS[:PORT] from its controller, or "
        "pcie://0000:3b:00.0 from the host of a card",
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="has the key of a board at udp:// (default: AFFLUX_DEVICE_KEY_FILE)",
    )
    parser.add_argument(
        "--queue",
        type=int,
        default=_QUEUE,
        help="full packets that the way to a board holds: the buffer of its switch port, for "
        "--device only (%(default)s)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to bind, of IPv4 or, for soft only, of IPv6; ::, all of both (%(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=wire.PORT,
        help="UDP and TCP port; 0: any free one (%(default)s)",
    )
    parser.add_argument("--workers", type=int, help="most workers of a job (board 8, others 64)")
    parser.add_argument("--lanes", type=int, help="most lanes of a slot (board 5, others 16)")
    parser.add_argument("--jobs", type=int, help="most jobs at once (soft 64, board 2, others 8)")
    parser.add_argument(
        "--slots", type=int, help="slots, shared by all jobs (soft 2048, board 16, others 512)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="threads that share the slots, for soft only (%(default)s)",
    )
    parser.add_argument(
        "--bus-bits",
        type=int,
        choices=[32, _BUS_BITS],
        default=_BUS_BITS,
        help="bus width, for rtl and node only (%(default)s)",
    )
    parser.add_argument(
        "--waves",
        metavar="FILE",
        help="write all of the engine's signals to FILE.fst or FILE.vcd, for rtl only",
    )
    parser.add_argument(
        "--waves-window",
        metavar="FROM:TO",
        help="only in these clock cycles; either may be left out",
    )
    parser.add_argument(
        "--network-tap",
        metavar="NAME",
        help="tap device at whose other end the network port is, for node only",
    )
    parser.add_argument(
        "--host-tap",
        metavar="NAME",
        help="tap device at whose other end the host port is, for node only; it has the address "
        "that --host names, and its MAC address is the node's",
    )
    parser.add_argument(
        "--group",
        type=_group,
        metavar="ADDRESS:PORT",
        help="multicast group to which each result goes once (default: once to each rank)",
    )
    parser.add_argument(
        "--group-ttl",
        type=int,
        default=1,
        help="number of routers on the way, plus one (%(default)s)",
    )
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument(
        "--secret-file",
        metavar="FILE",
        help="its secret is what clients must know to create jobs or read counters (default: "
        "AFFLUX_SECRET_FILE, or the secret in AFFLUX_SECRET)",
    )
    secret.add_argument(
        "--no-secret",
        action="store_true",
        help="whoever reaches the port may create jobs; without a secret, this must be said where "
        "other hosts reach it",
    )
    parser.add_argument(
        "--translated",
        action="store_true",
        help="with a secret: clients reach this port by another address or number than its own",
    )
    parser.add_argument(
        "--peer-share",
        type=float,
        default=PEER_SHARE,
        help="most of all jobs, slots and connections that one peer address may have while it is "
        "alone, 0 to 1 (%(default)s)",
    )
    parser.add_argument(
        "--requests-per-second",
        type=float,
        default=REQUESTS_PER_S,
        help="of a peer address, on the control channel; more are answered later (%(default)g)",
    )
    parser.add_argument(
        "--workers-may-move",
        action="store_true",
        help="let workers join from another address while their job runs, as behind a router that "
        "translates addresses and forgets its translations",
    )
    parser.add_argument(
        "--owner",
        type=int,
        metavar="PID",
        help="parent process; end with it, or when standard input ends",
    )
    parser.add_argument(
        "--owner-signal",
        action="store_true",
        help="also end with the thread that started this process (Linux)",
    )


def _group(text: str) -> MulticastGroup:
    try:
        return MulticastGroup.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def make_engine(arguments: argparse.Namespace) -> Engine | Board:
    """Make the engine that the options name.

    Raises:
        AffluxError: device was asked for and cannot be opened, or another process has it.
        RuntimeError: A simulated engine was asked for and its packages are not installed.
        ValueError: node was asked for without its ports, or device by what is none, or without key.
        OSError: A port of the node cannot be had.
    """
    if arguments.device:
        return _open_board(arguments)
    given = {name: getattr(arguments, name) for name in _SIZES}
    size = _DEFAULTS[arguments.engine] | {
        name: value for name, value in given.items() if value is not None
    }
    if arguments.engine == "soft":
        from afflux_drivers.aggregator.engine import SoftEngine

        return SoftEngine(**size, shares=arguments.threads)
    try:
        if arguments.engine == "node":
            return _make_board(arguments, size)
        if arguments.engine == "board":
            return _make_appliance(size)
        return _make_simulated(arguments, size)
    except ImportError as error:
        raise _rtl_is_missing(error) from error


def _make_simulated(arguments: argparse.Namespace, size: dict[str, Any]) -> Engine:
    from afflux_sim.rtl.verilated import VerilatedEngine
    from afflux_sim.rtl.waves import Waves

    waves = None
    if arguments.waves is not None:
        waves = Waves.parse(arguments.waves, arguments.waves_window)
    elif arguments.waves_window is not None:
        raise ValueError(f"--waves-window {arguments.waves_window}: this is for --waves only")
    engine = VerilatedEngine(bus_bits=arguments.bus_bits, **size, waves=waves)
    if engine.waves_path is not None:
        _log.warning("the engine's waves are in %s", engine.waves_path)
    return engine


def _open_board(arguments: argparse.Namespace) -> Board:
    from afflux_drivers.device.device import open_device
    from afflux_drivers.device.key import key_of_file

    if arguments.queue < 1:
        raise ValueError(f"--queue {arguments.queue}: the way to a board holds at least one packet")
    url = DeviceUrl.parse(arguments.device)
    file = arguments.key_file or os.environ.get("AFFLUX_DEVICE_KEY_FILE")
    device = open_device(url, key=None if file is None else key_of_file(file))
    try:
        return Board(device, "board", arguments.queue, apart=url.scheme == "udp")
    except BaseException:
        device.close()
        raise


def _journal(arguments: argparse.Namespace) -> JobJournal | None:
    """Return where the jobs of a board are written down; None for other engines, or nowhere."""
    if not arguments.device:
        return None
    # XDG Base Directory Specification: a relative path is as good as none.
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError as error:
            _log.warning(
                "the jobs of the board are not written down, so they end if this process does: "
                "there is no XDG_STATE_HOME, and no home: %s", error,
            )  # fmt: skip
            return None
    # The same by whatever name the board is reached.
    return JobJournal(journal_of(str(canonical(DeviceUrl.parse(arguments.device))), state))


def _make_board(arguments: argparse.Namespace, size: dict[str, int]) -> Board:
    if not arguments.network_tap or not arguments.host_tap:
        raise ValueError("a node needs --network-tap and --host-tap")
    from afflux_sim.board.simulated_board import open_board

    board, queue = open_board(arguments.network_tap, arguments.host_tap, arguments.bus_bits, **size)
    try:
        return Board(board, "node", queue)
    except BaseException:
        board.close()
        raise


def _make_appliance(size: dict[str, int]) -> Board:
    from afflux_sim.board.simulated_appliance import open_board_in_process

    board = open_board_in_process(**size)
    try:
        return Board(board, "board", _QUEUE, apart=True)
    except BaseException:
        board.close()
        raise


def _access(arguments: argparse.Namespace) -> Access:
    """Return who may use the control channel.

    Raises:
        ValueError: The secret cannot be used, or a number is out of range.
    """
    file, text = arguments.secret_file, None
    if file is None and not arguments.no_secret:
        file, text = (os.environ.get(name) for name in ("AFFLUX_SECRET_FILE", "AFFLUX_SECRET"))
    return Access(
        secret=find_secret(file, text),
        no_secret=arguments.no_secret,
        translated=arguments.translated,
        peer_share=arguments.peer_share,
        requests_per_s=arguments.requests_per_second,
    )


def _check_host(arguments: argparse.Namespace) -> None:
    """Say what is wrong with the host before an engine is built, which may take half a minute.

    Raises:
        ValueError: It cannot be right for this engine.
    """
    host = arguments.host
    if host.startswith("["):
        raise ValueError(f"--host {host}: here an address stands without brackets")
    if is_ipv6(host) and arguments.engine != "soft":
        raise ValueError(f"--host {host}: the engine {arguments.engine} has IPv4 only")


def _check_numbers(arguments: argparse.Namespace) -> None:
    """Say which number cannot be, by the name of its option.

    Raises:
        ValueError: One cannot be.
    """
    # getaddrinfo takes a port modulo 65536.
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port}: a port is from 0 to 65535")
    for name in _SIZES:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value}: there must be at least one")
    if not 1 <= arguments.group_ttl <= _TTL_MAX:
        raise ValueError(
            f"--group-ttl {arguments.group_ttl}: a packet may pass as many routers as 0 to "
            f"{_TTL_MAX - 1}, so this is from 1 to {_TTL_MAX}"
        )


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse an option that means nothing here: whoever gives it expects something of it.

    Raises:
        ValueError: One means nothing.
    """
    if arguments.device and arguments.engine != "soft":
        raise ValueError(f"--engine {arguments.engine}: --device is instead of an engine")
    for name, (engines, default) in _ONLY_WITH.items():
        option, value = f"--{name.replace('_', '-')}", getattr(arguments, name)
        if value == default or ("device" if arguments.device else arguments.engine) in engines:
            continue
        if arguments.device and name in _SIZES:
            raise ValueError(f"{option} {value}: a board has the sizes that it was built with")
        words = " and ".join("--device" if each == "device" else each for each in engines)
        raise ValueError(f"{option} {value}: this is for {words} only")


def _rtl_is_missing(error: ImportError) -> RuntimeError:
    return RuntimeError(
        f"the simulated engine needs the extra 'rtl' (pip install 'afflux[rtl]'): {error}"
    )


def _end_with_owner(owner: int, signalled: bool) -> None:
    # Two ways, as each has a gap: a forked copy of the owner keeps the pipe open; and the kernel's
    # signal comes when the owner's *thread* ends, so only a main thread asks for it.
    if signalled and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:
        raise SystemExit(0)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="afflux-owner", daemon=True).start()


def _say(line: str) -> None:
    # Nobody may read it, as below `| head -0`; the ranks need no words.
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _serve_forever(server: AggregatorServer) -> None:
    try:
        server.serve_forever()
    except BoardFailed as error:
        # Nothing of this program's, so where in it that was noticed helps nobody.
        _log.error("the board is lost, and its controller ends: %s", error)


def serve(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP, or the owner's end; return the exit status."""
    ready = threading.Event()
    stopped, stop = os.pipe()

    def terminate(*_: object) -> None:
        # A second signal may interrupt this, as when the owner's end is noticed in two ways. So
        # this takes no lock, for which it would wait for ever, and ignores all further signals.
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        os.write(stop, b"x")
        # Building a simulated engine takes half a minute and has no other place to stop.
        if not ready.is_set():
            raise SystemExit(0)

    def fail(error: str) -> int:
        # It ends by itself now.
        ready.set()
        _say(FAILED.format(error=error))
        return 1

    # Ctrl-C reaches the whole terminal; an owner decides when we are no longer needed.
    ends = [signal.SIGTERM] if arguments.owner else [signal.SIGTERM, signal.SIGINT]
    # The end of its terminal ends it as well, so that no job stays on a board; not below nohup.
    if not arguments.owner and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        ends.append(signal.SIGHUP)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in ends:
        signal.signal(number, terminate)
    if arguments.owner:
        _end_with_owner(arguments.owner, arguments.owner_signal)
    try:
        access = _access(arguments)
        _check_host(arguments)
        _check_numbers(arguments)
        _check_options(arguments)
        # The server reports what is wrong with the name.
        with contextlib.suppress(OSError):
            access.check_host(arguments.host)
        engine = make_engine(arguments)
    except Exception as error:
        return fail(" ".join(str(error).split()))
    try:
        try:
            server = AggregatorServer(
                engine,
                arguments.host,
                arguments.port,
                arguments.group,
                arguments.group_ttl,
                access,
                arguments.workers_may_move,
                _journal(arguments),
            )
        except OSError as error:
            where = authority(arguments.host, arguments.port)
            return fail(f"{where}: {error.strerror or error}")
        except (BoardFailed, NoRoom) as error:
            return fail(f"{arguments.device or engine.name}: {error}")
        thread = threading.Thread(target=_serve_forever, args=(server,), name="afflux-server")
        # From now on a signal is noticed below: there is a thread to be ended first.
        ready.set()
        thread.start()
        where = authority(*server.address)
        _say(READY.format(engine=engine.name, authority=where))
        asked = False
        while not asked and thread.is_alive():
            asked = bool(select.select([stopped], [], [], 0.5)[0])
        server.stop()
        thread.join()
        return 0 if asked else 1
    finally:
        engine.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(prog="afflux serve", description=__doc__)
    add_arguments(parser)
    return serve(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
