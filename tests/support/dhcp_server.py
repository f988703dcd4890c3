"""A DHCP server of one address, by scapy, that can also say what no server should."""

from collections.abc import Iterator
from typing import Any

from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

__all__ = ["DhcpServer", "options_of"]

SERVER_MAC = "02:00:00:00:00:fe"


def options_of(frame: Any) -> dict[str, Any]:
    """Return the options of a message by name."""
    return {each[0]: each[1] for each in frame[DHCP].options if isinstance(each, tuple)}


class DhcpServer:
    """Answers DISCOVER and REQUEST.

    Args:
        address: The address that it gives.
        lease_s: For how long.
        own: Its own address.
        times: T1 and T2, or None to leave them to the client.
        broadcast: Answer to everybody, and not to the client alone.
    """

    def __init__(
        self,
        address: str = "10.0.0.9",
        *,
        lease_s: int = 120,
        own: str = "10.0.0.254",
        times: tuple[int, int] | None = None,
        broadcast: bool = False,
    ) -> None:
        self.address, self.lease_s, self.own = address, lease_s, own
        self.times, self.broadcast = times, broadcast

    def answer(self, frame: bytes, **changes: Any) -> bytes:
        """Return the answer to a client's frame, which must be for this server."""
        asked = Ether(frame)
        assert DHCP in asked and asked[BOOTP].op == 1
        options = options_of(asked)
        kind = options["message-type"]
        # To renew, no server is named.
        assert options.get("server_id", self.own) == self.own
        if kind == 1:
            return self.message(asked, "offer", **changes)
        wanted = options.get("requested_addr", asked[BOOTP].ciaddr)
        return self.message(asked, "ack" if wanted == self.address else "nak", **changes)

    def message(
        self,
        asked: Any,
        kind: str,
        *,
        before: tuple[Any, ...] = (),
        options: list[Any] | None = None,
        udp: dict[str, Any] | None = None,
        **fields: Any,
    ) -> bytes:
        """Return a message of a kind, with fields of BOOTP changed."""
        bootp = {
            "op": 2,
            "htype": 1,
            "hlen": 6,
            "xid": asked[BOOTP].xid,
            "yiaddr": "0.0.0.0" if kind == "nak" else self.address,
            "siaddr": self.own,
            "chaddr": asked[BOOTP].chaddr,
            "sname": b"a server",
        } | fields
        if options is None:
            options = [*before, ("message-type", kind), ("server_id", self.own)]
            if kind != "nak":
                options += [("lease_time", self.lease_s), ("subnet_mask", "255.255.255.0")]
            if self.times is not None and kind != "nak":
                options += [("renewal_time", self.times[0]), ("rebinding_time", self.times[1])]
            options += [("hostname", b"odd"), "end"]
        to = ("ff:ff:ff:ff:ff:ff", "255.255.255.255")
        if not self.broadcast:
            to = (asked.src, self.address)
        frame = (
            Ether(src=SERVER_MAC, dst=to[0])
            / IP(src=self.own, dst=to[1])
            / UDP(**({"sport": 67, "dport": 68} | (udp or {})))
            / BOOTP(**bootp)
            / DHCP(options=options)
        )
        return bytes(frame)

    def hostile(self, asked: Any, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield messages that a client must not take, with what is wrong."""
        right = self.message(asked, kind)

        def other(**fields: Any) -> bytes:
            return self.message(asked, kind, **fields)

        good = [("message-type", kind), ("server_id", self.own), ("lease_time", self.lease_s)]
        yield "op of a request", other(op=1)
        yield "hardware type", other(htype=6)
        yield "hardware length", other(hlen=16)
        yield "xid", other(xid=asked[BOOTP].xid ^ 1)
        yield "xid, upper half", other(xid=asked[BOOTP].xid ^ 1 << 31)
        yield "somebody else's", other(chaddr=bytes.fromhex("02affa000008"))
        yield "no server", other(options=[good[0], good[2], "end"])
        yield "no type", other(options=[*good[1:], "end"])
        yield "no end", other(options=good)
        yield "another type", other(options=[("message-type", 8), *good[1:], "end"])
        yield "source port", other(udp={"sport": 68})
        yield "checksum", other(udp={"chksum": 0x1234})
        if kind != "nak":
            yield "no lease", other(options=[*good[:2], "end"])
            for lease in (0, 1, 59):
                yield f"lease {lease}", other(options=[*good[:2], ("lease_time", lease), "end"])
            # The last one is the controller's.
            for address in ("0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "10.0.0.1"):
                yield address, other(yiaddr=address)
        for number, length in ((53, 0), (53, 2), (54, 3), (54, 5), (51, 3), (58, 2), (59, 8)):
            raw = bytes([number, length, *range(1, length + 1)])
            yield f"option {number} of {length}", other(options=[*good, raw, "end"])
        yield "an option beyond the end", other(options=[*good, bytes([12, 200, 1, 2])])
        yield "only a number", other(options=[*good, bytes([12])])
        unsummed = other(udp={"chksum": 0})
        for at in range(278, 282):
            spoiled = bytes([unsummed[at] ^ 1])
            yield f"cookie at {at}", unsummed[:at] + spoiled + unsummed[at + 1 :]
        padded = other(udp={"chksum": 0}, options=[*good, "end", bytes(5)])
        for short in range(1, 5):
            yield f"{short} too few behind the end of the options", padded[:-short]
        yield "cookie", right[:278] + b"\x63\x82\x53\x64" + right[282:]
        yield "IPv4 checksum", right[:24] + b"\0\0" + right[26:]
        for length in (42, 100, 278, 282, 283, len(right) - 2, len(right) - 1):
            yield f"cut after {length}", right[:length]
        udp_length = int.from_bytes(right[38:40], "big")
        for wrong in (0, 7, 8, 247, udp_length - 1, udp_length + 1, 0xFFFF):
            yield f"UDP length {wrong}", right[:38] + wrong.to_bytes(2, "big") + right[40:]
