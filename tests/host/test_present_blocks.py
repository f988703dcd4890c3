"""All-reduces on a device by their blocks that are not zeros; the device is `late`."""

import functools

import pytest
import torch
import torch.distributed as dist

from afflux.group.staged_blocks import StagedBlocks
from afflux.group.staging import pieces
from afflux.group.staging.blocks import Blocks
from afflux.group.staging.copies import Patience, on_stream
from afflux_drivers.errors import AffluxError
from tests.scenarios import staged
from tests.support.host.ranks import run_ranks, values
from tests.support.late_device.device import NAME, load

# The first test compiles the device, which takes minutes beside other compilers.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile the device once, before ranks load it."""
    load()


@pytest.mark.parametrize("aggregator", ["shm", "streams", "soft"])
def test_blocks_that_any_rank_has_give_the_bits_of_the_cpu(aggregator):
    environment = {"AFFLUX_AGGREGATOR": f"{aggregator}://"}
    assert values(run_ranks(staged.by_blocks, 3, NAME, environment=environment)) == [[]] * 3


def test_tensors_of_many_blocks_are_looked_at_less_often():
    assert values(run_ranks(staged.looked_at, 2, NAME)) == [[]] * 2


def one_looks(rank, size, device):
    """Return the error of a sum of several pieces of which rank 0 alone looks at the blocks."""
    pieces.PIECE_BYTES = 4096
    bench = staged.Bench(device, 0, timeout_s=5, device_blocks="off" if rank else "on")
    with pytest.raises(AffluxError) as caught:
        dist.all_reduce(torch.zeros(10_000, device=device), group=bench.group)
    return str(caught.value)


@pytest.mark.parametrize("aggregator", ["shm", "streams", "soft"])
def test_ranks_of_which_one_does_not_look_get_an_error(aggregator):
    environment = {"AFFLUX_AGGREGATOR": f"{aggregator}://"}
    for text in values(run_ranks(one_looks, 2, NAME, environment=environment)):
        assert "all_reduce sum float32 (10000,)" in text
        assert "disagree" in text


def _in_another_stream(method):
    @functools.wraps(method)
    def wrong(self, *arguments):
        with on_stream(torch.Stream(device=self._words.device)):
            return method(self, *arguments)

    return wrong


def _own_alone(self, part, own, blocks, patience):
    return own


def _nothing(self, *arguments):
    return None


BUGS = {
    "flags are not waited for": (Patience, "wait", _nothing),
    "blocks are looked for in another stream": (
        Blocks,
        "present",
        _in_another_stream(Blocks.present),
    ),
    "blocks are taken in another stream": (Blocks, "take", _in_another_stream(Blocks.take)),
    "blocks are put in another stream": (Blocks, "put", _in_another_stream(Blocks.put)),
    "the allocator is told of no stream": (torch.Tensor, "record_stream", _nothing),
    "each rank takes its own blocks": (StagedBlocks, "_agreed", _own_alone),
}


def with_bug(rank, size, device, name):
    place, method, wrong = BUGS[name]
    setattr(place, method, wrong)
    return staged.by_blocks(rank, size, device, 0.02, [torch.float32])


# One of the streams and one of the ranks; the others with `make test-long`.
SHOWN = ("blocks are taken in another stream", "each rank takes its own blocks")


@pytest.mark.parametrize(
    "name", [name if name in SHOWN else pytest.param(name, marks=pytest.mark.long) for name in BUGS]
)
def test_a_wait_that_is_missing_is_seen(name):
    outcomes = run_ranks(with_bug, 2, NAME, name)
    assert any(outcome.failed or outcome.value for outcome in outcomes)
