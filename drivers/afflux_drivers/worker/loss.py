"""The test switch that loses packets."""

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
            raise ValueError(f"a share of lost packets must be 0 to below 1, not {share}")
        self.share = share
        super().__init__(share, seed & 0xFFFF_FFFF_FFFF_FFFF, rank)
