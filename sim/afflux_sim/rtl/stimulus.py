"""How frames are played into a simulated engine: pace, back-pressure, when to stop."""

from dataclasses import dataclass

__all__ = ["BACK_TO_BACK", "NOT_DRAINED", "Stimulus"]


@dataclass(frozen=True, kw_only=True)
class Stimulus:
    """Pace of one `afflux_sim.rtl.verilated.VerilatedEngine.play`.

    Attributes:
        ready_share: Share of the cycles in which the engine may send a beat, chosen at random.
        gap_share: Share of the cycles before each beat in which none is offered, below 1.
        seed: Seed of these choices. The same seed gives the same cycles.
        max_cycles: Cycles after which an engine that is still not idle is taken to hang; `None`:
            many more than it takes to send every frame to 64 workers.
        drain: Run on until the engine is idle. If not, the call ends with the last frame's last
            beat. Frames that the engine sends later are returned by later calls, and its permission
            to send stays as it was in the last cycle, until the next `play` or `run`.

        reset_at: Cycles after which the reset pin is held for four cycles, in which frames go on;
            0: it is not.

    Raises:
        ValueError: If a share is out of its range.
    """

    ready_share: float = 1.0
    gap_share: float = 0.0
    seed: int = 0
    max_cycles: int | None = None
    drain: bool = True
    reset_at: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.ready_share <= 1:
            raise ValueError(f"ready_share must be 0 to 1, not {self.ready_share}")
        if not 0 <= self.gap_share < 1:
            raise ValueError(f"gap_share must be 0 to below 1, not {self.gap_share}")


BACK_TO_BACK = Stimulus()
"""A beat in every cycle, no back-pressure, until idle."""

NOT_DRAINED = Stimulus(drain=False)
"""A frame's beat in every cycle, and an end with the last frame's last beat."""
