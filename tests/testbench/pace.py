"""Whether something happens in a cycle, drawn at random from a seed."""

import random

__all__ = ["Pace"]


class Pace:
    """Draws once a cycle.

    Args:
        share: Share of the cycles in which it happens, 0 to 1.
        seed: Seed of the choices.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._random = random.Random(seed)

    def __call__(self) -> bool:
        """Return whether it happens in this cycle."""
        return self._share >= 1 or self._random.random() < self._share
