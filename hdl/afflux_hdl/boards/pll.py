"""The clocks of a board: from its oscillator to 125 MHz and to the engine's clock, by one PLL.

Arithmetic and primitive are those of the ECP5's `EHXPLLL` (Lattice FPGA-TN-02200); the limits are
the datasheet's (FPGA-DS-02012, sysCLOCK PLL timing).

Tested: `tests/hdl/test_boards_pll.py`.
"""

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Const, Instance, Signal

__all__ = ["ETHERNET_MHZ", "Pll"]

ETHERNET_MHZ = 125
"""A byte of gigabit Ethernet in each cycle."""

REFERENCE_MHZ = (10, 400)
OSCILLATOR_MHZ = (400, 800)
REFERENCE_DIVIDER_MAX, FEEDBACK_DIVIDER_MAX, OUTPUT_DIVIDER_MAX = 128, 80, 128


@dataclass(frozen=True, kw_only=True)
class Pll:
    """Dividers of a PLL with two outputs, the first of which is fed back.

    Attributes:
        input_mhz: Frequency at its input.
        reference: Divider of the input.
        feedback: Divider of the first output, whose quotient follows the reference.
        ethernet: Divider of the oscillator for the first output, 125 MHz.
        engine: Divider of the oscillator for the second output.
    """

    input_mhz: Fraction
    reference: int
    feedback: int
    ethernet: int
    engine: int

    @property
    def oscillator_mhz(self) -> Fraction:
        """Frequency of the voltage controlled oscillator."""
        return self.input_mhz / self.reference * self.feedback * self.ethernet

    @property
    def ethernet_mhz(self) -> Fraction:
        """Frequency of the first output."""
        return self.oscillator_mhz / self.ethernet

    @property
    def engine_mhz(self) -> Fraction:
        """Frequency of the second output."""
        return self.oscillator_mhz / self.engine

    @classmethod
    def of(cls, input_mhz: Fraction | int, engine_mhz: Fraction | int) -> "Pll":
        """Return the dividers that give exactly 125 MHz and `engine_mhz`.

        Of several, the one with the highest reference (least jitter), then the fastest oscillator.

        Raises:
            ValueError: If there are none.
        """
        found = []
        for reference in range(1, REFERENCE_DIVIDER_MAX + 1):
            compared = Fraction(input_mhz) / reference
            feedback = Fraction(ETHERNET_MHZ) / compared
            if not REFERENCE_MHZ[0] <= compared <= REFERENCE_MHZ[1]:
                continue
            if feedback.denominator != 1 or feedback > FEEDBACK_DIVIDER_MAX:
                continue
            for ethernet in range(1, OUTPUT_DIVIDER_MAX + 1):
                oscillator = Fraction(ETHERNET_MHZ * ethernet)
                engine = oscillator / Fraction(engine_mhz)
                if not OSCILLATOR_MHZ[0] <= oscillator <= OSCILLATOR_MHZ[1]:
                    continue
                if engine.denominator == 1 and 1 <= engine <= OUTPUT_DIVIDER_MAX:
                    found.append((reference, -ethernet, int(feedback), int(engine)))
        if not found:
            raise ValueError(
                f"no PLL of an ECP5 makes {ETHERNET_MHZ} and {engine_mhz} MHz of {input_mhz} MHz"
            )
        reference, slowest, times, divider = min(found)
        return cls(
            input_mhz=Fraction(input_mhz),
            reference=reference,
            feedback=times,
            ethernet=-slowest,
            engine=divider,
        )

    def instance(
        self, *, clock: Signal, ethernet: Signal, engine: Signal, locked: Signal
    ) -> Instance:
        """Return the primitive, whose outputs drive the other signals."""
        tied = ("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PHASEDIR", "PHASESTEP", "PHASELOADREG")
        return Instance(
            "EHXPLLL",
            a_FREQUENCY_PIN_CLKI=str(float(self.input_mhz)),
            a_FREQUENCY_PIN_CLKOP=str(float(self.ethernet_mhz)),
            a_FREQUENCY_PIN_CLKOS=str(float(self.engine_mhz)),
            # Analogue settings, as Lattice's tool writes them for any PLL.
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_CLKI_DIV=self.reference,
            p_CLKFB_DIV=self.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=self.ethernet,
            p_CLKOP_CPHASE=self.ethernet - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=self.engine,
            p_CLKOS_CPHASE=self.engine - 1,
            p_CLKOS_FPHASE=0,
            i_CLKI=clock,
            i_CLKFB=ethernet,
            i_ENCLKOP=Const(0),
            i_PLLWAKESYNC=Const(0),
            **{f"i_{name}": Const(0) for name in tied},
            o_CLKOP=ethernet,
            o_CLKOS=engine,
            o_LOCK=locked,
        )
