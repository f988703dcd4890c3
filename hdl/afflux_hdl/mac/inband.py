"""In-band status: what the PHY says of its link between frames.

Tested: `tests/hdl/test_mac_inband.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["GIGABIT", "RESERVED", "InbandStatus"]

GIGABIT = 0b10
"""The speed of 125 MHz, in RGMII's code (version 2.0, table 4)."""

RESERVED = 0b11
"""No speed: what shows it is not a status, but pins that are pulled up, or a PHY without one."""

AGREED = 4
"""So many idle cycles in a row must say the same: a glitch at a frame's end says nothing."""


class InbandStatus(wiring.Component):
    """Reads the status that RGMII 2.0 carries on RXD while neither RX_DV nor RX_ER is set.

    Bit 0 is the link, bits 2 and 1 the speed, bit 3 full duplex. A PHY need not give it, and one
    that does not shows zeros, or ones. So a link counts as down only once a link was ever reported:
    then the PHY does give it, and is believed from then on.

    Latency: 6 cycles, between frames. While the PHY's clock stands still, so do the outputs.

    Members:
        data, valid, error: As of GMII: RXD, RX_DV, RX_ER.
        link: The link is up, at 1 Gbit/s and in full duplex.
        down: The PHY gives its status, and `link` is not set: the link is down, or its bytes would
            have to go as nibbles or one way at a time, which the MAC cannot do. Changes only
            between frames that are received.
    """

    def __init__(self) -> None:
        super().__init__(
            {"data": In(8), "valid": In(1), "error": In(1), "link": Out(1), "down": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        latest, same = Signal(4), Signal(range(AGREED + 1))
        idle, up, speed, full_duplex = Signal(), Signal(), Signal(2), Signal()
        given, right = Signal(), Signal()
        m.d.comb += [
            idle.eq(~self.valid & ~self.error),
            Cat(up, speed, full_duplex).eq(latest),
            right.eq(up & (speed == GIGABIT) & full_duplex),
        ]
        m.d.sync += latest.eq(self.data[:4])
        with m.If(~idle | (self.data[:4] != latest)):
            m.d.sync += same.eq(0)
        with m.Elif(same != AGREED):
            m.d.sync += same.eq(same + 1)
        agreed = same == AGREED
        with m.If(agreed & (speed != RESERVED)):
            m.d.sync += [
                given.eq(given | up),
                self.link.eq(right),
                self.down.eq((given | up) & ~right),
            ]
        return m
