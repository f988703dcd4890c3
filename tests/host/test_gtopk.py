"""gTop-k: what is taken, and that nothing is lost."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.schemes.gtopk import take_global_top_k
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


def steps(rank, size):
    kept = torch.zeros(ELEMENTS)
    history = []
    for step in range(3):
        kept += drawn(rank, step)
        before = kept.clone()
        taken = take_global_top_k(kept, 30)
        history.append([each.numpy() for each in (before, kept.clone(), *taken)])
    return history


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_nothing_is_lost(size):
    got = values(run_ranks(steps, size))
    for step in range(3):
        _, _, places, sums = got[0][step]
        assert 1 <= len(places) <= 30 and (np.diff(places) > 0).all() and (sums != 0).all()
        for rank in range(size):
            np.testing.assert_array_equal(got[rank][step][2], places)
            np.testing.assert_array_equal(got[rank][step][3], sums)
        moved = dict(zip(places.tolist(), sums.tolist(), strict=True))
        for place in range(ELEMENTS):
            before = sum(Fraction(float(got[rank][step][0][place])) for rank in range(size))
            after = sum(Fraction(float(got[rank][step][1][place])) for rank in range(size))
            assert before - after == Fraction(moved.get(place, 0)), (step, place)


def large_ones(rank, size):
    tensor = torch.zeros(ELEMENTS)
    # No rank's own largest is the largest of the sum.
    tensor[10 + rank] = 5.0
    tensor[7] = 3.0
    # Two that cancel each other out.
    tensor[9] = 4.0 if rank == 0 else -4.0
    taken = take_global_top_k(tensor, 3)
    return taken.places.tolist(), taken.sums.tolist(), tensor.nonzero().view(-1).tolist()


def test_the_largest_of_the_sum_are_taken():
    for rank, (places, sums, left) in enumerate(values(run_ranks(large_ones, 2))):
        assert (places, sums) == ([7, 10, 11], [6, 5, 5])
        assert left == [9], rank


def bad(rank, size):
    tensor = torch.ones(100)
    if rank == 1:
        tensor[3] = float("nan")
    error = caught(lambda: take_global_top_k(tensor, 5))
    return error[:2], tensor[:3].tolist(), take_global_top_k(torch.zeros(9), 3).places.tolist()


def test_what_is_no_number_is_refused_by_all():
    for (message, kind), kept, none in values(run_ranks(bad, 2)):
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


@pytest.mark.parametrize("momentum", [0.0, 0.5])
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
            # What DDP had begun is not ended: it is made anew, with the same hook's memory.
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
    tensor = torch.zeros(10)
    tensor[4] = 3e38
    error = caught(lambda: take_global_top_k(tensor, 2))
    return error[1], tensor[4].item()


def test_a_sum_that_is_no_float32_is_refused():
    for kind, left in values(run_ranks(too_large, 2)):
        assert kind == "FloatingPointError"
        assert left == pytest.approx(3e38)
