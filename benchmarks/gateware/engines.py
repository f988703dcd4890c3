"""The simulated engines that these benchmarks measure: one for each width of the bus."""

from dataclasses import dataclass

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.verilated import VerilatedEngine

__all__ = ["ENGINES", "MeasuredEngine"]


@dataclass
class MeasuredEngine:
    """An engine as it would be built for a port.

    Attributes:
        bus_bits: Width of its streams.
        clock_hz: Clock for which it is designed.
        port_bits_per_s: Rate of the Ethernet port that it serves.
    """

    bus_bits: int
    clock_hz: float
    port_bits_per_s: float

    def __post_init__(self) -> None:
        self._engine: VerilatedEngine | None = None

    @property
    def engine(self) -> VerilatedEngine:
        """The engine with its default parameters; opened when first asked for."""
        if self._engine is None:
            self._engine = VerilatedEngine(bus_bits=self.bus_bits)
        return self._engine

    @property
    def parameters(self) -> Parameters:
        """The parameters that it was built with."""
        return Parameters(bus_bits=self.bus_bits)

    def close(self) -> None:
        """Free the engine; it is opened again when it is asked for."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


ENGINES = (
    MeasuredEngine(bus_bits=512, clock_hz=250e6, port_bits_per_s=100e9),
    MeasuredEngine(bus_bits=32, clock_hz=125e6, port_bits_per_s=1e9),
)
