"""Access to a control channel: the clients that may use it, and how much of it."""

import socket
from dataclasses import dataclass, field

from afflux_drivers.addresses import is_loopback, resolve
from afflux_drivers.aggregator.peers import PEER_SHARE, REQUESTS_PER_S

__all__ = ["Access", "AccessUnset"]


class AccessUnset(ValueError):
    """A control channel would be open to other hosts, and nobody has said whether it may be."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access to a control channel: the clients that may use it, and how much of it.

    Attributes:
        secret: Known to every client; None if anybody who reaches the port may create jobs.
        no_secret: Whether that is meant, also where other hosts reach the port.
        translated: Whether clients may reach the port by another address than its own.
        peer_share: The most of all jobs, slots and connections that one peer may have while it is
            alone; see `afflux_drivers.aggregator.peers.may_take`.
        requests_per_s: Requests of one peer that are answered at once, in the long run.
        prove_s: After so long a client that has not proved that it knows the secret is dropped.

    Raises:
        ValueError: If a share is not more than 0 and at most 1, or a rate not positive.
    """

    secret: bytes | None = field(default=None, repr=False)
    no_secret: bool = False
    translated: bool = False
    peer_share: float = PEER_SHARE
    requests_per_s: float = REQUESTS_PER_S
    prove_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.peer_share <= 1:
            raise ValueError(
                f"the share of a peer must be more than 0, at most 1, not {self.peer_share:g}"
            )
        if not 0 < self.requests_per_s < float("inf"):
            raise ValueError(f"requests a second must be above 0, not {self.requests_per_s:g}")
        if self.secret is not None and self.no_secret:
            raise ValueError("there is a secret, and none is to be asked for: which of both?")

    def check_host(self, host: str) -> None:
        """Refuse to listen where other hosts come, unless it is said who may ask there.

        Raises:
            AccessUnset: If other hosts reach this name or address, there is no secret, and nobody
                has said that there need not be one.
            OSError: If the name stands for nothing.
        """
        if self.secret is not None or self.no_secret:
            return
        where = resolve(host or "0.0.0.0", 0, socket.SOCK_STREAM)[0].host
        if not is_loopback(where.partition("%")[0]):
            raise AccessUnset(
                f"other hosts reach {where}, and there is no secret: name a file that has one "
                "(openssl rand -hex 32, mode 600) by --secret-file or AFFLUX_SECRET_FILE, here and "
                "for the ranks; or give --no-secret, if all who reach this address may create jobs"
            )
