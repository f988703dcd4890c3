"""Priorities: training equals that of DDP alone, and impossible models are refused."""

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from afflux.compressors.whole import Whole
from afflux.overlap.priorities import Priorities, priorities_hook
from tests.support.host.prioritised import backward, small
from tests.support.host.ranks import caught, run_ranks, values

STEPS = 3


class Network(nn.Module):
    """Uses parameters in ways that modules' own calls do not show."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.wide = nn.Sequential(nn.Linear(8, 60), nn.Tanh(), nn.Linear(60, 8))
        self.scale = nn.Parameter(torch.ones(8))
        self.memory = nn.LSTM(8, 8, batch_first=True)

    def forward(self, words):
        found = self.words(words)
        found = found + self.attention(found, found, found)[0] * self.scale
        found = self.memory(found + self.wide(found))[0]
        # Tied, and not by a call of its module.
        return functional.linear(found, self.words.weight)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=torch.tensor(0.01), eps=1e-3)


def two_groups(parameters):
    known = list(parameters)
    groups: list[dict[str, Any]] = [{"params": known[:3]}, {"params": known[3:], "lr": 0.05}]
    return torch.optim.SGD(groups, lr=0.1)


def plain_step(ddp, optimizer, state, batch, step):
    optimizer.zero_grad()
    loss(ddp, batch).backward()
    optimizer.step()


def zeroed_late(ddp, optimizer, state, batch, step):
    found = loss(ddp, batch)
    optimizer.zero_grad(set_to_none=False)
    found.backward()
    optimizer.step()


def zeroed_after(ddp, optimizer, state, batch, step):
    loss(ddp, batch).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=step % 2 == 0)


def never_zeroed(ddp, optimizer, state, batch, step):
    (0.1 * loss(ddp, batch)).backward()
    optimizer.step()


def accumulated(ddp, optimizer, state, batch, step):
    optimizer.zero_grad()
    with ddp.no_sync():
        loss(ddp, batch.flip(0)).backward()
    loss(ddp, batch).backward()
    optimizer.step()


def clipped(ddp, optimizer, state, batch, step):
    optimizer.zero_grad()
    loss(ddp, batch).backward()
    if state is not None and step != 1:
        state.flush()
    nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
    optimizer.step()


def skipped(ddp, optimizer, state, batch, step):
    optimizer.zero_grad()
    loss(ddp, batch).backward()
    if step != 1:
        optimizer.step()


def evaluated_and_loaded(ddp, optimizer, state, batch, step):
    plain_step(ddp, optimizer, state, batch, step)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        ddp.module(batch)
    ddp.load_state_dict(ddp.state_dict())
    optimizer.load_state_dict(optimizer.state_dict())


def in_another_thread(ddp, optimizer, state, batch, step):
    found = []
    thread = threading.Thread(target=lambda: found.append(loss(ddp, batch)))
    thread.start()
    thread.join()
    optimizer.zero_grad()
    found[0].backward()
    optimizer.step()


def hooked(ddp, optimizer, state, batch, step):
    if step == 0:

        def clip(optimizer, *_):
            nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)

        optimizer.register_step_pre_hook(clip)
    plain_step(ddp, optimizer, state, batch, step)


def changed_otherwise(ddp, optimizer, state, batch, step):
    """In ways that leave a gradient's version as it is, or that torch's kernels do not show."""
    optimizer.zero_grad()
    loss(ddp, batch).backward()
    for each in ddp.parameters():
        if step == 0:
            each.grad.data.clamp_(-0.01, 0.01)
            dist.all_reduce(each.grad)
        elif step == 1:
            each.grad.numpy()[:] *= 0.5
    norm = nn.utils.get_total_norm([each.grad for each in ddp.parameters()])
    # As one does with a norm that is too large: all ranks must do the same.
    if str(float(norm))[-1] in "02468":
        optimizer.step()


def scaled(ddp, optimizer, state, batch, step):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer.zero_grad()
    scaler.scale(loss(ddp, batch)).backward()
    scaler.step(optimizer)
    scaler.update()


def by_others(ddp, optimizer, state, batch, step):
    optimizer.zero_grad()
    loss(ddp, batch).backward()
    if step == 0:
        optimizer.step()
        optimizer.step()
    elif step == 1:
        with torch.no_grad():
            for each in ddp.parameters():
                each.sub_(each.grad, alpha=0.1)
    else:
        torch.optim.Adam(ddp.parameters(), lr=0.01, eps=1e-3).step()


def loss(ddp, batch):
    scores = ddp(batch)
    return functional.cross_entropy(scores.flatten(0, 1), batch.flatten())


def train(rank, way, make, mode, group, message_bytes, ddp_options):
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Network(), bucket_cap_mb=0.002, **ddp_options)
    optimizer, state = make(ddp.parameters()), None
    if mode != "ddp":
        state = Priorities(
            ddp,
            optimizer if mode == "deferred" else None,
            message_bytes=message_bytes,
            fuse_bytes=500,
            group=group,
        )
        ddp.register_comm_hook(state, priorities_hook)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    source = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        batch = torch.randint(11, (2, 3), generator=source)
        way(ddp, optimizer, state, batch, step)
        schedule.step()
    weights = [each.detach().numpy().copy() for each in ddp.parameters()]
    if state is not None:
        sent = state.record.by_name("message")
        assert {each[0] for each in sent.values()} == {state.record.rounds} == {STEPS}
        assert len(sent) == len(state.messages)
        state.close()
        assert torch._C._len_torch_function_stack() == 0
    return weights, [each.grad is None for each in ddp.parameters()]


WAYS: tuple[tuple[Any, ...], ...] = (
    (plain_step, sgd, {}),
    (plain_step, adam, {"gradient_as_bucket_view": True}),
    (plain_step, two_groups, {"static_graph": True}),
    (zeroed_late, adam, {}),
    (zeroed_after, sgd, {"gradient_as_bucket_view": True}),
    (never_zeroed, sgd, {}),
    (accumulated, sgd, {"gradient_as_bucket_view": True}),
    (clipped, sgd, {}),
    (skipped, adam, {}),
    (evaluated_and_loaded, adam, {}),
    (in_another_thread, sgd, {}),
    (hooked, sgd, {}),
    (changed_otherwise, sgd, {}),
    (scaled, sgd, {"gradient_as_bucket_view": True}),
    (by_others, sgd, {}),
)


def largest_difference(ones, others):
    return max(float(abs(one - other).max()) for one, other in zip(ones, others, strict=True))


def train_in_all_ways(rank, size):
    found = {}
    group = dist.new_group(backend="afflux")
    for number, (way, make, options) in enumerate(WAYS):
        bytes_of_messages = (2000, 1 << 20, 700)[number % 3]
        modes = ("ddp", "deferred") if number % 3 else ("ddp", "deferred", "at once")
        got = [train(rank, way, make, mode, group, bytes_of_messages, options) for mode in modes]
        found[f"{number}: {way.__name__}"] = (
            largest_difference(got[0][0], got[1][0]),
            largest_difference(got[1][0], got[-1][0]),
            all(each[1] == got[0][1] for each in got),
        )
    return found


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "shm://")


def test_trains_what_ddp_alone_trains():
    for found in values(run_ranks(train_in_all_ways, 2)):
        assert len(found) == len(WAYS)
        for way, (off, off_by_deferring, same_are_none) in found.items():
            # Which elements have an exponent in common depends on where messages begin.
            assert off < 1e-6, way
            # A gradient that was not set to zero is added to before the sum, or after it.
            assert off_by_deferring < (1e-6 if "never" in way else 1e-30), way
            assert same_are_none, way


class SlowBackward(nn.Module):
    """Time between two buckets, in which what is not complete could be sent."""

    def forward(self, values):
        values.register_hook(lambda _: time.sleep(0.02))
        return values


def whole_numbers(rank, size):
    """Train with small whole numbers, whose sums are exact, whatever the messages."""
    found = []
    for mode, message_bytes in (("", 0), ("at once", 8), ("deferred", 64), ("deferred", 999)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(7, 5, bias=False), SlowBackward(), nn.Linear(5, 3))
        with torch.no_grad():
            for each in model.parameters():
                each.copy_(torch.randint(-3, 4, each.shape))
        ddp = DistributedDataParallel(model, bucket_cap_mb=1e-5)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
        if mode:
            # Its own group, of its own making.
            state = Priorities(
                ddp,
                optimizer if mode == "deferred" else None,
                message_bytes=message_bytes,
                compressor=Whole() if message_bytes == 999 else None,
            )
            ddp.register_comm_hook(state, priorities_hook)
        for step in range(2):
            optimizer.zero_grad()
            ddp(torch.full((1, 7), float(rank + step))).sum().backward()
            optimizer.step()
        found.append([each.detach().numpy().copy() for each in ddp.parameters()])
    # The threads end with the process.
    return found


def test_whole_numbers_are_exact():
    for found in values(run_ranks(whole_numbers, 2)):
        for each in found[1:]:
            for one, other in zip(found[0], each, strict=True):
                np.testing.assert_array_equal(one, other)


def changed_out_of_sight():
    ddp, optimizer, _ = small()
    backward(ddp)
    with torch._C.DisableTorchFunction():
        ddp.module[0].weight.grad.mul_(2)
    optimizer.step()


def closure():
    ddp, optimizer, _ = small()
    backward(ddp)
    optimizer.step(lambda: 0.0)


def closure_optimizer():
    small(torch.optim.LBFGS)


def two_optimizers():
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    ones = [torch.optim.SGD(ddp.parameters(), lr=0.1) for _ in range(2)]
    Priorities(ddp, ones)


def unused():
    ddp = DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True)
    Priorities(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1))


def scripted():
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 1))
    small(model=model)


def sparse():
    ddp, _, _ = small(None, model=nn.Embedding(4, 4, sparse=True))
    ddp(torch.tensor([1])).sum().backward()


def own_group():
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    Priorities(ddp, group=ddp.process_group)


def no_ddp():
    no_ddp: Any = nn.Linear(2, 2)
    Priorities(no_ddp)


def wrong_order():
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    Priorities(ddp, order=[ddp.module.weight])


def no_bytes():
    Priorities(DistributedDataParallel(nn.Linear(2, 2)), message_bytes=0)


def no_timeline():
    small()[2].write_timeline("nowhere")


def closed():
    ddp, optimizer, state = small()
    backward(ddp)
    optimizer.step()
    state.close()
    # A trained model can still be saved.
    state.close()
    ddp.state_dict(), optimizer.state_dict()
    backward(ddp)


def used_out_of_sight():
    ddp, optimizer, _ = small()
    backward(ddp)
    optimizer.step()
    # As a compiled part would use it: no function of torch's Python interface is called.
    with torch._C.DisableTorchFunction():
        backward(ddp)


MISUSES = {
    changed_out_of_sight: ("GradientsChanged", "the gradient of 0.weight was changed between"),
    own_group: ("ValueError", "the group is the model's own"),
    closure: ("RuntimeError", "call step() without a closure"),
    closure_optimizer: ("ValueError", "LBFGS is not known to treat each parameter by itself"),
    two_optimizers: ("ValueError", "weight is in two optimizers"),
    unused: ("ValueError", "use Priorities(ddp) without an optimizer"),
    scripted: ("ValueError", "0 is TorchScript, which does not show when"),
    sparse: ("ValueError", "sparse gradients have no priorities"),
    no_ddp: ("ValueError", "a DistributedDataParallel is needed, not Linear"),
    wrong_order: ("ValueError", "each of the model's 2 parameters that require"),
    no_bytes: ("ValueError", "message_bytes is 0"),
    no_timeline: ("ValueError", "no timeline without observe=True"),
    closed: ("MessagesFailed", "it has been closed"),
    used_out_of_sight: ("RuntimeError", "the forward pass has not used 0.weight"),
}


def misuse(rank, size):
    return {each.__name__: caught(each)[:2] for each in MISUSES}


def test_what_cannot_work_is_refused():
    for found in values(run_ranks(misuse, 2)):
        for each, (kind, text) in MISUSES.items():
            message, raised = found[each.__name__]
            assert (raised, text in message) == (kind, True), (each.__name__, raised, message)
