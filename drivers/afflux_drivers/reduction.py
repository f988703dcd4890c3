"""What an operation does with the elements of all ranks."""

from enum import Enum

from afflux_hdl.contract import wire

__all__ = ["Reduction"]


class Reduction(Enum):
    """A reduction; its value is its word in the fingerprint."""

    SUM = "sum"
    AVG = "avg"
    MAX = "max"
    MIN = "min"

    @property
    def opcode(self) -> wire.Opcode:
        """What the aggregator does: it adds for averages too."""
        return _OPCODES[self]


_OPCODES = {
    Reduction.SUM: wire.Opcode.SUM,
    Reduction.AVG: wire.Opcode.SUM,
    Reduction.MAX: wire.Opcode.MAX,
    Reduction.MIN: wire.Opcode.MIN,
}
