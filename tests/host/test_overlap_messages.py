"""Messages of priorities: their order, their failures, their display."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from afflux.compressors.top_k import TopK
from afflux.compressors.whole import Whole
from afflux.overlap.groups import timeout_of
from afflux.overlap.hybrid import hybrid_mesh
from afflux.overlap.messenger import Messenger
from afflux.overlap.plan import Plan
from afflux.overlap.priorities import Priorities, priorities_hook
from afflux.overlap.use_tracker import UseTracker
from tests.support.host.prioritised import backward, small
from tests.support.host.ranks import caught, run_ranks, values


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "shm://")


# How messages are agreed upon.


def plan_of(count):
    return Plan({f"layer{number}": torch.empty(2) for number in range(count)}, 8, 8)


def wait_for(begun, _):
    begun.wait(1.0)


def differing_ranks(rank, size):
    """Ranks are ready in different orders, at different times, round after round."""
    plan = plan_of(6)
    group = dist.new_group(backend="afflux")
    order: list[Any] = []
    waits: list[Any] = []

    def carry_out(message):
        number = torch.tensor([float(message.number), 1.0])
        dist.all_reduce(number, group=group)
        order.append((message.number, number.tolist()))

    messenger = Messenger(plan.messages, carry_out, group, plan.fingerprint)
    source = torch.Generator().manual_seed(rank)
    begun = threading.Event()
    for turn in range(40):
        messenger.begin()
        # The thread learns that a round is over when the next one has begun.
        begun.set()
        begun = threading.Event()
        mine = torch.randperm(6, generator=source).tolist() if turn % 4 else [5, 4, 3, 2, 1, 0]
        for number in mine:
            if turn % 5 == 0 and rank == turn % size:
                time.sleep(0.001)
            messenger.ready([number])
        messenger.when_done([0, 3], waits.append)
        messenger.when_done(range(6), partial(wait_for, begun))
        messenger.wait(range(6))
        assert not messenger.busy
    begun.set()
    messenger.close()
    return order, waits, messenger.agreements


def test_all_ranks_sum_the_same_messages_once():
    got = values(run_ranks(differing_ranks, 3))
    for order, waits, agreements in got:
        assert [number for number, _ in order] == [number for number, _ in got[0][0]]
        for turn in range(40):
            some = order[6 * turn : 6 * turn + 6]
            assert sorted(number for number, _ in some) == [0, 1, 2, 3, 4, 5]
            assert all(total == [3.0 * number, 3.0] for number, total in some)
        assert waits == [None] * 40
        assert 40 <= agreements <= 40 * 13


def overtaking(rank, size):
    """Have messages ready while another one is under way."""
    plan, group = plan_of(4), dist.new_group(backend="afflux")
    found = []
    for in_order in (True, False):
        order: list[Any] = []
        first = threading.Event()

        def carry_out(message, order=order, first=first):
            order.append(message.number)
            first.wait(10.0)

        messenger = Messenger(plan.messages, carry_out, group, plan.fingerprint, in_order=in_order)
        messenger.begin()
        messenger.ready([2, 3])
        while not order:
            time.sleep(0.001)
        messenger.ready([1])
        messenger.ready([0])
        dist.barrier()
        first.set()
        messenger.wait([0])
        messenger.wait(range(4))
        messenger.close()
        found.append(order)
    return found


def test_what_is_needed_first_overtakes():
    for found in values(run_ranks(overtaking, 2)):
        assert found == [[2, 0, 1, 3], [3, 2, 1, 0]]


def another_order(rank, size):
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    order = list(ddp.parameters())
    state = Priorities(ddp, order=order if rank == 0 else order[::-1], message_bytes=40)
    ddp.register_comm_hook(state, priorities_hook)
    by_plan = caught(lambda: ddp(torch.ones(1, 4)).sum().backward())
    # A rank whose thread goes another way from then on, by mistake.
    messages = plan_of(2).messages
    group = dist.new_group(backend="afflux")
    messenger = Messenger(messages, lambda _: None, group, 7)
    if rank == 1:
        messenger._history += 1
    messenger.begin()
    messenger.ready([0, 1])
    by_thread = caught(lambda: messenger.wait([0, 1]))
    messenger.close()
    return by_plan, by_thread


def test_other_priorities_at_one_rank_are_noticed():
    for by_plan, by_thread in values(run_ranks(another_order, 2)):
        assert by_plan[1] == "MessagesFailed"
        assert "the ranks have not the same priorities" in by_plan[0]
        assert (
            by_thread[1] == "MessagesFailed" and "same messages in the same order" in by_thread[0]
        )
        assert max(by_plan[2], by_thread[2]) < 15


# Failures.


class Failing(Whole):
    """Fails at one rank, in a step."""

    def __init__(self, rank):
        self.rank = rank
        self.calls = 0

    def take(self, tensor, average, group):
        self.calls += 1
        if self.calls == 6 and self.rank == 1:
            raise ArithmeticError("this one is odd")
        return super().take(tensor, average, group)


def fails_in_the_thread(rank, size, deferred):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    group = dist.new_group(backend="afflux", timeout=dist.default_pg_timeout)
    state = Priorities(
        ddp,
        optimizer if deferred else None,
        compressor=Failing(rank),
        message_bytes=64,
        fuse_bytes=1,
        group=group,
    )
    ddp.register_comm_hook(state, priorities_hook)

    def steps():
        for _ in range(5):
            optimizer.zero_grad()
            backward(ddp)
            optimizer.step()
            if rank == 1 and not deferred:
                continue

    if rank == 1:
        found = caught(steps)
        # The others cannot go on without this rank.
        dist.destroy_process_group(group)
        return found
    return caught(steps)


@pytest.mark.parametrize("deferred", [True, False])
def test_an_error_in_the_thread_reaches_training(deferred):
    other, failed = values(run_ranks(fails_in_the_thread, 2, deferred, timeout_s=10.0))
    assert "ArithmeticError: this one is odd" in failed[0]
    assert failed[1] == ("MessagesFailed" if deferred else "RuntimeError")
    assert "bytes) was to be summed" in failed[0] and ".weight" in failed[0]
    assert other[1] != "nothing raised" and max(other[2], failed[2]) < 30


def dies(rank, size):
    ddp, optimizer, _ = small(
        model=nn.Sequential(nn.Linear(4, 600), nn.Linear(600, 2)), message_bytes=512
    )

    def steps():
        for step in range(1000):
            optimizer.zero_grad()
            backward(ddp)
            if rank == 1 and step == 2:
                # Messages are waiting, at this rank and the others.
                os._exit(1)
            optimizer.step()

    return caught(steps)


def test_a_rank_that_dies_ends_the_others():
    outcomes = run_ranks(dies, 3, timeout_s=20.0)
    assert outcomes[1].kind == "died"
    for each in (outcomes[0], outcomes[2]):
        assert not each.failed, each
        message, kind, seconds = each.value
        assert kind in ("MessagesFailed", "RuntimeError"), each.value
        assert "was to be summed" in message or "was to be agreed" in message
        assert seconds < 30


def ends_without_a_word(rank, size):
    """Nothing is closed: rank 1 destroys its groups while rank 0 is in its backward pass."""
    ddp, optimizer, _ = small()
    for step in range(2):
        if step == rank == 0:
            ddp.module[0].bias.register_hook(lambda _: time.sleep(0.3))
        optimizer.zero_grad()
        backward(ddp)
        optimizer.step()
    if rank == 0:
        return len(ddp.module.state_dict())
    return 4


def test_ends_with_the_group():
    assert values(run_ranks(ends_without_a_word, 2)) == [4, 4]


SCRIPT = """
import io, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import afflux
rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("afflux", init_method=f"file://{file}", rank=rank, world_size=2)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
state = afflux.hooks.Priorities(ddp, optimizer)
ddp.register_comm_hook(state, afflux.hooks.priorities_hook)
if rank == 0:
    ddp.module[0].bias.register_hook(lambda _: time.sleep(0.3))
for _ in range(2):
    ddp(torch.ones(3, 4)).sum().backward()
    optimizer.step()
if rank == 0:
    torch.save(ddp.module.state_dict(), io.BytesIO())
    print("saved", flush=True)
"""


def test_ends_with_the_process(tmp_path):
    """Scripts that merely end, of which one saves."""
    scripts = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        texts = [each.communicate(timeout=60)[0] for each in scripts]
    finally:
        for each in scripts:
            each.kill()
    assert "saved" in texts[0] and [each.returncode for each in scripts] == [0, 0], texts


def keeps_what_is_left(rank, size):
    """Train with gradients that never change, whole numbers, of which a part is given each time."""
    model = nn.Linear(6, 1, bias=False)
    nn.init.zeros_(model.weight)
    ddp, optimizer, state = small(model=model, lr=1.0, compressor=TopK(0.2), message_bytes=12)
    inputs = torch.tensor([[1.0, -2.0, 3.0, 4.0, -5.0, 6.0]]) * (rank + 1)
    for _ in range(7):
        optimizer.zero_grad()
        ddp(inputs).sum().backward()
        optimizer.step()
    state.close()
    left = state._gradients._left[torch.float32].clone()
    dist.all_reduce(left)
    given = -model.weight.detach().view(-1)
    return len(state.messages), (given * size + left).tolist(), left.abs().sum().item()


def test_what_a_compressor_leaves_is_given_later():
    for messages, all_of_it, left in values(run_ranks(keeps_what_is_left, 2)):
        assert messages == 2
        assert all_of_it == [7 * 3 * each for each in (1.0, -2.0, 3.0, 4.0, -5.0, 6.0)]
        assert left > 0


# Its output.


def observed(rank, size, folder):
    ddp, optimizer, state = small(observe=True, message_bytes=64, fuse_bytes=1)
    for _ in range(3):
        optimizer.zero_grad()
        backward(ddp)
        optimizer.step()
    state.flush()
    state.write_timeline(f"{folder}/%r.json")
    return state.statistics(), [each.text for each in state.messages]


def test_shows_what_it_did(tmp_path):
    for rank, (found, messages) in enumerate(values(run_ranks(observed, 2, str(tmp_path)))):
        assert (found["rounds"], found["bytes"], found["messages"]) == (3, 176, len(messages))
        assert messages == ["0.weight[0:16]", "0.weight[16:24]", "0.bias", "1.weight", "1.bias"]
        assert found["communication_s"] > 0 and found["agreements"] >= 3
        assert "0.weight[0:16]" in found["table"]
        layers = found["layers"].splitlines()
        assert [line.split()[-1] for line in layers[1:3]] == ["0", "1"]
        assert layers[1].split()[0] == "120" and layers[2].split()[0] == "56"
        events = json.loads((tmp_path / f"{rank}.json").read_text())
        spans = [each for each in events if each["ph"] == "X"]
        assert {each["pid"] for each in events} == {rank}
        kinds = {each["cat"] for each in spans}
        assert kinds == {"forward", "backward", "copy", "step", "wait", "message"}
        sent = [each for each in spans if each["cat"] == "message"]
        assert len(sent) == 3 * len(messages) and all(each["dur"] > 0 for each in sent)
        assert {each["args"]["priority"] for each in sent} == set(range(len(messages)))


def hybrid(rank, size):
    mesh = hybrid_mesh(model=2)
    found = []
    for name in ("data", "model"):
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=mesh.get_group(name))
        backend = dist.get_backend(mesh.get_group(name))
        found.append((dist.get_process_group_ranks(mesh.get_group(name)), tensor.item(), backend))
    data, model = (mesh.get_group(name) for name in ("data", "model"))
    ddp = DistributedDataParallel(nn.Linear(2, 2), process_group=data)
    limits = {timeout_of(each) for each in (None, data, model, Priorities(ddp)._group)}
    wrong = [
        caught(partial(hybrid_mesh, model=3))[0],
        caught(partial(hybrid_mesh, model=2, data=1))[0],
        caught(partial(Priorities, ddp, group=model))[0],
    ]
    # A rank that ends at once would do so while another one still makes the last group.
    dist.barrier()
    return found, wrong, limits


def test_hybrid_groups():
    for rank, (found, wrong, limits) in enumerate(values(run_ranks(hybrid, 4, timeout_s=17.0))):
        assert limits == {timedelta(seconds=17)}
        data, model = [rank % 2, rank % 2 + 2], [rank // 2 * 2, rank // 2 * 2 + 1]
        assert found == [(data, float(sum(data)), "afflux"), (model, float(sum(model)), "afflux")]
        assert "model is 3: the 4 ranks cannot be divided" in wrong[0]
        assert "data is 1, and model 2: that is 2 ranks, and there are 4" in wrong[1]
        assert f"the ranks of the model's group, {data}: it has {model}" in wrong[2]


# Parts that need no ranks.


@pytest.mark.parametrize("message_bytes", [1, 4, 40, 100, 1 << 20])
@pytest.mark.parametrize("fuse_bytes", [1, 60, 1 << 20])
def test_every_element_is_in_one_message(message_bytes, fuse_bytes):
    sizes = {"a": 3, "b": 1, "c": 70, "d": 2, "e": 5, "half": 9, "f": 1}
    tensors = {
        name: torch.empty(size, dtype=torch.float16 if name == "half" else torch.float32)
        for name, size in sizes.items()
    }
    plan = Plan(tensors, message_bytes, fuse_bytes)
    seen: dict[str, list[Any]] = {name: [] for name in sizes}
    ends = dict.fromkeys(plan.elements, 0)
    for number, message in enumerate(plan.messages):
        assert message.number == number
        assert message.start == ends[message.dtype] < message.stop
        ends[message.dtype] = message.stop
        assert message.bytes <= max(message_bytes, message.dtype.itemsize)
        assert len(message.parts) == 1 or message.bytes <= fuse_bytes
        assert sum(stop - start for _, start, stop in message.parts) * message.dtype.itemsize == (
            message.bytes
        )
        for parameter, start, stop in message.parts:
            seen[plan.names[parameter]] += range(start, stop)
            assert number in plan.places[parameter].messages
    assert ends == plan.elements
    assert seen == {name: list(range(size)) for name, size in sizes.items()}
    assert (
        plan.fingerprint
        != Plan(dict(reversed(tensors.items())), message_bytes, fuse_bytes).fingerprint
    )


@contextmanager
def looking(tracker):
    tracker.turn_on()
    try:
        yield
    finally:
        tracker.turn_off()


def test_sees_elements_being_used_and_nothing_else():
    seen: list[Any] = []
    tracker = UseTracker(seen.extend)
    layer = nn.Linear(2, 2)
    tracker.wanted = {id(each): each for each in layer.parameters()}
    with looking(tracker):
        weight = layer.weight
        _ = weight.shape, weight.grad, weight.requires_grad, len(weight), hash(weight), weight.dim()
        weight.grad = None
        layer.zero_grad()
        assert seen == []
        # A mode that is entered later ends first.
        with torch.device("cpu"):
            layer(torch.ones(1, 2))
        assert {id(each) for each in seen} == set(tracker.wanted)
        for use in (
            lambda: weight.data,
            weight.detach,
            weight.numpy,
            lambda: weight[0],
            weight.tolist,
        ):
            seen.clear()
            caught(use)
            assert len(seen) == 1
        seen.clear()
    assert not tracker.on
    layer(torch.ones(1, 2))
    assert seen == []
