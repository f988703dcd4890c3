"""Groups whose ranks have different adapters: some work, all others end in an error at once."""

import dataclasses

import pytest
from torch.torch_version import __version__ as torch_version

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.store.exchange import RendezvousError
from afflux.group.store.introduction import Introduction, check_agreement
from tests.support.host.ranks import run_ranks

NATIVE = Introduction(AggregatorUrl("auto"), "a host", 16, adapter="native")
OTHER = dataclasses.replace(NATIVE, adapter="python backend")
GROUP = dataclasses.replace(NATIVE, adapter="python process group")


def test_backends_go_together_and_process_groups_alone():
    check_agreement([NATIVE, OTHER, NATIVE])
    check_agreement([GROUP, GROUP])
    with pytest.raises(RendezvousError) as caught:
        check_agreement([NATIVE, NATIVE, GROUP])
    assert "rank 0: native" in str(caught.value)
    assert "rank 2: python process group" in str(caught.value)


def nothing(_rank, _size):
    return "met"


@pytest.mark.skipif(torch_version >= "2.14", reason="backends, which go together")
@pytest.mark.parametrize("bad_rank", ["0", "2"])
@pytest.mark.parametrize("aggregator", ["auto", "soft://"])
def test_ranks_of_other_adapters_are_named(bad_rank, aggregator):
    environment = {
        "AFFLUX_AGGREGATOR": aggregator,
        "AFFLUX_ADAPTER": "native",
        "BAD_RANK": bad_rank,
        "BAD": "AFFLUX_ADAPTER=python",
    }
    outcomes = run_ranks(nothing, 3, environment=environment, timeout_s=25, limit_s=50)
    native = "1" if bad_rank == "0" else "0"
    for outcome in outcomes:
        assert outcome.kind == "RendezvousError"
        assert f"rank {native}: native" in outcome.message
        assert f"rank {bad_rank}: python process group" in outcome.message
        # Long before the group's timeout.
        assert outcome.seconds < 20
