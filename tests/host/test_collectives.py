"""The other collectives of torch.distributed, which go through Gloo."""

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from afflux.adapters.process_group import AffluxProcessGroup
from afflux.adapters.python_backend import PythonBackend
from afflux.group.reducers import fallback
from tests.support.host.ranks import caught, run_ranks, values


def broadcast(rank, size):
    tensor = torch.arange(4.0) * (rank + 1)
    dist.broadcast(tensor, src=1)
    assert tensor.tolist() == [0, 2, 4, 6]


def reduce(rank, size):
    tensor = torch.ones(3) * (rank + 1)
    dist.reduce(tensor, dst=1)
    assert rank != 1 or tensor.tolist() == [6, 6, 6]


def all_gather(rank, size):
    out = [torch.empty(2) for _ in range(size)]
    dist.all_gather(out, torch.full((2,), float(rank)))
    assert [each[0].item() for each in out] == [0, 1, 2]


def all_gather_into_tensor(rank, size):
    out = torch.empty(2 * size)
    dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
    assert out.tolist() == [0, 0, 1, 1, 2, 2]


def gather(rank, size):
    out = [torch.empty(2) for _ in range(size)] if rank == 2 else None
    dist.gather(torch.full((2,), float(rank)), out, dst=2)
    assert out is None or [each[0].item() for each in out] == [0, 1, 2]


def scatter(rank, size):
    tensor = torch.empty(2)
    parts = [torch.full((2,), float(n)) for n in range(size)] if rank == 0 else None
    dist.scatter(tensor, parts, src=0)
    assert tensor.tolist() == [rank, rank]


def reduce_scatter(rank, size):
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(n)) for n in range(size)])
    assert out.tolist() == [3 * rank, 3 * rank]


def reduce_scatter_tensor(rank, size):
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
    assert out.tolist() == [6 * rank, 6 * rank + 3]


def all_to_all_single(rank, size):
    out = torch.empty(size)
    dist.all_to_all_single(out, torch.arange(size) + 10.0 * rank)
    assert out.tolist() == [rank, 10 + rank, 20 + rank]


def all_to_all(rank, size):
    out = [torch.empty(1) for _ in range(size)]
    try:
        dist.all_to_all(out, [torch.tensor([10.0 * rank + n]) for n in range(size)])
    except RuntimeError as error:
        # Gloo of some versions has only the single-tensor form.
        assert "alltoall" in str(error)
        return
    assert [each.item() for each in out] == [rank, 10 + rank, 20 + rank]


def send_and_receive(rank, size):
    got = torch.empty(1)
    works = [
        dist.irecv(got, src=(rank - 1) % size, tag=3),
        dist.isend(torch.tensor([float(rank)]), dst=(rank + 1) % size, tag=3),
    ]
    for work in works:
        work.wait()
    assert got.item() == (rank - 1) % size
    if isinstance(dist.group.WORLD._get_backend(torch.device("cpu")), PythonBackend):
        # torch does not ask it who has sent.
        assert "recv without a source" in caught(lambda: dist.recv(got))[0]
        return
    if rank == 0:
        for _ in range(size - 1):
            source = dist.recv(got)
            assert got.item() == source
    else:
        dist.send(torch.tensor([float(rank)]), dst=0)
    # A receive from any source would take the next case's message too.
    dist.barrier()


def batched_send_and_receive(rank, size):
    got = torch.empty(1)
    for work in dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
            dist.P2POp(dist.isend, torch.tensor([float(rank)]), (rank + 1) % size),
        ]
    ):
        work.wait()
    assert got.item() == (rank - 1) % size


def objects(rank, size):
    out = [None] * size
    dist.all_gather_object(out, {"rank": rank})
    assert out == [{"rank": n} for n in range(size)]
    shared = [rank, "x"]
    dist.broadcast_object_list(shared, src=2)
    assert shared == [2, "x"]
    got = [None]
    dist.scatter_object_list(got, [f"for {n}" for n in range(size)], src=0)
    assert got == [f"for {rank}"]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert gathered is None or gathered == [0, 1, 2]
    if rank == 0:
        dist.send_object_list(["hello"], dst=1)
    elif rank == 1:
        received = [None]
        dist.recv_object_list(received, src=0)
        assert received == ["hello"]


def other_dtypes_and_reductions(rank, size):
    for dtype in (torch.float64, torch.int64, torch.uint8, torch.int8):
        tensor = torch.ones(3, dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3, 3, 3]
    tensor = torch.ones(3, dtype=torch.complex64) * (1 + 1j)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3 + 3j] * 3
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT)
    assert tensor.item() == 6
    tensor = torch.tensor([1 << rank], dtype=torch.int32)
    dist.all_reduce(tensor, op=dist.ReduceOp.BOR)
    assert tensor.item() == 7
    for op, want in ((dist.ReduceOp.AVG, 1.0), (dist.ReduceOp.SUM, 3.0)):
        tensor = torch.tensor([float(rank)], dtype=torch.float64)
        dist.all_reduce(tensor, op=op)
        assert tensor.item() == want
        out = torch.empty(1)
        dist.reduce_scatter_tensor(out, torch.full((size,), float(rank)), op=op)
        assert out.item() == want
    flag = torch.tensor([rank == 1])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    assert flag.item()


def sparse(rank, size):
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank, rank + 1]]), torch.ones(2), (5,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [1, 2, 2, 1, 0]


def coalesced(rank, size):
    tensors = [torch.ones(3), torch.ones(70), torch.ones(2)]
    dist.all_reduce_coalesced(tensors)
    assert all((tensor == 3).all() for tensor in tensors)


def functional_forms(rank, size):
    group: Any = dist.group.WORLD
    summed = functional.all_reduce(torch.ones(3), "sum", group)
    assert (summed + 0).tolist() == [3, 3, 3]
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group)
    assert (gathered + 0).tolist() == [0, 0, 1, 1, 2, 2]
    scattered = functional.reduce_scatter_tensor(torch.arange(6.0), "sum", 0, group)
    assert (scattered + 0).tolist() == [6 * rank, 6 * rank + 3]
    one, two = functional.all_reduce_coalesced([torch.ones(3), torch.ones(4)], "sum", group)
    assert (one + 0).tolist() == [3, 3, 3]
    assert (two + 0).tolist() == [3, 3, 3, 3]


def barriers(rank, size):
    dist.barrier()
    dist.barrier(async_op=True).wait()


def overloads(rank, size):
    group = dist.distributed_c10d._get_default_group()
    tensor = torch.ones(3)
    group.allreduce(tensor).wait()
    group.allreduce([tensor], dist.ReduceOp.MAX).wait()
    group.allreduce(tensor, dist.ReduceOp.SUM).wait()
    assert tensor.tolist() == [9, 9, 9]
    group.broadcast(tensor, 0).wait()
    group.barrier().wait()
    out = torch.empty(3 * size)
    group._allgather_base(out, tensor).wait()
    assert (out == 9).all()
    # As callers of C++ and of other frameworks have them: without options, or with their fields.
    one, own = torch.ones(1), torch.full((1,), float(rank))
    group.broadcast(own, 1).wait()
    assert own.tolist() == [1]
    group.reduce(one, 0, dist.ReduceOp.SUM).wait()
    outputs = [torch.empty(1) for _ in range(size)]
    group.allgather(outputs, torch.full((1,), float(rank))).wait()
    assert [each.item() for each in outputs] == list(range(size))
    group.allgather([outputs], [own]).wait()
    assert [each.item() for each in outputs] == [1] * size
    group.gather(outputs if rank == 0 else [], own, 0).wait()
    group.scatter(own, outputs if rank == 0 else [], 0).wait()
    assert own.tolist() == [1]
    group.reduce_scatter(own, outputs, dist.ReduceOp.SUM).wait()
    assert own.tolist() == [size]
    spread = torch.empty(size)
    group.alltoall_base(spread, torch.full((size,), float(rank)), [], []).wait()
    assert spread.tolist() == list(range(size))
    group._reduce_scatter_base(own, spread).wait()  # type: ignore[call-arg]
    assert own.tolist() == [rank * size]


def names(rank, size):
    assert dist.get_backend() == "afflux"
    assert dist.get_rank() == rank
    assert dist.get_world_size() == size
    group = dist.distributed_c10d._get_default_group()
    # A process group in Python has no backend of its own for torch's C++, only Gloo's.
    whole = isinstance(group, AffluxProcessGroup)
    backend = group._get_backend(torch.device("cpu"))
    assert (group if whole else backend).name() == "afflux"
    assert backend.name() == ("gloo" if whole else "afflux")
    assert group.group_name


CASES = [
    broadcast, reduce, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter,
    reduce_scatter_tensor, all_to_all_single, all_to_all, send_and_receive,
    batched_send_and_receive, objects, other_dtypes_and_reductions, sparse, coalesced,
    functional_forms, barriers, overloads, names,
]  # fmt: skip


def run_all(rank, size):
    errors = {}
    for case in CASES:
        try:
            case(rank, size)
        except Exception as error:
            errors[case.__name__] = f"{type(error).__name__}: {error}"
            break
    return errors


@pytest.mark.usefixtures("engine")
def test_every_collective():
    assert values(run_ranks(run_all, 3)) == [{}, {}, {}]


def test_every_collective_without_a_compiler():
    """By the adapter in Python."""
    environment = {"AFFLUX_AGGREGATOR": "auto", "AFFLUX_ADAPTER": "python"}
    assert values(run_ranks(run_all, 3, environment=environment)) == [{}, {}, {}]


def end_when_a_look_does(rank, _size):
    # Looks so short that an operation often ends between one that is over and what follows it.
    fallback._SLICE = timedelta(milliseconds=1)
    for number in range(1000):
        if rank == 0 and number % 3 == 0:
            time.sleep(0.001 + number % 7 * 1e-5)
        tensor = torch.full((10,), float(rank))
        dist.broadcast(tensor, 0)
        assert tensor.sum() == 0


def test_an_operation_that_ends_as_a_look_at_it_does_has_ended():
    values(run_ranks(end_when_a_look_does, 2))
