"""The memory of schemes: across buckets, steps, failures, and a restart."""

from functools import partial

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import afflux
from afflux.schemes.memory import Memory
from tests.support.host.ranks import caught, run_ranks, values


class Half(afflux.hooks.Compressor):
    """Gives half of each element: simple numbers, whose sum over the steps is known."""

    word = "half"

    def take(self, tensor, average, group):
        tensor.div_(2)
        average.copy_(tensor)
        torch.distributed.all_reduce(average, group=group)
        average.div_(torch.distributed.get_world_size(group))

    def volume(self, elements, ranks):
        return 4.0 * elements


def a_step(ddp, value):
    ddp.zero_grad()
    for each in ddp.parameters():
        each.data.fill_(1.0)
    (ddp(torch.ones(1, 4, dtype=next(ddp.parameters()).dtype)) * value).sum().backward()
    return [each.grad.clone() for each in ddp.parameters()]


def network(dtype=torch.float32):
    model = torch.nn.Sequential(torch.nn.Linear(4, 600), torch.nn.Linear(600, 2))
    return DistributedDataParallel(model.to(dtype), bucket_cap_mb=0.001)


def steps_and_a_restart(rank, size):
    scheme = afflux.hooks.Scheme(Half())
    ddp = network()
    ddp.register_comm_hook(scheme, afflux.hooks.scheme_hook)
    gradients = [a_step(ddp, float(rank)) for _ in range(3)]
    saved = scheme.state_dict(ddp)
    again = afflux.hooks.Scheme(Half())
    ddp = network()
    again.load_state_dict(ddp.module, saved)
    ddp.register_comm_hook(again, afflux.hooks.scheme_hook)
    gradients.append(a_step(ddp, float(rank)))
    biases = [step[-1].tolist() for step in gradients]
    narrow = network(torch.bfloat16)
    afflux.hooks.register(narrow, afflux.hooks.Scheme(Half(), feedback=False))
    bias = a_step(narrow, float(rank))[-1]
    return (
        biases,
        sorted(saved["kept"]),
        saved["steps"],
        again.steps,
        (str(bias.dtype), bias.tolist()),
    )


def test_what_is_left_comes_later_also_after_a_restart():
    for biases, names, steps, steps_again, narrow in values(run_ranks(steps_and_a_restart, 2)):
        # A bias of the last layer has the gradient 0 or 1. Half of what is kept is given: 1/2, 3/4,
        # 7/8, 15/16, and on the average half of that.
        assert biases == [[share, share] for share in (1 / 4, 3 / 8, 7 / 16, 15 / 32)]
        assert names == ["0.bias", "0.weight", "1.bias", "1.weight"]
        assert (steps, steps_again) == (3, 4)
        assert narrow == ("torch.bfloat16", [0.25, 0.25])


def gradients_of_words(rank, words):
    torch.manual_seed(1)
    embedding = torch.nn.EmbeddingBag(50, 4, sparse=True)
    ddp = DistributedDataParallel(torch.nn.Sequential(embedding, torch.nn.Linear(4, 2)))
    if words:
        afflux.hooks.register(ddp, words)
    ddp(torch.tensor([[1, 1, 7 + rank]])).sum().backward()
    return [each.grad.to_dense().tolist() for each in ddp.parameters()]


def restarts_of_draws(rank, size):
    """Return the draws after a restart, of names too, and the errors of ranks at odds."""
    tensor = torch.arange(64.0)
    scheme = afflux.hooks.scheme("randomk:density=0.1")
    for _ in range(3):
        scheme.average(tensor.clone(), "a")
    saved = scheme.state_dict()
    expected = scheme.average(tensor.clone(), "a").tolist()
    again = afflux.hooks.scheme("randomk:density=0.1")
    again.load_state_dict(None, saved)
    found = again.average(tensor.clone(), "a").tolist()
    behind = afflux.hooks.scheme("randomk:density=0.1")
    if rank:
        behind.load_state_dict(None, saved)
    others = afflux.hooks.scheme(f"gtopk:density={0.5 + rank / 4}")
    errors = [caught(partial(each.average, tensor.clone(), "a"))[0] for each in (behind, others)]
    return expected == found, saved["steps"], errors


def test_ranks_must_have_the_same_scheme_and_go_on_where_they_were():
    for same, steps, (behind, others) in values(run_ranks(restarts_of_draws, 2)):
        assert same and steps == 2
        assert behind.startswith("the ranks have different schemes: rank 0: Selected(")
        assert "step 0, {'selector': {'draws': 0}" in behind and "step 2" in behind
        assert "GlobalTopK(density=0.5)" in others and "rank 1: GlobalTopK(density=0.75)" in others


def on_other_ranks(rank, size):
    mesh = afflux.hybrid_mesh(model=1)
    alone = torch.distributed.new_group([rank], use_local_synchronization=True)
    ddp = DistributedDataParallel(torch.nn.Linear(2, 1), device_mesh=mesh["data"])
    scheme = afflux.hooks.Scheme(afflux.hooks.Whole(), group=alone)
    error = caught(partial(afflux.hooks.register, ddp, scheme))
    made = afflux.hooks.register(ddp, afflux.hooks.Scheme(afflux.hooks.Whole()))
    strided = torch.ones(8)[::2]
    of_strides = caught(lambda: afflux.hooks.Int8().take(strided, torch.ones(4), None))
    return error[0], made is not None and made.group is ddp.process_group, of_strides[0]


def test_a_scheme_averages_over_its_models_ranks():
    for rank, (error, same, strided) in enumerate(values(run_ranks(on_other_ranks, 2))):
        assert error == f"the scheme averages over ranks [{rank}], the model is on [0, 1]"
        assert same
        assert "strides (2,)" in strided


def functions(rank, size):
    scheme = afflux.hooks.scheme("gtopk:density=0.25")
    first = torch.tensor([4.0, 1.0, 0.0, 0.0]) * (rank + 1)
    second = torch.tensor([1.0, 3.0, 0.0, 0.0]).view(2, 2)
    got = [scheme.average(first.clone(), "a").tolist(), scheme.average(second, "b").tolist()]
    got.append(scheme.average(torch.zeros(4), "a").tolist())
    steps = scheme.steps
    wrong = [
        caught(lambda: scheme.average(torch.zeros(5), "a")),
        caught(lambda: scheme.average(torch.zeros(4, dtype=torch.float64), "c")),
        caught(lambda: scheme.average(torch.zeros(4, 4).t()[:2], "c")),
    ]
    of_words = [gradients_of_words(rank, words) for words in ("", "float32")]
    return got, steps, [error[0] for error in wrong], of_words


def test_tensors_with_names_have_memories_of_their_own():
    for got, steps, wrong, of_words in values(run_ranks(functions, 2)):
        assert got == [[6, 0, 0, 0], [[0, 3], [0, 0]], [0, 1.5, 0, 0]]
        assert steps == 1
        assert "a had 4 elements before, and has 5" in wrong[0]
        assert "torch.float64" in wrong[1]
        assert "tensor 'c' (2, 4) is not contiguous" in wrong[2]
        # Gradients with few rows are outside of schemes, and are averaged as ever.
        assert of_words[0] == of_words[1]
        assert [any(row) for row in of_words[0][0]] == [row in (1, 7, 8) for row in range(50)]


def test_what_is_kept_moves_on_with_its_pieces():
    memory = Memory()
    both = memory.of(["a", "b"], [2, 3], torch.device("cpu"))
    both.copy_(torch.arange(5.0))
    assert memory.of(["a", "b"], [2, 3], torch.device("cpu")) is both
    assert memory.of(["b", "c"], [3, 1], torch.device("cpu")).tolist() == [2, 3, 4, 0]
    assert memory.of(["a"], [2], torch.device("cpu")).tolist() == [0, 1]
    with pytest.raises(ValueError, match="b had 3 elements before, and has 4"):
        memory.of(["b"], [4], torch.device("cpu"))


def test_parts_that_do_not_go_together_are_refused():
    hooks = afflux.hooks
    with pytest.raises(ValueError, match="half gives all elements"):
        hooks.Scheme(Half(), momentum=0.9)
    with pytest.raises(ValueError, match=r"momentum is 0\.9, without feedback"):
        hooks.Scheme(hooks.GlobalTopK(), momentum=0.9, feedback=False)
    with pytest.raises(ValueError, match=r"density is 1\.5"):
        hooks.Scheme(hooks.GlobalTopK(), warm_up=[1.5], warm_up_steps=1)
    with pytest.raises(ValueError, match="density is 0"):
        hooks.GlobalTopK(0)
