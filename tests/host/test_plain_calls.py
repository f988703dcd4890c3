"""A group's cache of all-reduces of one plain tensor."""

import pytest
import torch
import torch.distributed as dist

from afflux.group.call.collectives import parts_of
from afflux.group.call.description import describe
from afflux.group.call.plain import PlainCalls


def asked(tensor, op=dist.ReduceOp.SUM):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return [tensor], options


def kept(arguments):
    calls = PlainCalls()
    planned = [(part, "plan") for part in parts_of("allreduce", arguments, 2) or []]
    calls.keep("allreduce", arguments, describe("allreduce", arguments), planned)
    return calls


def test_another_tensor_of_the_kind_has_the_same_call():
    first, second = asked(torch.ones(3, 4)), asked(torch.zeros(3, 4))
    found = kept(first).find("allreduce", second)
    assert found is not None
    call, ((part, plan),) = found
    assert call == describe("allreduce", second)
    assert part == parts_of("allreduce", second, 2)[0]
    assert part.outputs[0] is second[0][0]
    assert plan == "plan"


@pytest.mark.parametrize(
    "other",
    [
        asked(torch.ones(4, 3)),
        asked(torch.ones(3, 4, dtype=torch.float16)),
        asked(torch.ones(3, 4), dist.ReduceOp.MAX),
        asked(torch.ones(4, 3).t()),
        asked(torch.ones(1).expand(3, 4)),
        asked(torch.ones(3, 4).to_sparse()),
        asked(torch.ones(3, 4, device="meta")),
        ([torch.ones(3, 4), torch.ones(3, 4)], dist.AllreduceOptions()),
    ],
)
def test_what_differs_is_looked_at_anew(other):
    assert kept(asked(torch.ones(3, 4))).find("allreduce", other) is None


def test_other_methods_are_not_its_own():
    calls = kept(asked(torch.ones(3)))
    assert calls.find("allreduce_coalesced", asked(torch.ones(3))) is None


def test_what_is_not_plain_is_not_kept():
    view = torch.ones(4, 3).t()
    assert kept(asked(view)).find("allreduce", asked(view)) is None
