"""The AS02MC04 card: its part, clocks and pins, as far as the project uses them.

The card was made for a data centre and is not documented by its maker; its pins are known from
people who measured them. Compare them with a card before you load a bitstream.
"""

from dataclasses import dataclass

__all__ = ["CLOCKS", "PART", "PINS", "UNUSED", "Pin"]

PART = "xcku3p-ffvb676-1-e"
"""Kintex UltraScale+ KU3P, speed grade 1; Vivado's free edition knows it."""


@dataclass(frozen=True)
class Pin:
    """One pin of the package.

    Attributes:
        port: Port of the top module.
        site: Name of the pin.
        standard: I/O standard; None at a transceiver.
        pullup: Whether it has a pull-up in the FPGA.
        what: The part at its other end.
    """

    port: str
    site: str
    standard: str | None
    pullup: bool
    what: str

    @property
    def is_output(self) -> bool:
        """Whether it is driven by the FPGA, and slowly."""
        return "led" in self.port


PINS = (
    Pin("clk_100mhz_p", "E18", "LVDS", False, "oscillator Y2, 100 MHz"),
    Pin("clk_100mhz_n", "D18", "LVDS", False, "likewise"),
    Pin("button_n", "F12", "LVCMOS33", False, "button SW1, low when pressed"),
    Pin("sfp_mgt_refclk_p", "K7", None, False, "MGTREFCLK0P_227, oscillator Y1, 156.25 MHz"),
    Pin("sfp_mgt_refclk_n", "K6", None, False, "MGTREFCLK0N_227, likewise"),
    Pin("sfp_rx_p", "A4", None, False, "MGTYRXP3_227, first SFP28 cage"),
    Pin("sfp_rx_n", "A3", None, False, "MGTYRXN3_227"),
    Pin("sfp_tx_p", "B7", None, False, "MGTYTXP3_227"),
    Pin("sfp_tx_n", "B6", None, False, "MGTYTXN3_227"),
    Pin("sfp_npres", "D14", "LVCMOS33", True, "no module in the first cage"),
    Pin("sfp_tx_fault", "B14", "LVCMOS33", True, "its module's fault"),
    Pin("sfp_los", "D13", "LVCMOS33", True, "its module's loss of signal"),
    Pin("sfp_led[0]", "B12", "LVCMOS33", False, "DS3, first cage"),
    Pin("sfp_led[1]", "C12", "LVCMOS33", False, "DS2, second cage"),
    Pin("led[0]", "B11", "LVCMOS33", False, "DS6"),
    Pin("led[1]", "C11", "LVCMOS33", False, "DS7"),
    Pin("led[2]", "A10", "LVCMOS33", False, "DS8"),
    Pin("led[3]", "B10", "LVCMOS33", False, "DS9"),
    Pin("led_r", "A13", "LVCMOS33", False, "C1, red"),
    Pin("led_g", "A12", "LVCMOS33", False, "C1, green"),
    Pin("led_hb", "B9", "LVCMOS33", False, "DS5"),
)

CLOCKS = {"clk_100mhz_p": ("clk_100mhz", 10.0), "sfp_mgt_refclk_p": ("sfp_mgt_refclk", 6.4)}
"""Port, name and period in nanoseconds of each clock that comes in."""

UNUSED = (
    "second SFP28 cage: receive B2 and B1 (MGTYRXP2_227, MGTYRXN2_227), send D7 and D6, "
    "not present E11, fault F9, loss of signal E10",
    "management buses of both modules, and of the card's own memory",
    "PCIe",
)
"""Other parts of the card, which this project leaves alone."""
