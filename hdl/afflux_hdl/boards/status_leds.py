"""The LEDs' meaning.

Tested: `tests/hdl/test_boards_status_leds.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PURPOSES", "StatusLeds"]

PURPOSES = {
    "configured": "the board has an address",
    "link": "the PHY reports a link of 1 Gbit/s in full duplex",
    "activity": "dark for a moment with each frame, else as `configured`",
    "fault": "the settings are damaged, the entropy source is stuck, or a frame was lost before the"
    " node",
    "combined": "dark: no address. On: an address, and dark for a moment with each frame."
    " Blinking evenly: a fault",
}
"""The meaning of a LED, and the condition under which it is lit."""


class StatusLeds(wiring.Component):
    """Makes events long enough to be seen.

    Args:
        pause_bits: Binary logarithm of the cycles for which an event shows.

    Members:
        has_address, has_link: States.
        frame: For a cycle: a frame went in or out.
        faulty: For a cycle or for ever: something is wrong. It is shown until the board starts
            anew.
        configured, link, activity, fault, combined: Those of `PURPOSES`.
    """

    def __init__(self, *, pause_bits: int = 21) -> None:
        self._pause_bits = pause_bits
        super().__init__(
            {
                "has_address": In(1),
                "has_link": In(1),
                "frame": In(1),
                "faulty": In(1),
                **{name: Out(1) for name in PURPOSES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # An even beat; a frame darkens the LED in the first half of what follows it.
        clock, dark = Signal(self._pause_bits + 2), Signal(self._pause_bits + 1)
        fault = Signal()
        m.d.sync += clock.eq(clock + 1)
        with m.If(dark != 0):
            m.d.sync += dark.eq(dark + 1)
        with m.Elif(self.frame):
            m.d.sync += dark.eq(1)
        with m.If(self.faulty):
            m.d.sync += fault.eq(1)
        lit = (dark == 0) | dark[-1]
        m.d.sync += [
            self.configured.eq(self.has_address),
            self.link.eq(self.has_link),
            self.activity.eq(self.has_address & lit),
            self.fault.eq(fault),
            self.combined.eq((fault & clock[-1]) | (~fault & self.has_address & lit)),
        ]
        return m
