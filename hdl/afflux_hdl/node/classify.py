"""Classify: decides where each frame from the network goes.

::

    i ──┬─► beats (queue) ──────────────────────────┬─► o, o_to
        └─► frame header ─► compare ─► destinations ┘

A frame waits just until the beat that holds its last header byte has been examined.

Tested: `tests/hdl/test_node_parts.py`, `tests/hdl/test_node_latency.py`,
`tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.frame_header import FrameHeader
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.packet_stream import (
    ARP_HARDWARE_ETHERNET,
    ARP_REQUEST,
    DONT_FRAGMENT,
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ICMP_ECHO_REQUEST,
    IPV4_WITHOUT_OPTIONS,
    PROTOCOL_ICMP,
    PROTOCOL_UDP,
    ArpFrame,
    IcmpFrame,
    Local,
    PacketBeat,
    UdpFrame,
    as_sent,
    is_of_host,
)
from afflux_hdl.lib.queue import Queue

__all__ = ["ECHO_FRAME_MAX", "HEADER_BYTES", "Classify", "Destination"]

FrameStart = data.UnionLayout({"udp": UdpFrame, "icmp": IcmpFrame, "arp": ArpFrame})
"""The headers that decide: ARP, or IPv4 without options and ICMP or UDP behind it."""

HEADER_BYTES = FrameStart.size // 8
"""Bytes of these headers."""

ECHO_FRAME_MAX = 1518
"""Bytes of the largest frame with an echo request that is answered here."""

DHCP_CLIENT_PORT = 68

COMPARE_CYCLES = 8
"""More cycles than pass between a frame's last header beat and its destination."""


class Destination(enum.Enum, shape=3):  # type: ignore[call-arg]
    """The part that gets a frame from the network."""

    HOST = 0
    ENGINE = 1
    ARP = 2
    """An ARP request for the local address."""
    ECHO = 3
    """An ICMP echo request to the local address."""
    NOBODY = 4
    """It is for the host, but the host path is off, or the management has no use for it."""


class Classify(wiring.Component):
    """Decides by its headers where each frame goes.

    * ENGINE: local MAC and IPv4 address, IPv4 version 4 without options, UDP, not a fragment, port
      from `local.port` to `local.port` + jobs. The engine judges everything else.
    * ARP: a request for the local address (RFC 826), to the local MAC or broadcast, whose sender
      does not claim that address itself, and whose hardware address is not a group's.
    * ECHO: local MAC and IPv4 address, no options, not a fragment, ICMP echo request (RFC 792), at
      most `ECHO_FRAME_MAX` bytes by its IPv4 length, from a host: no group, no broadcast, not
      "this network" (RFC 1122, section 3.2.1.3).
    * HOST: all others; among them frames with an 802.1Q tag, frames shorter than `HEADER_BYTES`,
      and frames marked as bad whose header is none of the above. NOBODY if the host path is off.

    A management has its place where a host would be, and less time for each frame than the network
    takes. So of all others only those are for it that it may have a use for: UDP in IPv4 without
    options, not a fragment, to the MAC address of one host, or to broadcast and port 68 (DHCP).
    NOBODY for the rest, so that a storm of broadcasts costs no room in its buffer. The local
    addresses do not count: a client that sets others than the management's can set them back.

    All fragments of a datagram go one way, to the host, which may put them together. While the
    local address is 0.0.0.0, as after reset, no frame is for anybody but the host.

    Latency: 7 cycles from the beat that holds header byte 41, or the last beat of a shorter frame,
    to the frame's first beat on `o`; while beats come without a gap each one leaves 6 + H cycles
    later, with H the beats of a header. Throughput: one beat in each cycle, always. The queues
    cannot overflow, since a frame waits a bounded number of beats and then leaves at full rate.

    Args:
        parameters: The engine's parameters.
        managed: There is a management in place of a host.

    Members:
        i: Frames from the network.
        local: The engine's addresses.
        host_path: Frames may go to the host.
        o: The same frames.
        o_to: With `o`: the frame's destination; the same for all its beats.
        idle: No frame is in flight.
    """

    def __init__(self, parameters: Parameters, *, managed: bool = False) -> None:
        self._parameters = parameters
        self._managed = managed
        beat = PacketBeat(parameters.bus_bits, parameters.ports)
        super().__init__(
            {
                "i": In(stream.Signature(beat, always_ready=True)),
                "local": In(Local),
                "host_path": In(1),
                "o": Out(stream.Signature(beat, always_ready=True)),
                "o_to": Out(Destination),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        beat = PacketBeat(p.bus_bits, p.ports)
        m.submodules.header = header = FrameHeader(bus_bits=p.bus_bits, shape=FrameStart)
        depth = header.beats + COMPARE_CYCLES
        m.submodules.beats = beats = Queue(beat, depth=depth, always_ready=True)
        m.submodules.destinations = destinations = Queue(
            Destination, depth=depth, always_ready=True
        )

        # Stage 1: one register behind the pins.
        valid1, beat1 = Signal(), Signal(beat)
        m.d.sync += [valid1.eq(self.i.valid), beat1.eq(self.i.payload)]
        m.d.comb += [
            header.i.valid.eq(valid1),
            header.i.payload.eq(beat1),
            beats.i.valid.eq(valid1),
            beats.i.payload.eq(beat1),
        ]

        # Stage 3: the outcome of each comparison.
        known3, flags3 = self._compare(m, header)

        # Stage 4: the destination.
        known4, destination4 = Signal(), Signal(Destination)
        ours, udp, icmp, wanted = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            ours.eq(flags3.to_mac & flags3.ipv4 & flags3.to_address),
            udp.eq(flags3.udp & flags3.port & ~flags3.fragment),
            icmp.eq(
                flags3.icmp
                & ~flags3.fragment
                & flags3.echo_request
                & flags3.echo_length
                & flags3.of_host
            ),
            wanted.eq(self.host_path),
        ]
        if self._managed:
            datagram = flags3.ipv4 & flags3.udp & ~flags3.fragment & ~flags3.short
            to_host = ~flags3.group | (flags3.broadcast & flags3.dhcp)
            m.d.comb += wanted.eq(self.host_path & datagram & to_host)
        m.d.sync += known4.eq(known3)
        with m.If(~flags3.short & ours & udp):
            m.d.sync += destination4.eq(Destination.ENGINE)
        with m.Elif(~flags3.short & ours & icmp):
            m.d.sync += destination4.eq(Destination.ECHO)
        with m.Elif(~flags3.short & flags3.arp & (flags3.to_mac | flags3.broadcast)):
            m.d.sync += destination4.eq(Destination.ARP)
        with m.Else():
            m.d.sync += destination4.eq(Mux(wanted, Destination.HOST, Destination.NOBODY))
        m.d.comb += [destinations.i.valid.eq(known4), destinations.i.payload.eq(destination4)]

        # Beats leave as soon as their frame's destination is known.
        leaves = Signal()
        m.d.comb += [
            leaves.eq(beats.o.valid & destinations.o.valid),
            beats.o.ready.eq(leaves),
            destinations.o.ready.eq(leaves & beats.o.payload.last),
            self.idle.eq(~valid1 & (beats.level == 0) & ~self.o.valid),
        ]
        m.d.sync += [
            self.o.valid.eq(leaves),
            self.o.payload.eq(beats.o.payload),
            self.o_to.eq(destinations.o.payload),
        ]
        return m

    def _compare(self, m: Module, header: FrameHeader) -> tuple[Signal, data.View]:
        """Compare the header. Return that a frame was compared, and its flags, a cycle later."""
        names = (
            *("short", "to_mac", "broadcast", "ipv4", "to_address", "udp", "icmp", "port"),
            *("fragment", "echo_request", "echo_length", "of_host", "arp"),
            *(("group", "dhcp") if self._managed else ()),
        )
        known, flags = Signal(), Signal(data.StructLayout(dict.fromkeys(names, 1)))
        ethernet, ipv4, udp = (header.header.udp[name] for name in ("ethernet", "ipv4", "udp"))
        icmp, arp = header.header.icmp.icmp, header.header.arp.arp
        fragment, length = reversed_octets(ipv4.fragment), reversed_octets(ipv4.length)
        port, local_port = reversed_octets(udp.destination), reversed_octets(self.local.port)
        echo_length_min = wire.IPV4_BYTES + 8
        echo_length_max = ECHO_FRAME_MAX - wire.ETHERNET_BYTES
        has_address = Signal()
        m.d.sync += has_address.eq(self.local.address != 0)
        m.d.sync += [
            known.eq(header.complete),
            flags.short.eq(header.short),
            flags.to_mac.eq(ethernet.destination == self.local.mac),
            flags.broadcast.eq(ethernet.destination.all()),
            flags.ipv4.eq(
                (ethernet.type == as_sent(ETHERTYPE_IPV4, 2))
                & (ipv4.as_value()[:8] == IPV4_WITHOUT_OPTIONS)
            ),
            # Never before the address has been set.
            flags.to_address.eq((ipv4.destination == self.local.address) & has_address),
            flags.of_host.eq(is_of_host(ethernet.source, ipv4.source)),
            flags.udp.eq(ipv4.protocol == PROTOCOL_UDP),
            flags.icmp.eq(ipv4.protocol == PROTOCOL_ICMP),
            flags.port.eq((port - local_port)[:16] <= self._parameters.jobs),
            # More-fragments, an offset, or the reserved bit.
            flags.fragment.eq((fragment & (0xFFFF - DONT_FRAGMENT)) != 0),
            flags.echo_request.eq((icmp.type == ICMP_ECHO_REQUEST) & (icmp.code == 0)),
            flags.echo_length.eq((length >= echo_length_min) & (length <= echo_length_max)),
            flags.arp.eq(
                (ethernet.type == as_sent(ETHERTYPE_ARP, 2))
                & (arp.hardware == as_sent(ARP_HARDWARE_ETHERNET, 2))
                & (arp.protocol == as_sent(ETHERTYPE_IPV4, 2))
                & (arp.hardware_octets == 6)
                & (arp.protocol_octets == 4)
                & (arp.operation == as_sent(ARP_REQUEST, 2))
                & (arp.target_address == self.local.address)
                & (arp.sender_address != self.local.address)
                # The answer goes there.
                & ~arp.sender_mac[0]
                & has_address
            ),
        ]
        if self._managed:
            m.d.sync += [
                flags.group.eq(ethernet.destination[0]),
                flags.dhcp.eq(port == DHCP_CLIENT_PORT),
            ]
        return known, flags
