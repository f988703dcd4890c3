"""An engine that is served through frames, as a simulated one is."""

from collections.abc import Sequence

from afflux_drivers.aggregator.engine import SoftEngine

__all__ = ["FramesOnly"]


class FramesOnly:
    """The software engine behind the interface that all engines have, and nothing more."""

    name = "soft"

    def __init__(self) -> None:
        self._engine = SoftEngine()
        self.play, self.read, self.write = (
            self._engine.play,
            self._engine.read,
            self._engine.write,
        )

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Do as `SoftEngine` does."""
        return self._engine.feed(frames)

    def close(self) -> None:
        """Do nothing: the engine holds memory only."""
