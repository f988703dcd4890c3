"""The options of an aggregator that are the same for all engines."""

import argparse
from collections.abc import Mapping

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.peers import PEER_SHARE, REQUESTS_PER_S
from afflux_drivers.control.secret import find_secret
from afflux_drivers.option_types import checked, whole
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire

__all__ = ["LOG_LEVELS", "access_of", "server_options"]

LOG_LEVELS = ("debug", "info", "warning", "error")
"""The values of --log-level."""

_PORT_MAX = (1 << 16) - 1
_TTL_MAX = 255


def server_options(packets: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the options of a server, whatever its engine is.

    Args:
        packets: Whether its engine takes packets.
    """
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument_group("where it listens").add_argument
    add(
        "--host",
        default="127.0.0.1",
        help="address to bind; streams and soft also take IPv6, and :: for all (%(default)s)",
    )
    add(
        "--port",
        type=whole(0, _PORT_MAX),
        metavar="N",
        default=wire.PORT,
        help="TCP port, and UDP port for packets; 0: any free one (%(default)s)",
    )
    if packets:
        _add_of_packets(parser)
    access = parser.add_argument_group("who may create jobs, and how many").add_argument
    access(
        "--secret-file",
        metavar="FILE",
        help="its secret is what clients must know to create jobs or read counters (default: "
        "AFFLUX_SECRET_FILE, or the secret in AFFLUX_SECRET)",
    )
    access(
        "--no-secret",
        action="store_true",
        help="whoever reaches the port may create jobs; without a secret, this must be said where "
        "other hosts reach it",
    )
    access(
        "--peer-share",
        type=float,
        metavar="SHARE",
        default=PEER_SHARE,
        help="most of all jobs, slots and connections that one peer address may have while it is "
        "alone, 0 to 1 (%(default)s)",
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        metavar="LEVEL",
        help="least level of what goes to standard error: debug, info, warning or error (info)",
    )
    # For a program that starts it; see `serve_until_stopped`.
    parser.add_argument("--owner", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--owner-signal", action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_of_packets(parser: argparse.ArgumentParser) -> None:
    """Add what only a server of packets has."""
    results = parser.add_argument_group("where results go").add_argument
    results(
        "--group",
        type=checked(MulticastGroup.parse),
        metavar="ADDRESS:PORT",
        help="multicast group to which each result goes once (default: once to each rank)",
    )
    results(
        "--group-ttl",
        type=whole(1, _TTL_MAX),
        metavar="N",
        default=1,
        help="number of routers on the way, plus one (%(default)s)",
    )
    clients = parser.add_argument_group("its clients").add_argument
    clients(
        "--translated",
        action="store_true",
        help="with a secret: clients reach this port by another address or number than its own",
    )
    clients(
        "--requests-per-second",
        type=float,
        metavar="N",
        default=REQUESTS_PER_S,
        help="of a peer address, on the control channel; more are answered later (%(default)g)",
    )
    clients(
        "--workers-may-move",
        action="store_true",
        help="let workers join from another address while their job runs, as behind a router that "
        "translates addresses and forgets its translations",
    )


def access_of(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Return who may use the control channel, by the options of `server_options`.

    Args:
        arguments: The options.
        environment: Variables, of which AFFLUX_SECRET_FILE and AFFLUX_SECRET are looked at.

    Raises:
        ValueError: The secret cannot be used, or a number is out of range.
    """
    file, text = arguments.secret_file, None
    if file is None and not arguments.no_secret:
        file, text = (environment.get(name) for name in ("AFFLUX_SECRET_FILE", "AFFLUX_SECRET"))
    return Access(
        secret=find_secret(file, text),
        no_secret=arguments.no_secret,
        translated=getattr(arguments, "translated", False),
        peer_share=arguments.peer_share,
        requests_per_s=getattr(arguments, "requests_per_second", REQUESTS_PER_S),
    )
