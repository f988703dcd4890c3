"""gTop-k: what is taken, and that nothing is lost."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.compressors.gtopk import Taken, take_global_top_k
from afflux.compressors.gtopk_tree import take_by_tree
from afflux.compressors.selection import Bounds
from tests.support.host.ranks import caught, run_ranks, values

pytestmark = pytest.mark.usefixtures("engine")

ELEMENTS = 3000


def drawn(rank, step):
    source = torch.Generator().manual_seed(100 * step + rank)
    tensor = torch.randn(ELEMENTS, generator=source)
    # Magnitudes that differ more than a float32 has bits, places that some ranks have in common.
    spread = torch.randint(-60, 20, (ELEMENTS,), generator=source)
    shared = torch.randperm(ELEMENTS, generator=torch.Generator().manual_seed(step))[:40]
    spread[shared] = 19
    return torch.ldexp(tensor, spread)


WAYS: dict[str, Callable[..., Taken]] = {
    "lists": partial(take_global_top_k, way="lists"),
    "network": partial(take_global_top_k, way="network"),
    "tree": take_by_tree,
}


def steps(rank, size):
    """Return, for each way, tensors before and after each step, and what was taken in it."""
    histories: dict[str, list[list[np.ndarray]]] = {}
    for way, take in WAYS.items():
        kept, bounds = torch.zeros(ELEMENTS), Bounds()
        histories[way] = []
        for step in range(3):
            kept += drawn(rank, step)
            before = kept.clone()
            options = {} if step == 0 else {"bounds": bounds}
            taken = take(kept, 30, **options)
            histories[way].append([each.numpy() for each in (before, kept.clone(), *taken)])
    return histories, feedback(rank)


def feedback(rank):
    """Return, for each scheme, the sums of averages and what is kept after some steps."""
    found = []
    for words in ("gtopk:density=0.01", "gtopktree:density=0.01"):
        scheme = afflux.hooks.scheme(words)
        averages = torch.zeros(ELEMENTS)
        for step in range(3):
            averages += scheme.average(whole_numbers(rank, step), "it")
        (kept,) = scheme._kept._pieces.values()
        found.append((averages.numpy(), kept.numpy()))
    return found


def whole_numbers(rank, step):
    """Return what no sum rounds; ranks collide at some places."""
    source = torch.Generator().manual_seed(1000 * step + rank)
    tensor = torch.randint(-50, 51, (ELEMENTS,), generator=source).to(torch.float32)
    tensor[:20] *= 64
    return tensor


def check_conservation(size, got, way):
    given_by_several = 0
    for step in range(3):
        _, _, places, sums = got[0][0][way][step]
        assert 1 <= len(places) <= 30 and (np.diff(places) > 0).all() and (sums != 0).all()
        of_ranks = [got[rank][0][way][step] for rank in range(size)]
        for each in of_ranks:
            np.testing.assert_array_equal(each[2], places)
            np.testing.assert_array_equal(each[3], sums)
        moved = dict(zip(places.tolist(), sums.tolist(), strict=True))
        differ = np.stack([each[0] != each[1] for each in of_ranks])
        given_by_several += (differ.sum(0) > 1).sum()
        for place in {*moved, *np.flatnonzero(differ.any(0)).tolist()}:
            before = sum(Fraction(float(each[0][place])) for each in of_ranks)
            after = sum(Fraction(float(each[1][place])) for each in of_ranks)
            assert before - after == Fraction(moved.get(place, 0)), (way, step, place)
    assert given_by_several or size == 1


@pytest.mark.parametrize("size", [1, 3, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 5))])
def test_nothing_is_lost(size):
    got = values(run_ranks(steps, size))
    for way in WAYS:
        check_conservation(size, got, way)
    for history, _ in got:
        for ours, others in zip(history["lists"], history["network"], strict=True):
            for one, other in zip(ours, others, strict=True):
                np.testing.assert_array_equal(one, other)
    for number in range(2):
        kept = sum(of_schemes[number][1].astype(np.float64) for _, of_schemes in got)
        averages = got[0][1][number][0].astype(np.float64)
        given = sum(whole_numbers(rank, step) for rank in range(size) for step in range(3))
        difference = given.numpy() - kept - size * averages
        # A third or a fifth of a sum is rounded; nothing else is.
        assert np.abs(difference).max() <= (0 if size in (1, 2) else 1e-6 * 64 * 50 * size)


def of_branches(rank, size):
    """In the second branch of the tree what both its ranks have of an element is dropped."""
    tensor = torch.zeros(10)
    tensor[1], tensor[2] = ((1.5, 0.0), (0.0, 0.25), (0.75, 0.0), (0.0, 1.0))[rank]
    taken = take_by_tree(tensor, 1)
    return taken.places.tolist(), taken.sums.tolist(), tensor[1:3].tolist()


def test_what_a_branch_drops_stays_with_its_rank():
    got = values(run_ranks(of_branches, 4))
    # The 0.75 was dropped in its branch, for the 1.0; yet its place is that of the result.
    assert [each[:2] for each in got] == [([1], [1.5])] * 4
    assert [each[2] for each in got] == [[0, 0], [0, 0.25], [0.75, 0], [0, 1.0]]


def large_ones(rank, size):
    found = []
    # Gloo sums too, where a group is Gloo's.
    gloo = dist.new_group(backend="gloo")
    for take, group in product(WAYS.values(), (None, gloo)):
        tensor = torch.zeros(ELEMENTS)
        # No rank's own largest is the largest of the sum.
        tensor[10 + rank] = 5.0
        tensor[7] = 3.0
        # Two that cancel each other out.
        tensor[9] = 4.0 if rank == 0 else -4.0
        taken = take(tensor, 3, group)
        left = tensor.nonzero().view(-1).tolist()
        found.append((taken.places.tolist(), taken.sums.tolist(), left))
    return found


def test_the_largest_of_the_sum_are_taken():
    for found in values(run_ranks(large_ones, 2)):
        assert found == [([7, 10, 11], [6, 5, 5], [9])] * 2 * len(WAYS)


def bad(rank, size):
    found = []
    for take in WAYS.values():
        tensor = torch.ones(100)
        if rank == 1:
            tensor[3] = float("nan")
        message, kind, _ = caught(partial(take, tensor, 5))
        found.append((message, kind, tensor[:3].tolist(), take(torch.zeros(9), 3).places.tolist()))
    return found


def test_what_is_no_number_is_refused_by_all():
    for found in values(run_ranks(bad, 2)):
        for message, kind, kept, none in found:
            assert kind == "FloatingPointError" and "NaN" in message
            assert kept == [1, 1, 1]
            assert none == []


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))


def train(rank, size, momentum):
    model = network()
    # Several buckets, which are formed anew after the first step.
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    compressor = afflux.hooks.GlobalTopK(0.05)
    hook = afflux.hooks.Scheme(compressor, warm_up=[0.5, 0.2], warm_up_steps=10, momentum=momentum)
    ddp.register_comm_hook(hook, afflux.hooks.scheme_hook)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    source = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(120):
        inputs = torch.randn(32, 20, generator=source)
        loss = (ddp(inputs) - inputs[:, :3].sum(1, keepdim=True)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, [each.detach().numpy() for each in model.parameters()], hook.density


@pytest.mark.parametrize("momentum", [pytest.param(0.0, marks=pytest.mark.long), 0.5])
def test_a_network_learns(momentum):
    got = values(run_ranks(train, 2, momentum))
    for losses, weights, density in got:
        assert density == 0.05
        assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:5])
        for one, other in zip(weights, got[0][1], strict=True):
            np.testing.assert_array_equal(one, other)


def back_and_forth(ddp, inputs):
    ddp(inputs).sum().backward()


def train_over_a_bad_step(rank, size):
    model = network()
    ddp = DistributedDataParallel(model)
    hook = afflux.hooks.Scheme(afflux.hooks.GlobalTopK(0.1), momentum=0.5)
    ddp.register_comm_hook(hook, afflux.hooks.scheme_hook)
    inputs = torch.randn(8, 20, generator=torch.Generator().manual_seed(rank))
    kinds = []
    for step in range(4):
        bad = torch.full_like(inputs, float("inf")) if (step, rank) == (1, 1) else inputs
        kinds.append(caught(partial(back_and_forth, ddp, bad))[1])
        if step == 1:
            # A hook that DDP had begun is not ended: it is made anew, with the same hook's memory.
            ddp = DistributedDataParallel(model)
            ddp.register_comm_hook(hook, afflux.hooks.scheme_hook)
        model.zero_grad()
    kept = hook._kept._pieces.values()
    return kinds, all(bool(each.isfinite().all()) for each in kept)


def test_a_step_that_is_not_finite_leaves_nothing_behind():
    for kinds, finite in values(run_ranks(train_over_a_bad_step, 2)):
        assert kinds[1] != "nothing raised"
        assert kinds[2:] == ["nothing raised"] * 2
        assert finite


def too_large(rank, size):
    found = []
    for take in WAYS.values():
        tensor = torch.zeros(10)
        tensor[4] = 3e38
        found.append((caught(partial(take, tensor, 2))[1], tensor[4].item()))
    return found


def test_a_sum_that_is_no_float32_is_refused():
    for found in values(run_ranks(too_large, 2)):
        for kind, left in found:
            assert kind == "FloatingPointError"
            assert left == pytest.approx(3e38)


def of_different_sizes(rank, size):
    found = []
    for way, elements, count in (
        ("network", 12, 3 + rank),
        ("tree", 12, 3 + rank),
        *((way, 12 + 20 * rank, 3) for way in WAYS),
        # The last one, as its all-gather ends the group.
        ("lists", 12, 3 + rank),
    ):
        # The largest are where both have elements.
        tensor = torch.arange(float(elements), 0.0, -1.0, requires_grad=True)
        error = caught(partial(WAYS[way], tensor, count))
        unchanged = tensor.tolist() == list(range(elements, 0, -1))
        found.append((error[1], error[0].partition(";")[0], unchanged))
    return found


def test_ranks_that_offer_differently_all_get_an_error():
    for got in values(run_ranks(of_different_sizes, 2)):
        kinds, texts, unchanged = zip(*got, strict=True)
        assert kinds[:5] == ("ValueError",) * 5 and kinds[5] != "nothing raised"
        assert texts[:2] == ("ranks offer from 3 of 12 to 4 of 12 elements",) * 2
        of_sizes = "ranks offer from 3 of 12 to 3 of 32 elements"
        by_lists = "rank 0 offers 3 of 12 elements, rank 1 offers 3 of 32 elements"
        assert texts[2:5] == (by_lists, of_sizes, of_sizes)
        assert all(unchanged)
