"""Lattice ECP5 Versa Development Kit, with an LFE5UM-45F."""

from fractions import Fraction

from amaranth_boards.versa_ecp5 import VersaECP5Platform

from afflux_hdl.boards.board import Board
from afflux_hdl.boards.ecpix5 import ECPIX5_45F

__all__ = ["VERSA_ECP5"]

VERSA_ECP5 = Board(
    name="versa-ecp5",
    title="Lattice ECP5 Versa Development Kit (LFE5UM-45F)",
    platform=VersaECP5Platform,
    oscillator=("clk100", 100),
    rgmii=0,
    # The PHYs are Marvell 88E1512, strapped to delay both clocks themselves.
    rx_delay_ps=0,
    tx_clock_delay_ps=0,
    delays_from="litex-boards, lattice_versa_ecp5.py: tx_delay 0, rx_delay 0",
    leds={
        "configured": ("led", 0, ""),
        "link": ("led", 1, ""),
        "activity": ("led", 2, ""),
        "fault": ("led", 3, ""),
    },
    node=ECPIX5_45F.node,
    engine_mhz=(Fraction(50), Fraction(125, 2)),
    arguments=("--um-45k", "--package", "CABGA381", "--speed", "8"),
    notes=(
        "openFPGALoader does not list the board: load the SVF file by OpenOCD over its FT2232H, or"
        " the bitstream by openFPGALoader -c ft2232 with --fpga-part LFE5UM-45F.",
        "The first port is labelled PHY1 (about J47); the second is off without --ports 2.",
    ),
)
