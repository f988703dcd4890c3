"""Priorities: what is used, copied or interrupted while steps wait is as with DDP alone."""

import copy
import io
import os
import threading

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from afflux.overlap.messenger import MessagesFailed
from afflux.overlap.priorities import Priorities, priorities_hook
from tests.support.host.ranks import run_ranks, values


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "shm://")


class Training:
    """A model whose step is deferred, or is not."""

    def __init__(self, rank, deferred):
        torch.manual_seed(0)
        self.ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)))
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.1, momentum=0.9)
        self.state = None
        if deferred:
            self.state = Priorities(self.ddp, self.optimizer, observe=True)
            self.ddp.register_comm_hook(self.state, priorities_hook)
        self.ddp(torch.full((3, 4), rank + 1.0)).sum().backward()
        self.optimizer.step()


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()


def in_thread(action):
    found = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


def module_in_thread(training):
    return in_thread(lambda: training.ddp.module(torch.ones(1, 4)).tolist())


def transformed(training):
    module = training.ddp.module

    def loss(parameters):
        return torch.func.functional_call(module, parameters, (torch.ones(1, 4),)).sum()

    found = torch.func.grad(loss)(dict(module.named_parameters()))
    return [each.tolist() for each in found.values()]


def pickled(training):
    file = io.BytesIO()
    torch.save(training.ddp.module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    loaded(torch.ones(1, 4))
    return weights(loaded)


def copied(training):
    return weights(copy.deepcopy(training.ddp.module))


def copied_optimizer(training):
    found = copy.deepcopy(training.optimizer).state
    return [each["momentum_buffer"].tolist() for each in found.values()]


def gradients_after_flush(training):
    if training.state is not None:
        training.state.flush()
    return [each.grad.tolist() for each in training.ddp.parameters()]


def gradients_after_step(training):
    return [each.grad.tolist() for each in training.ddp.parameters()]


def interrupted(training):
    """Have a step fail, which is still to be done."""
    if training.state is not None:
        kind = type(training.optimizer)
        step = kind.step

        def stop(_):
            raise KeyboardInterrupt

        kind.step = stop
        try:
            with pytest.raises(KeyboardInterrupt):
                training.state.flush()
        finally:
            kind.step = step
        training.state.flush()
    return weights(training.ddp)


def two_threads(training):
    """One that waits for averages, and one that comes to the same steps meanwhile."""
    if training.state is None:
        return [weights(training.ddp)] * 2
    steps, begun, go_on = training.state._steps, threading.Event(), threading.Event()
    averages = steps._averages

    def wait(parameters):
        begun.set()
        assert go_on.wait(20.0)
        return averages(parameters)

    steps._averages = wait
    found = []
    use = lambda: found.append((go_on.is_set(), weights(training.ddp.module)))  # noqa: E731
    first = threading.Thread(target=lambda: (steps.apply_all(), use()))
    first.start()
    assert begun.wait(20.0)
    second = threading.Thread(target=lambda: (steps.apply_all(), use()))
    second.start()
    second.join(0.2)
    go_on.set()
    first.join()
    second.join()
    assert all(waited for waited, _ in found)
    return [each for _, each in found]


def forked(training):
    """Fork: the other process gets an error, or the weights, and does not hang."""
    if training.state is not None:
        receiver, sender = os.pipe()
        # Held by the thread, as it may be at a fork.
        training.state._messenger._changed.acquire()
        child = os.fork()
        if child == 0:
            try:
                weights(training.ddp.module)
                os.write(sender, b"weights")
            except MessagesFailed:
                os.write(sender, b"failed")
            finally:
                os._exit(0)
        training.state._messenger._changed.release()
        os.close(sender)
        assert os.read(receiver, 10) in (b"weights", b"failed")
        os.close(receiver)
        os.waitpid(child, 0)
    return weights(training.ddp)


USES = (
    module_in_thread,
    transformed,
    pickled,
    copied,
    copied_optimizer,
    gradients_after_flush,
    gradients_after_step,
    interrupted,
    two_threads,
    forked,
)


def used(rank, size):
    return {each.__name__: [each(Training(rank, way)) for way in (False, True)] for each in USES}


def test_uses_are_as_with_ddp_alone():
    for found in values(run_ranks(used, 2)):
        for name, (plain, deferred) in found.items():
            for one, other in zip(plain, deferred, strict=True):
                ones, others = torch.tensor(one), torch.tensor(other)
                torch.testing.assert_close(others, ones, rtol=1e-5, atol=1e-6, msg=name)
