"""Common parts of proofs that watch one element of the slot memory."""

from amaranth.hdl import Elaboratable, Value

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.residue import RESIDUE_BITS

__all__ = ["ElementHarness"]


class ElementHarness(Elaboratable):
    """An engine's part with one watched element.

    Args:
        element: Which of a beat's 32-bit words is watched.
        sizes: Parameters of the engine that are not the default.
    """

    def __init__(self, element: int = 0, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)
        self._element = element

    def _word(self, beat: Value) -> Value:
        return beat[32 * self._element : 32 * self._element + 32]

    def _slot_word(self, beat: Value) -> Value:
        """Return the low bits of the slot's word in a beat of a block."""
        return beat.word_select(self._element, self._parameters.slot_word_bits)[:32]

    @property
    def _residues(self) -> slice:
        """Where among a beat's residues that of the word is."""
        return slice(RESIDUE_BITS * self._element, RESIDUE_BITS * (self._element + 1))

    def _residue(self, beat: Value) -> Value:
        return beat[self._parameters.bus_bits :][self._residues]
