"""In-band status: what the PHY says of its link between frames.

Tested: `tests/hdl/test_mac_inband.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["GIGABIT", "InbandStatus"]

GIGABIT = 0b10
"""The speed of 125 MHz, in RGMII's code (version 2.0, table 4)."""

AGREED = 4
"""So many idle cycles in a row must say the same: a glitch at a frame's end says nothing."""


class InbandStatus(wiring.Component):
    """Reads the status that RGMII 2.0 carries on RXD while neither RX_DV nor RX_ER is set.

    Bit 0 is the link, bits 2 and 1 the speed, bit 3 full duplex. A PHY need not give it; one that
    does not shows zeros, hence no link: the outputs are for people to look at, and nothing depends
    on them except `wrong_speed`, which is 0 then.

    Latency: 5 cycles, between frames. While the PHY's clock stands still, so do the outputs.

    Members:
        data, valid, error: As of GMII: RXD, RX_DV, RX_ER.
        link: The link is up, at 1 Gbit/s and in full duplex.
        wrong_speed: The link is up, and slower. Its bytes arrive as nibbles, which the MAC does not
            put together.
    """

    def __init__(self) -> None:
        super().__init__(
            {"data": In(8), "valid": In(1), "error": In(1), "link": Out(1), "wrong_speed": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        latest, same = Signal(4), Signal(range(AGREED + 1))
        idle, up, gigabit, full_duplex = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            idle.eq(~self.valid & ~self.error),
            up.eq(latest[0]),
            gigabit.eq(latest[1:3] == GIGABIT),
            full_duplex.eq(latest[3]),
        ]
        m.d.sync += latest.eq(self.data[:4])
        with m.If(~idle | (self.data[:4] != latest)):
            m.d.sync += same.eq(0)
        with m.Elif(same != AGREED):
            m.d.sync += same.eq(same + 1)
        agreed = same == AGREED
        m.d.sync += [
            self.link.eq(Mux(agreed, up & gigabit & full_duplex, self.link)),
            self.wrong_speed.eq(Mux(agreed, up & ~gigabit, self.wrong_speed)),
        ]
        return m
