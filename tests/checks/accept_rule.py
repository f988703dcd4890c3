"""Which packets a worker accepts: results of its own round of its own operation, nothing else."""

from collections.abc import Mapping

from afflux_drivers.packets import HEADER
from afflux_hdl.contract import wire
from tests.support.drivers.single_rank import Rank, header_of, result_of_opening

__all__ = ["check_accepts_only_its_own_round"]


def check_accepts_only_its_own_round(change: Mapping[str, int]) -> None:
    """Check that a result with one other header value is ignored, and the right one accepted."""
    rank = Rank()
    good = result_of_opening(rank.opening[0])
    header = header_of(good)
    (name, value), *_ = change.items()
    assert getattr(header, name) != value
    bad = HEADER.pack(*header._replace(**change)) + good[wire.HEADER_BYTES :]
    assert rank.receive(bad) is None
    assert rank.ignored() == 1
    assert rank.session.slots[0].outstanding
    assert rank.receive(good) is not None
