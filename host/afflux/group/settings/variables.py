"""Every environment variable that Afflux reads, in one table.

| variable | unit, default | meaning |
|---|---|---|
| AFFLUX_AGGREGATOR | auto or URL, auto | where sums are made: auto is shm:// if all ranks are on one host, else streams://; shm:// insists on the memory that they share; streams:// has TCP connections between the ranks; gloo:// leaves all to Gloo; soft:// or rtl://[?bus_bits=512] start an engine beside rank 0 (?group=address:port: results go to that multicast group; rtl://?waves=file.fst[&waves_window=from:to]: all signals of the engine go to that file), board:// a complete simulated board and its controller (ranks of one host only), udp://host:port uses one that runs (?parent=host:port: below that one), udp://host:port,udp://host:port several that share the columns; an IPv6 address stands in brackets; NCCL's plugin takes udp:// and streams:// (`docs/nccl.md`) |
| AFFLUX_SPARE | URLs, none | aggregators that take the place of those of AFFLUX_AGGREGATOR when these die, in this order, before the ranks sum by themselves: udp://host:port or streams://host:port, or several with commas between, of streams alone in place of one of streams; rank 0's count, and have the same secret (`docs/reliability.md`) |
| AFFLUX_INTERFACE | name, address or network, the one that routes to the others | of this host, for streams: eth0, 10.0.0.4, 10.0.0.0/24 or fd00::/64; several, as eth1,eth2, all carry the data; unset, GLOO_SOCKET_IFNAME counts |
| AFFLUX_REQUIRE | 0 or 1, 0 | with 1, ranks for which only Gloo is left get an error, and so do those whose aggregators, spare ones included, have died: without it their sums go on over streams or Gloo (`docs/reliability.md`), and those of NCCL's nodes over streams (`docs/nccl.md`) |
| AFFLUX_ROUNDING | exact or host, exact | with host, a host with several ranks rounds their sum before it sends it, in fewer bytes, and the sum of the hosts is rounded once more: what bits come then depends on which ranks share a host (`docs/accuracy.md`) |
| AFFLUX_THREADS | 1-16 or auto, auto | threads of a rank that move data between hosts, where these sum over streams, each with connections of its own; the least of all ranks counts; auto: one for each 10 Gbit/s of the interface, if the rank has as many processors |
| AFFLUX_CARRIER | tcp, ucx or auto, tcp | what carries the streams between hosts: TCP connections, or UCX, which uses RDMA where there are devices; ucx is an error where a rank lacks it, and UCX's own variables, as UCX_TLS and UCX_NET_DEVICES, choose its transports; auto is ucx if each rank has an RDMA device and a UCX library for it, else tcp (`docs/streams.md`) |
| AFFLUX_DEVICE_BLOCKS | auto, on or off, auto | whether all-reduces on a GPU, of more than 4 MiB, look there for blocks that are zeros at all ranks, and leave them there: auto looks less often at tensors of which more than half came, on looks at each (`docs/devices.md`) |
| AFFLUX_LANES | 1-16, from the MTU | most blocks in a packet |
| AFFLUX_SLOTS | 1-512, 32 | packets that a rank may have in flight; the aggregator may give less |
| AFFLUX_CONNECT_TIMEOUT | seconds, 10 | to reach an aggregator and to join it, or to connect with the other ranks |
| AFFLUX_START_TIMEOUT | seconds, 900 | for an engine to start (rtl:// and board:// may first build theirs) |
| AFFLUX_PEER_TIMEOUT | seconds, 5 | silence after which the aggregator counts as dead, though nothing says so: sums then go on without it |
| AFFLUX_FAIL_BACK | seconds or 0, 5 | how often rank 0 looks whether an aggregator of AFFLUX_AGGREGATOR or AFFLUX_SPARE answers (not one below another), while its group sums without: then all ranks use it, from one call on; 0: never (`docs/reliability.md`) |
| AFFLUX_LEASE | seconds 4-3600, 60 | silence of rank 0 after which an aggregator that was not started by it ends the group's jobs, as when its process is stopped or its host is gone; a thread renews the lease |
| AFFLUX_CLOSE_TIMEOUT | seconds, 10 | for operations in flight, and then for the other ranks, when a group ends |
| AFFLUX_ADAPTER | auto, native or python, auto | what stands between torch and a group: native is compiled for the installed torch when it is first needed, python needs no compiler; auto is native where it compiles |
| AFFLUX_SECRET_FILE | file, none | has the secret of the control channels of the aggregators that AFFLUX_AGGREGATOR names, and of `afflux serve` (16 bytes at least, mode 600): `docs/security.md`; aggregators that ranks start have a secret anyway |
| AFFLUX_SECRET | text, none | the secret itself, where there is no such file; every program that the ranks start inherits it |
| AFFLUX_DEVICE_KEY_FILE | file, none | has the 128-bit key of the appliances that `afflux device` and `afflux serve device` control (16 bytes or 32 hexadecimal digits, mode 600): `docs/boards.md` |
| AFFLUX_SCHEME | words, none | the scheme that `afflux.hooks.register(ddp)` takes: `afflux.scheme_words` |
| AFFLUX_BUILD | fast or quick, fast | whether the simulated engine is to run fast or to be built quickly; `afflux_sim.rtl.compile.verilator` reads it |
| AFFLUX_TRACE | file or folder, none | one line of JSON for each collective goes there (%r: global rank, %p: process); `afflux.observe.trace_file` |
| AFFLUX_CACHE | folder | where the simulated engine's builds and native adapters are kept; `afflux_sim.rtl.compile.cache` reads it |
| AFFLUX_NCCL_BYTES | ranges, those of AFFLUX_NCCL_TABLE | sizes in bytes of the all-reduces that NCCL's tuner sends through the aggregator, and of no others, as 0:1048576 or 0:1024,65536: or none; the same at all nodes (`docs/nccl.md`) |
| AFFLUX_NCCL_JOBS | 1-8, 2 | jobs of a communicator of NCCL, over which its operations in flight are spread; where an aggregator has no more room, fewer; NCCL's plugin reads it (`docs/nccl.md`) |
| AFFLUX_NCCL_STREAMS | 1-8, 4 | TCP streams of a connection of NCCL's plugin, at most: a process with many open files makes fewer (`docs/nccl.md`) |
| AFFLUX_NCCL_TABLE | path, the plugin's own | a file with the sizes of the all-reduces for which an aggregator was faster than a ring, by engine, link and number of nodes; the same at all nodes (`docs/nccl.md`) |
| AFFLUX_TEST_LOSS | share 0-1, 0 | tests only: share of packets that each rank drops, each way |
| AFFLUX_TEST_SEED | integer, 0 | tests only: seed of these drops |

All ranks of a group must agree on AFFLUX_ROUNDING, on AFFLUX_CARRIER, on AFFLUX_DEVICE_BLOCKS, and on AFFLUX_AGGREGATOR, or, where each has a parent, on the parent. An AFFLUX_ variable that is not in this table
is reported with a warning: it is a spelling mistake or of another version.
"""  # noqa: E501 - a table row is one line

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers.control.secret import find_secret
from afflux_drivers.errors import AffluxError
from afflux_hdl.contract import wire

__all__ = ["READ_ELSEWHERE", "VARIABLES", "Settings", "SettingsError"]

_log = logging.getLogger("afflux")

_DEFAULT_AGGREGATOR = AggregatorUrl("auto")

_N = TypeVar("_N", int, float)


class SettingsError(AffluxError):
    """A variable has a value that it cannot have; the message names both, and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """The values for one group, read once when it is made. Times are in seconds."""

    aggregator: AggregatorUrl = _DEFAULT_AGGREGATOR
    spare: tuple[AggregatorUrl, ...] | None = None
    lanes: int | None = None
    slots: int = 32
    connect_timeout_s: float = 10.0
    start_timeout_s: float = 900.0
    interface: tuple[str, ...] | None = None
    require: bool = False
    rounding: str = "exact"
    carrier: str = "tcp"
    device_blocks: str = "auto"
    threads: int | None = None
    peer_timeout_s: float = 5.0
    fail_back_s: float = 5.0
    lease_s: int = 60
    close_timeout_s: float = 10.0
    trace: str | None = None
    adapter: str = "auto"
    scheme: str | None = None
    secret_file: str | None = None
    secret: str | None = field(default=None, repr=False)
    device_key_file: str | None = None
    test_loss: float = 0.0
    test_seed: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Read the table above; warn of unknown variables.

        Raises:
            SettingsError: A value does not parse or is out of range.
        """
        variables = os.environ if environment is None else environment
        values: dict[str, object] = {}
        for name, text in variables.items():
            if not name.startswith("AFFLUX_") or name in READ_ELSEWHERE:
                continue
            if name not in VARIABLES:
                _warn_once(name)
                continue
            place, parse = VARIABLES[name]
            try:
                values[place] = parse(text.strip())
            except ValueError as error:
                raise SettingsError(f"{name}={text!r}: {error}") from None
        return cls(**values)  # type: ignore[arg-type]

    def control_secret(self) -> bytes | None:
        """Read the secret of the aggregators that are named; None if there is none.

        It is read when it is needed, which is at rank 0: other hosts may lack the file.

        Raises:
            SettingsError: The file cannot be used, or what is given cannot be a secret.
        """
        try:
            return find_secret(self.secret_file, self.secret)
        except ValueError as error:
            name = "AFFLUX_SECRET" if self.secret_file is None else "AFFLUX_SECRET_FILE"
            raise SettingsError(f"{name}: {error}") from None


_warned: set[str] = set()


def _warn_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        _log.warning(
            "unknown environment variable %s is ignored; known are %s",
            name,
            ", ".join([*VARIABLES, *sorted(READ_ELSEWHERE)]),
        )


def _number(
    kind: Callable[[str], _N], allowed: Callable[[_N], bool], must_be: str
) -> Callable[[str], _N]:
    """Make a parser whose error names what is allowed, for a wrong number or none at all."""

    def parse(text: str) -> _N:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"must be {must_be}") from None
        if not allowed(value):
            raise ValueError(f"must be {must_be}")
        return value

    return parse


def _integer(low: int, high: int) -> Callable[[str], int]:
    return _number(int, lambda value: low <= value <= high, f"an integer from {low} to {high}")


_seconds = _number(float, lambda value: 0 < value < float("inf"), "a positive number of seconds")
_interval = _number(
    float, lambda value: 0 <= value < float("inf"), "a number of seconds, or 0 for never"
)
_share = _number(float, lambda value: 0 <= value < 1, "a share, at least 0 and less than 1")


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("must be 0 or 1")
    return text == "1"


def _interfaces(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if "" in names or len(set(names)) < len(names):
        raise ValueError("must be an interface, or several different ones, as eth1,eth2")
    return names


def _spare(text: str) -> tuple[AggregatorUrl, ...]:
    found = tuple(AggregatorUrl.parse(each.strip()) for each in text.split(","))
    if any(not each.host or each.parent is not None for each in found):
        raise ValueError("must be udp:// or streams://host:port, or several with commas between")
    return found


def _adapter(text: str) -> str:
    if text not in ("auto", "native", "python"):
        raise ValueError("must be auto, native or python")
    return text


def _threads(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return _integer(1, 16)(text)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


def _rounding(text: str) -> str:
    if text not in ("exact", "host"):
        raise ValueError("must be exact or host")
    return text


def _carrier(text: str) -> str:
    if text not in ("tcp", "ucx", "auto"):
        raise ValueError("must be tcp, ucx or auto")
    return text


def _device_blocks(text: str) -> str:
    if text not in ("auto", "on", "off"):
        raise ValueError("must be auto, on or off")
    return text


READ_ELSEWHERE = frozenset(
    {
        "AFFLUX_BUILD",
        "AFFLUX_CACHE",
        "AFFLUX_NCCL_BYTES",
        "AFFLUX_NCCL_JOBS",
        "AFFLUX_NCCL_STREAMS",
        "AFFLUX_NCCL_TABLE",
    }
)
"""Variables that groups do not read, but the simulation, wherever it is built, or NCCL's plugin."""

VARIABLES: dict[str, tuple[str, Callable[[str], object]]] = {
    "AFFLUX_AGGREGATOR": ("aggregator", AggregatorUrl.parse),
    "AFFLUX_SPARE": ("spare", _spare),
    "AFFLUX_INTERFACE": ("interface", _interfaces),
    "AFFLUX_REQUIRE": ("require", _switch),
    "AFFLUX_ROUNDING": ("rounding", _rounding),
    "AFFLUX_THREADS": ("threads", _threads),
    "AFFLUX_CARRIER": ("carrier", _carrier),
    "AFFLUX_DEVICE_BLOCKS": ("device_blocks", _device_blocks),
    "AFFLUX_LANES": ("lanes", _integer(1, wire.LANES_MAX)),
    "AFFLUX_SLOTS": ("slots", _integer(1, 512)),
    "AFFLUX_CONNECT_TIMEOUT": ("connect_timeout_s", _seconds),
    "AFFLUX_START_TIMEOUT": ("start_timeout_s", _seconds),
    "AFFLUX_PEER_TIMEOUT": ("peer_timeout_s", _seconds),
    "AFFLUX_FAIL_BACK": ("fail_back_s", _interval),
    "AFFLUX_LEASE": ("lease_s", _integer(4, 3600)),
    "AFFLUX_CLOSE_TIMEOUT": ("close_timeout_s", _seconds),
    "AFFLUX_TRACE": ("trace", str),
    "AFFLUX_ADAPTER": ("adapter", _adapter),
    "AFFLUX_SECRET_FILE": ("secret_file", str),
    "AFFLUX_SECRET": ("secret", str),
    "AFFLUX_DEVICE_KEY_FILE": ("device_key_file", str),
    "AFFLUX_SCHEME": ("scheme", str),
    "AFFLUX_TEST_LOSS": ("test_loss", _share),
    "AFFLUX_TEST_SEED": ("test_seed", _integer(0, 2**31 - 1)),
}
"""For each variable its field in `Settings`, and what makes a value of its text."""
