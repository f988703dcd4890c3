"""From the pins of RGMII PHYs to a whole appliance; clocks come from outside.

::

    pins ─► RgmiiEcp5 ─► GigabitMac ─────────────────────────────► Appliance ──────────────► …

Two PHYs share it:

::

    pins   ─► RgmiiEcp5 ─► GigabitMac ─► Arrivals ─┐                           ┌─► GigabitMac ─► …
                                                   ├─► Appliance ─► FrameSplit ┤
    pins_1 ─► RgmiiEcp5 ─► GigabitMac ─► Arrivals ─┘                           └─► GigabitMac ─► …

Tested: `tests/hdl/test_boards_port.py`, `tests/hdl/test_boards_top.py`,
`tests/sim/test_board_ports.py`.
"""

from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from amaranth.hdl import DomainRenamer, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer, PulseSynchronizer
from amaranth.lib.wiring import In, Out, connect

from afflux_hdl.boards.appliance import APPLIANCE_BUS_BITS, Appliance
from afflux_hdl.boards.arrivals import Arrivals
from afflux_hdl.contract import wire
from afflux_hdl.lib.frame_arbiter import FrameArbiter
from afflux_hdl.lib.frame_split import FrameSplit
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.mac.gigabit import GigabitMac
from afflux_hdl.mac.inband import InbandStatus
from afflux_hdl.mac.receive import FCS_BYTES
from afflux_hdl.mac.rgmii_ecp5 import RgmiiEcp5
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["ARRIVALS_BYTES", "PINS_IN", "PINS_OUT", "RgmiiPort", "frame_bytes_max", "of_port"]

ENVELOPE_BYTES = 2000
"""The longest frame of ordinary Ethernet, an envelope frame (IEEE 802.3, clause 3.2.7)."""


ARRIVALS_BYTES = 8192
"""Of frames of each of several ports that wait for the node."""

PINS_IN = {"rx_ctl": 1, "rx_data": 4}
"""Pins of a PHY that its RXC clocks, with their widths."""

PINS_OUT = {"tx_clk": 1, "tx_ctl": 1, "tx_data": 4}
"""Those that are driven, with TXC."""


def of_port(name: str, port: int) -> str:
    """Return the name of one port's pin, part or clock domain: the first one's is bare."""
    return f"{name}_{port}" if port else name


def frame_bytes_max(lanes: int) -> int:
    """Return the bytes of an engine's longest frame, a result's, with check sequence."""
    return wire.frame_bytes(lanes) + wire.SEAL_BYTES + FCS_BYTES


class _End(NamedTuple):
    """The logic that belongs to one PHY."""

    rgmii: RgmiiEcp5
    mac: GigabitMac
    status: InbandStatus
    down: Signal

    def connect(self, m: Module) -> None:
        """Connect the parts with one another."""
        rgmii, mac, status = self.rgmii, self.mac, self.status
        m.d.comb += [
            status.data.eq(rgmii.rx_data),
            status.valid.eq(rgmii.rx_valid),
            status.error.eq(rgmii.rx_error),
            mac.rx_data.eq(rgmii.rx_data),
            mac.rx_valid.eq(rgmii.rx_valid & ~self.down),
            mac.rx_error.eq(rgmii.rx_error),
            rgmii.tx_data.eq(mac.tx_data),
            rgmii.tx_enable.eq(mac.tx_enable),
            rgmii.tx_error.eq(mac.tx_error),
        ]


class RgmiiPort(wiring.Component):
    """RGMII, MAC, node and management. The domains are `sync`, `rx` and `tx`.

    `rx` is clocked by the PHY's RXC, `tx` by 125 MHz, `sync` by more than 31.25 MHz and some. Only
    gigabit links in full duplex are supported. While the PHY reports another one, or none, nothing
    is received and no frame begins to be sent: a few frames wait in the MAC, then nothing takes the
    node's, so that it counts the link as down (`Node`). A PHY that does not report its link between
    frames (`InbandStatus`) has one.

    A node for several network ports has as many PHYs; the second one's pins and domain are called
    `…_1`, and so on. Frames of all take turns, whole, and each frame of the node leaves by the
    ports that it is for (`docs/node.md`, "Several network ports"). Frames that come faster than the
    node takes them wait in a buffer of each port, and are dropped whole where that is full
    (`port_rx_dropped`). A port that cannot send keeps what its MAC has room for, and after
    `link_timeout` cycles of the engine no longer makes the others wait: what is for it and finds no
    room is dropped (`port_tx_cut`). Two full ports need 61.2 MHz of `sync` (`docs/boards.md`).

    Args:
        node: Parameters of the node.
        management: The management, see `Appliance`.
        rx_delay_ps, tx_clock_delay_ps: See `RgmiiEcp5`.
        inband_status: The PHY's report of its link counts. False is for a PHY that shows something
            between frames that only looks like a report.

    Members:
        pin_*: The pins of RGMII, except RXC.
        entropy: Random bits, of no clock: the management synchronises them.
        configured, authenticated, fault, reset: Of the appliance.
        link: A PHY reports a link of 1 Gbit/s.
        frame: For a cycle: a frame came or left.
        overflowed: For a cycle: a frame was lost between a MAC and what takes its beats, in each
            cycle; with a clock that is fast enough, none is.
    """

    def __init__(
        self,
        node: NodeParameters,
        management: Any,
        *,
        rx_delay_ps: int = 0,
        tx_clock_delay_ps: int = 0,
        inband_status: bool = True,
    ) -> None:
        self._node = node
        self._ports = range(node.engine.ports)
        self._inband_status = inband_status
        self._management = management
        self._rx_delay_ps, self._tx_clock_delay_ps = rx_delay_ps, tx_clock_delay_ps
        super().__init__(
            {
                **self._pins(In, PINS_IN),
                **self._pins(Out, PINS_OUT),
                "entropy": In(1),
                "configured": Out(1),
                "authenticated": Out(1),
                "fault": Out(1),
                "reset": Out(1),
                "link": Out(1),
                "frame": Out(1),
                "overflowed": Out(1),
            }
        )

    def _pins(self, flow: Any, widths: dict[str, int]) -> dict[str, Any]:
        return {
            f"pin_{of_port(name, port)}": flow(width)
            for port in self._ports
            for name, width in widths.items()
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ends = [self._end(m, port) for port in self._ports]
        macs = [end.mac for end in ends]
        m.submodules.appliance = appliance = Appliance(self._node, self._management)
        if len(macs) == 1:
            connect(m, macs[0].o, appliance.rx)
            connect(m, appliance.tx, macs[0].i)
        else:
            self._share(m, macs, appliance)
        for port, end in enumerate(ends):
            for name in PINS_IN:
                m.d.comb += getattr(end.rgmii, f"pin_{name}").eq(self._pin(name, port))
            for name in PINS_OUT:
                m.d.comb += self._pin(name, port).eq(getattr(end.rgmii, f"pin_{name}"))
            end.connect(m)
        m.d.comb += appliance.entropy.eq(self.entropy)
        for name in ("configured", "authenticated", "fault", "reset"):
            m.d.comb += getattr(self, name).eq(getattr(appliance, name))

        lost: list[Value] = []
        links = [self.link] if len(ends) == 1 else [Signal(name=f"link_{n}") for n in self._ports]
        for port, end in enumerate(ends):
            m.submodules[of_port("link", port)] = FFSynchronizer(end.status.link, links[port])
            if self._inband_status:
                m.d.comb += end.down.eq(end.status.down)
                m.submodules[of_port("down", port)] = FFSynchronizer(
                    end.down, end.mac.tx_hold, o_domain="tx"
                )
            overflow = PulseSynchronizer(of_port("rx", port), "sync")
            m.submodules[of_port("overflow", port)] = overflow
            m.d.comb += overflow.i.eq(end.mac.overflowed)
            lost.append(overflow.o)
        came, left = Signal(), Signal()
        m.d.comb += [
            self.overflowed.eq(_any(lost)),
            came.eq(_any([mac.o.valid & mac.o.payload.last for mac in macs])),
            left.eq(_any([mac.i.valid & mac.i.ready & mac.i.payload.last for mac in macs])),
        ]
        if len(ends) > 1:
            m.d.comb += self.link.eq(_any(links))
        m.d.sync += self.frame.eq(came | left)
        return m

    def _end(self, m: Module, port: int) -> "_End":
        """Add what belongs to one PHY."""
        rx, several = of_port("rx", port), len(self._ports) > 1
        longest = max(ENVELOPE_BYTES, frame_bytes_max(self._node.engine.lanes))
        rgmii = RgmiiEcp5(
            rx_delay_ps=self._rx_delay_ps, tx_clock_delay_ps=self._tx_clock_delay_ps, rx=rx
        )
        m.submodules[of_port("rgmii", port)] = rgmii
        mac = GigabitMac(
            bytes_max=longest,
            # Of several ports, one may still send while the next frame for it comes.
            buffer_bytes=(1 << (longest - 1).bit_length()) << several,
            rx=rx,
            give_way_after=self._node.engine.link_timeout if several else None,
        )
        m.submodules[of_port("mac", port)] = mac
        end = _End(rgmii, mac, InbandStatus(), Signal(name=of_port("down", port)))
        m.submodules[of_port("status", port)] = DomainRenamer(rx)(end.status)
        return end

    def _share(self, m: Module, macs: list[GigabitMac], appliance: Appliance) -> None:
        """Put the appliance behind several MACs."""
        beat = PacketBeat(APPLIANCE_BUS_BITS)
        m.submodules.turns = turns = FrameArbiter(beat, sources=len(macs))
        m.submodules.split = split = FrameSplit(bus_bits=APPLIANCE_BUS_BITS, ports=len(macs))
        connect(m, appliance.tx, split.i)
        dropped: list[Value] = []
        unsent: list[Value] = []
        for port, mac in enumerate(macs):
            arrivals = Arrivals(depth_bytes=ARRIVALS_BYTES)
            m.submodules[of_port("arrivals", port)] = arrivals
            connect(m, mac.o, arrivals.i)
            connect(m, arrivals.o, turns.i[port])
            connect(m, split.o[port], mac.i)
            dropped.append(arrivals.dropped)
            unsent.append(mac.unsent)
        m.d.comb += [
            appliance.rx.valid.eq(turns.o.valid),
            *(appliance.rx.payload[name].eq(turns.o.payload[name]) for name, _ in beat),
            appliance.rx.payload.net_ports.eq(1 << turns.chosen),
            turns.o.ready.eq(1),
        ]
        for events, counter in (
            (dropped, appliance.port_rx_dropped),
            (unsent, appliance.port_tx_cut),
        ):
            count = Signal(32, name=f"count_{counter.name}")
            m.d.sync += count.eq(count + sum(events))
            m.d.comb += counter.eq(count)

    def _pin(self, name: str, port: int) -> Signal:
        pin: Signal = getattr(self, f"pin_{of_port(name, port)}")
        return pin


def _any(conditions: list[Value]) -> Value:
    return reduce(or_, conditions)
