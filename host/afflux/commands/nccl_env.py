"""The command `afflux nccl-env`: what to export so that NCCL sums through an aggregator."""

import argparse
import ctypes
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from afflux.commands.info.aggregators import ask
from afflux.commands.nccl_sizes import read_times, table_line, winning
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.option_types import checked, seconds

__all__ = ["add_arguments", "library_path", "run"]

_LIBRARY = "libnccl-net-afflux.so"
_TABLES = (8, 9, 10, 11, 12)
_NCCL_WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_OLDEST_NCCL = (2, 20)
"""It is the first that asks for version 8 of the tables."""

_LOGGER = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p,
    ctypes.c_char_p,
)  # fmt: skip


class Finding(NamedTuple):
    """One check: whether it is well, and what was seen."""

    good: bool
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux nccl-env`."""
    parser.add_argument(
        "url",
        nargs="?",
        type=checked(_named),
        metavar="URL",
        help="udp://host[:port], several with commas between, or streams://[host[:port]]; "
        "default: AFFLUX_AGGREGATOR",
    )
    parser.add_argument(
        "--conf", action="store_true", help="print lines for nccl.conf, which NCCL reads itself"
    )
    parser.add_argument(
        "--timeout",
        type=seconds(3600),
        default=2.0,
        metavar="SECONDS",
        help="for the aggregator's answer (%(default)s)",
    )
    measured = parser.add_argument_group(
        "a table of sizes", "instead: print a line for the file that AFFLUX_NCCL_TABLE names"
    )
    measured.add_argument(
        "--measured",
        nargs=2,
        type=Path,
        metavar=("RING", "AGGREGATOR"),
        help="two outputs of nccl-tests' all_reduce_perf: with NCCL_COLLNET_ENABLE=0, and with "
        "NCCL_ALGO=allreduce:collnetchain",
    )
    measured.add_argument("--nodes", type=int, metavar="N", help="that it ran on")
    measured.add_argument(
        "--gbit", type=float, metavar="RATE", help="of their links, as /sys/class/net has it"
    )
    measured.add_argument(
        "--engine",
        metavar="KIND",
        help="that summed; default: as the aggregator answers; of streams:// mesh, or streams "
        "with an aggregator",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the variables, and as comments what was checked; return 1 if something is missing."""
    try:
        url = arguments.url or _named(os.environ.get("AFFLUX_AGGREGATOR", ""))
    except ValueError as error:
        print(f"afflux nccl-env: AFFLUX_AGGREGATOR: {error}", file=sys.stderr)
        return 1
    if arguments.measured is not None:
        return _print_line(arguments, url)
    path = library_path()
    findings = [
        *_library(path, url),
        _nccl(),
        *_aggregators(AggregatorUrl.parse(url), arguments.timeout),
    ]
    for good, text in findings:
        print(f"# {'ok' if good else 'MISSING'}: {text}")
    for name, value in (
        ("NCCL_NET_PLUGIN", str(path)),
        ("NCCL_COLLNET_ENABLE", "1"),
        ("AFFLUX_AGGREGATOR", url),
    ):
        print(f"{name}={value}" if arguments.conf else f"export {name}={shlex.quote(value)}")
    return 0 if all(good for good, _ in findings) else 1


def _print_line(arguments: argparse.Namespace, url: str) -> int:
    """Print a line of the table of sizes; return 1 if something is missing."""
    try:
        if arguments.nodes is None or arguments.gbit is None:
            raise ValueError("--measured needs --nodes and --gbit")
        engine = arguments.engine or _engine(url, arguments.timeout)
        ring, aggregator = map(read_times, arguments.measured)
    except (OSError, ValueError) as error:
        print(f"afflux nccl-env: {error}", file=sys.stderr)
        return 1
    print(table_line(engine, arguments.gbit, arguments.nodes, winning(ring, aggregator)))
    return 0


def _engine(url: str, timeout_s: float) -> str:
    """Return the kind of engine that the table has for an aggregator.

    Raises:
        ValueError: It does not answer.
    """
    where = AggregatorUrl.parse(url)
    if where.scheme == "streams":
        return "streams" if where.host else "mesh"
    about = ask(where.each[0], timeout_s)
    if "error" in about:
        raise ValueError(f"{url}: {about['error']}; or give --engine")
    return str(about["engine"])


def _named(text: str) -> str:
    """Return where sums are to be made, in full.

    Raises:
        ValueError: The plugin cannot have them there.
    """
    if text.startswith("streams:"):
        return str(AggregatorUrl.parse(text))
    url = AggregatorUrl.parse_running(text)
    if url.parent is not None:
        raise ValueError(f"{text!r}: NCCL's plugin knows no trees of aggregators")
    return str(url)


def library_path() -> Path:
    """Return where the plugin is, or would be."""
    from afflux_drivers import _native

    return Path(_native.__file__).resolve().parent / _LIBRARY


def _library(path: Path, url: str) -> Iterator[Finding]:
    """Open the plugin as NCCL does, and ask it for its devices."""
    try:
        library = ctypes.CDLL(str(path))
        missing = [each for each in _TABLES if not hasattr(library, f"ncclCollNetPlugin_v{each}")]
    except OSError as error:
        yield Finding(False, f"the plugin cannot be opened: {error}")
        return
    if missing:
        yield Finding(False, f"{path} lacks the tables of version {missing}: it is another library")
        return
    yield Finding(True, f"the plugin is {path}")
    # The plugin reads it there, and chooses the interface that leads to the aggregator.
    os.environ["AFFLUX_AGGREGATOR"] = url
    yield _devices(library)
    yield _libcrypto()


def _devices(library: ctypes.CDLL) -> Finding:
    table = (ctypes.c_void_p * 19).in_dll(library, "ncclNetPlugin_v8")
    said: list[str] = []

    def log(level: int, flags: int, file: Any, line: int, form: Any, text: bytes) -> None:
        said.append(text.decode())

    logger = _LOGGER(log)
    init = ctypes.CFUNCTYPE(ctypes.c_int, _LOGGER)(table[1] or 0)
    good = init(logger) == 0
    return Finding(good, "; ".join(each.removeprefix("NET/Afflux: ") for each in said))


def _libcrypto() -> Finding:
    for name in ("libcrypto.so.3", "libcrypto.so.1.1"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return Finding(True, f"{name} is here, by which nodes prove who they are")
    return Finding(False, "OpenSSL's libcrypto, by which nodes prove who they are: libssl3")


def _nccl() -> Finding:
    """Return the NCCL that torch of this environment has."""
    for wheel in _NCCL_WHEELS:
        try:
            found = metadata.version(wheel)
        except metadata.PackageNotFoundError:
            continue
        numbers = tuple(map(int, found.split(".")[:2]))
        return Finding(numbers >= _OLDEST_NCCL, f"NCCL {found} of {wheel}; 2.20 is the oldest")
    return Finding(
        True, "no wheel of NCCL is in this environment; the program's own must be 2.20 or later"
    )


def _aggregators(url: AggregatorUrl, timeout_s: float) -> Iterator[Finding]:
    if url.scheme == "udp":
        yield from (_aggregator(each, timeout_s) for each in url.each)
    elif url.host:
        yield _streams_aggregator(url, timeout_s)


def _streams_aggregator(url: AggregatorUrl, timeout_s: float) -> Finding:
    # It says nothing before a node's claim, and has no control channel to ask.
    try:
        with socket.create_connection((url.host, url.port), timeout_s):
            return Finding(True, f"{url} accepts connections")
    except OSError as error:
        return Finding(False, f"{url}: {error}")


def _aggregator(url: str, timeout_s: float) -> Finding:
    about = ask(url, timeout_s)
    if "error" in about:
        return Finding(False, f"{url}: {about['error']}")
    return Finding(
        True,
        f"{url} answers: {about['engine']}, for {about['workers']} nodes and {about['jobs']} jobs "
        f"at most, reached from {about['from_address']}",
    )
