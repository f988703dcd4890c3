"""LambdaConcept ECPIX-5, with an ECP5 of 45 or 85 thousand LUTs."""

from dataclasses import replace
from fractions import Fraction

from amaranth_boards.ecpix5 import ECPIX545Platform, ECPIX585Platform

from afflux_hdl.boards.board import Board, small_node

__all__ = ["ECPIX5_45F", "ECPIX5_85F"]

ECPIX5_45F = Board(
    name="ecpix5-45f",
    title="LambdaConcept ECPIX-5 with LFE5UM5G-45F",
    platform=ECPIX545Platform,
    oscillator=("clk100", 100),
    rgmii=0,
    # The PHY is a Microchip KSZ9031. LiteX's target delays TXC by 2 ns and leaves RXD alone.
    rx_delay_ps=0,
    tx_clock_delay_ps=2000,
    delays_from="litex-boards, lambdaconcept_ecpix5.py: tx_delay 2 ns, rx_delay 0",
    # When its reset ends, the PHY takes its mode from the pins of RXD: high is RGMII with all
    # speeds advertised. amaranth-boards leaves out these resistors, litex-boards has them.
    rgmii_attributes={"rx_data": (("PULLMODE", "UP"),)},
    leds={
        "configured": ("rgb_led", 0, "g"),
        "link": ("rgb_led", 1, "g"),
        "activity": ("rgb_led", 2, "b"),
        "fault": ("rgb_led", 3, "r"),
    },
    node=small_node(workers=8, lanes=5, jobs=2, slots=16),
    engine_mhz=(Fraction(50),),
    arguments=("--um5g-45k", "--package", "CABGA554", "--speed", "8"),
)

ECPIX5_85F = replace(
    ECPIX5_45F,
    name="ecpix5-85f",
    title="LambdaConcept ECPIX-5 with LFE5UM5G-85F",
    platform=ECPIX585Platform,
    node=small_node(workers=16, lanes=5, jobs=4, slots=32),
    arguments=("--um5g-85k", "--package", "CABGA554", "--speed", "8"),
)
