"""From the pins of an RGMII PHY to a whole appliance; clocks come from outside.

Tested: `tests/hdl/test_boards_port.py`, `tests/hdl/test_boards_top.py`.
"""

from typing import Any

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer, PulseSynchronizer
from amaranth.lib.wiring import In, Out, connect

from afflux_hdl.boards.appliance import Appliance
from afflux_hdl.contract import wire
from afflux_hdl.mac.gigabit import GigabitMac
from afflux_hdl.mac.inband import InbandStatus
from afflux_hdl.mac.receive import FCS_BYTES
from afflux_hdl.mac.rgmii_ecp5 import RgmiiEcp5
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["RgmiiPort", "frame_bytes_max"]

ENVELOPE_BYTES = 2000
"""The longest frame of ordinary Ethernet, an envelope frame (IEEE 802.3, clause 3.2.7)."""


def frame_bytes_max(lanes: int) -> int:
    """Return the bytes of an engine's longest frame, a result's, with check sequence."""
    return wire.frame_bytes(lanes) + wire.SEAL_BYTES + FCS_BYTES


class RgmiiPort(wiring.Component):
    """RGMII, MAC, node and management. The domains are `sync`, `rx` and `tx`.

    `rx` is clocked by the PHY's RXC, `tx` by 125 MHz, `sync` by more than 31.25 MHz and some. Only
    gigabit links in full duplex are supported. While the PHY reports another one, or none, nothing
    is received and no frame begins to be sent: a few frames wait in the MAC, then nothing takes the
    node's, so that it counts the link as down (`Node`). A PHY that does not report its link between
    frames (`InbandStatus`) has one.

    Args:
        node: Parameters of the node.
        management: The management, see `Appliance`.
        rx_delay_ps, tx_clock_delay_ps: See `RgmiiEcp5`.
        inband_status: What the PHY reports of its link counts. False is for a PHY that shows
            something between frames that only looks like a report.

    Members:
        pin_*: The pins of RGMII, except RXC.
        entropy: Random bits, of no clock: the management synchronises them.
        configured, authenticated, fault, reset: Of the appliance.
        link: The PHY reports a link of 1 Gbit/s.
        frame: For a cycle: a frame came or left.
        overflowed: For a cycle: a frame was lost between MAC and node.
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
        self._inband_status = inband_status
        self._management = management
        self._rx_delay_ps, self._tx_clock_delay_ps = rx_delay_ps, tx_clock_delay_ps
        super().__init__(
            {
                "pin_rx_ctl": In(1),
                "pin_rx_data": In(4),
                "pin_tx_clk": Out(1),
                "pin_tx_ctl": Out(1),
                "pin_tx_data": Out(4),
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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        longest = max(ENVELOPE_BYTES, frame_bytes_max(self._node.engine.lanes))
        m.submodules.rgmii = rgmii = RgmiiEcp5(
            rx_delay_ps=self._rx_delay_ps, tx_clock_delay_ps=self._tx_clock_delay_ps
        )
        m.submodules.mac = mac = GigabitMac(
            bytes_max=longest, buffer_bytes=1 << (longest - 1).bit_length()
        )
        status, down = InbandStatus(), Signal()
        m.submodules.status = DomainRenamer("rx")(status)
        m.submodules.appliance = appliance = Appliance(self._node, self._management)
        connect(m, mac.o, appliance.rx)
        connect(m, appliance.tx, mac.i)
        for name in ("rx_ctl", "rx_data"):
            m.d.comb += getattr(rgmii, f"pin_{name}").eq(getattr(self, f"pin_{name}"))
        for name in ("tx_clk", "tx_ctl", "tx_data"):
            m.d.comb += getattr(self, f"pin_{name}").eq(getattr(rgmii, f"pin_{name}"))
        m.d.comb += [
            status.data.eq(rgmii.rx_data),
            status.valid.eq(rgmii.rx_valid),
            status.error.eq(rgmii.rx_error),
            mac.rx_data.eq(rgmii.rx_data),
            mac.rx_valid.eq(rgmii.rx_valid & ~down),
            mac.rx_error.eq(rgmii.rx_error),
            rgmii.tx_data.eq(mac.tx_data),
            rgmii.tx_enable.eq(mac.tx_enable),
            rgmii.tx_error.eq(mac.tx_error),
            appliance.entropy.eq(self.entropy),
        ]
        for name in ("configured", "authenticated", "fault", "reset"):
            m.d.comb += getattr(self, name).eq(getattr(appliance, name))
        m.submodules.link = FFSynchronizer(status.link, self.link)
        if self._inband_status:
            m.d.comb += down.eq(status.down)
            m.submodules.down = FFSynchronizer(down, mac.tx_hold, o_domain="tx")
        m.submodules.overflow = overflow = PulseSynchronizer("rx", "sync")
        came, left = Signal(), Signal()
        m.d.comb += [
            overflow.i.eq(mac.overflowed),
            self.overflowed.eq(overflow.o),
            came.eq(mac.o.valid & mac.o.payload.last),
            left.eq(mac.i.valid & mac.i.ready & mac.i.payload.last),
        ]
        m.d.sync += self.frame.eq(came | left)
        return m
