"""The test switch that loses packets: AFFLUX_TEST_LOSS and AFFLUX_TEST_SEED."""

import os

from afflux_drivers import _native

__all__ = ["LossSwitch"]


class LossSwitch(_native.LossSwitch):
    """A switch that decides for each packet, in each direction, whether it gets lost.

    The directions draw from generators of their own, so that the fate of the n-th packet sent does
    not depend on what has been received.

    Args:
        share: Share of packets to lose, 0 to below 1.
        seed: With the rank, fixes all decisions.
        rank: Rank of the worker.

    Raises:
        ValueError: If the share is out of range.
    """

    def __init__(self, share: float, seed: int, rank: int) -> None:
        if not 0 <= share < 1:
            raise ValueError(f"a share of lost packets is 0 to below 1, not {share}")
        self.share = share
        super().__init__(share, seed & 0xFFFF_FFFF_FFFF_FFFF, rank)

    @classmethod
    def from_environment(cls, rank: int) -> "LossSwitch | None":
        """Return the switch that the environment asks for, or None.

        Raises:
            ValueError: If a variable is not a number or out of range; names the variable.
        """
        share = _number("AFFLUX_TEST_LOSS", float, 0.0)
        seed = _number("AFFLUX_TEST_SEED", int, 0)
        if share == 0:
            return None
        try:
            return cls(share, int(seed), rank)
        except ValueError as error:
            raise ValueError(f"AFFLUX_TEST_LOSS: {error}") from None


def _number(name: str, kind: type[int] | type[float], default: float) -> float:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number") from None
