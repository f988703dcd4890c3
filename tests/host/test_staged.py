"""Tensors of a device, through a device whose streams are threads and whose copies are late.

A wait that is missing shows: memory that a copy is still to write is poisoned.
"""

import pytest
import torch
import torch.distributed as dist

from afflux.group import progress
from afflux.group.engine_calls import EngineCalls
from afflux.group.staging.copies import Copies, Patience, on_stream
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


def nothing_is_wrong(body, size=2, **options):
    return values(run_ranks(body, size, NAME, **options)) == [[]] * size


@pytest.mark.parametrize("aggregator", ["shm", "streams", "soft", "gloo"])
def test_every_collective_gives_the_bits_that_it_gives_on_the_cpu(aggregator):
    environment = {"AFFLUX_AGGREGATOR": f"{aggregator}://"}
    assert nothing_is_wrong(staged.all_collectives, environment=environment)


def test_large_tensors_go_in_pieces():
    assert nothing_is_wrong(staged.in_pieces, 3)


@pytest.mark.parametrize("adapter", ["native", "python"])
def test_whoever_waits_for_a_result_sees_it(adapter):
    assert nothing_is_wrong(staged.ways_to_wait, environment={"AFFLUX_ADAPTER": adapter})


@pytest.mark.parametrize("way", [staged.replicated, staged.sharded])
def test_training_gives_the_bits_that_it_gives_on_the_cpu(way):
    assert nothing_is_wrong(way)


def test_schemes_give_the_averages_that_they_give_on_the_cpu():
    assert nothing_is_wrong(staged.with_schemes)


def test_what_one_rank_sends_another_receives():
    assert nothing_is_wrong(staged.sent, 3)


def test_a_call_on_several_devices_is_refused_and_the_group_goes_on():
    for text, after in values(run_ranks(staged.refused, 2, NAME)):
        assert text == "allgather float32 (3,): its tensors are on several devices: cpu, late:0"
        assert after == [2.0] * 3


def test_a_call_while_a_graph_is_captured_is_refused_and_the_group_goes_on():
    for text, after in values(run_ranks(staged.capturing, 2, NAME)):
        assert text == (
            "all_reduce sum float32 (3,): the current stream of late:0 captures a graph, in which "
            "nothing waits for a network; call it outside"
        )
        assert after == [2.0] * 3


def test_a_piece_does_not_pass_for_a_whole_tensor():
    assert all(values(run_ranks(staged.unequal, 2, NAME)))
    # Of ranks that do not compare pieces, one takes the sum of a piece for its own.
    assert not all(values(run_ranks(uncompared, 2, NAME)))


def uncompared(rank, size, device):
    EngineCalls.compare = lambda self, call, timeout_s: None  # type: ignore[method-assign]
    return staged.unequal(rank, size, device)


def failing(rank, size, device):
    """Sum when the device fails at the end of the call at rank 0; return the error, and another."""

    def fails(stream):
        raise RuntimeError("late:0 has met an illegal access")

    if rank == 0:
        progress.on_stream = fails
    bench, told = staged.Bench(device, 0, timeout_s=5), []
    for _ in range(3):
        with pytest.raises(AffluxError) as caught:
            for _ in range(2):
                dist.all_reduce(torch.ones(3, device=device), group=bench.group)
        told.append(str(caught.value))
    return told


def test_a_device_that_fails_ends_the_group_and_not_its_thread():
    for told in values(run_ranks(failing, 2, NAME)):
        assert all("late:0 has met an illegal access" in each for each in told)


def test_a_device_that_does_not_come_to_the_tensor_ends_the_call_in_time():
    told = values(run_ranks(staged.stuck, 2, NAME))
    # The other rank is told by the first one, or finds that it has not come.
    assert "late:0 has not come to the tensor within 2 s" in told[0][0]
    assert all(text and seconds < 7 for text, seconds in told)


def _takes_no_event(self, tensors):
    return self.down.record_event()


def _waits_for_nothing(self, event):
    return None


def _goes_back_by_another_stream(self, results, tensors):
    with on_stream(torch.Stream(device=self._device)):
        for result, tensor in zip(results, tensors, strict=True):
            tensor.data.copy_(result, non_blocking=True)


def _tells_no_allocator(self, tensors):
    return torch.accelerator.current_stream(self._device).record_event()


BUGS = {
    "the caller's stream is not waited for": (Copies, "take", _takes_no_event),
    "copies that come down are not waited for": (Patience, "wait", _waits_for_nothing),
    "results on their way back are not waited for": (Copies, "see_results", lambda self: None),
    "results go back by another stream": (Copies, "back", _goes_back_by_another_stream),
    "the allocator is told of no stream": (Copies, "take", _tells_no_allocator),
}


def with_bug(rank, size, device, name):
    place, method, wrong = BUGS[name]
    setattr(place, method, wrong)
    return staged.ways_to_wait(rank, size, device)


# One of the copies down and one of the copies back; the others with `make test-long`.
SHOWN = ("the caller's stream is not waited for", "results go back by another stream")


@pytest.mark.parametrize(
    "name", [name if name in SHOWN else pytest.param(name, marks=pytest.mark.long) for name in BUGS]
)
def test_a_wait_that_is_missing_is_seen(name):
    assert any(values(run_ranks(with_bug, 2, NAME, name)))
