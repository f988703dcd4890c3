"""Colorlight 5A-75B, revision 7.0: a receiver card for LED walls, with two gigabit ports."""

from fractions import Fraction

from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

from afflux_hdl.boards.board import Board, small_node

__all__ = ["COLORLIGHT_5A75B"]

COLORLIGHT_5A75B = Board(
    name="colorlight-5a-75b",
    title="Colorlight 5A-75B, revision 7.0",
    platform=Colorlight_5A75B_R70Platform,
    oscillator=("clk25", 25),
    rgmii=0,
    # Both PHYs are Broadcom B50612D. LiteX's target delays RXD by 2 ns and leaves TXC alone.
    rx_delay_ps=2000,
    tx_clock_delay_ps=0,
    delays_from="litex-boards, colorlight_5a_75x.py: tx_delay 0, rx_delay 2 ns",
    leds={"combined": ("led", 0, "")},
    node=small_node(workers=4, lanes=4, jobs=1, slots=8),
    # The second port takes 13 block RAMs, of which 8 slots leave 4.
    several_ports={"slots": 4},
    engine_mhz=(Fraction(50), Fraction(50)),
    arguments=("--25k", "--package", "CABGA256", "--speed", "6"),
    notes=(
        "Revision 7.0 only: other revisions have the PHYs at other pins (8.0 and 8.2 differ).",
        "The LED shares its pin with the card's own connector J19; the button is not used.",
        "The first port is next to the power connector; the second is off without --ports 2.",
        "The flash holds the vendor's design; openFPGALoader --dump-flash saves it.",
    ),
)
