"""Collectives of tensors on a device, at one rank, on any of torch's devices.

Each function takes rank and size, and the device's type, and returns a list of what is wrong, or
what it has seen. A tensor's elements are still on their way to the device when it is given to a
collective.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import afflux.hooks
from afflux.group.call.tensors import ENGINE_DTYPES
from afflux.group.staging import pieces
from afflux.group.staging.copies import on_stream
from afflux_drivers.errors import AffluxError
from tests.support.late_device import device as late_device

__all__ = [
    "all_collectives",
    "by_blocks",
    "capturing",
    "elements",
    "in_pieces",
    "looked_at",
    "refused",
    "replicated",
    "sent",
    "sharded",
    "stuck",
    "unequal",
    "ways_to_wait",
    "with_schemes",
]

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.float64)

SCHEMES = (
    "float32",
    "bf16",
    "int8",
    "topk:density=0.1",
    "gtopk:density=0.1+momentum:factor=0.9",
    "gtopktree:density=0.1",
    "mstopk:density=0.1",
    "randomk:density=0.1",
    "threshold:bound=0.5",
    "blocktopk:density=0.1+int8",
)

_CYCLES = 20_000_000
"""Of a GPU's clock: some 10 ms."""


class Bench:
    """A device, and a group of all ranks that serves it.

    Args:
        device: Its type.
        late_s: How late its copies are.
        timeout_s: The group's timeout.
        device_blocks: See `afflux.Options`.
    """

    def __init__(
        self,
        device: str,
        late_s: float = 0.01,
        timeout_s: float = 20,
        device_blocks: str | None = None,
    ) -> None:
        self.device = device
        self.late = late_device.load() if device == late_device.NAME else None
        self.be_late(late_s)
        backend = f"cpu:afflux,{device}:afflux"
        self.group: Any = dist.new_group(
            backend=backend,
            timeout=timedelta(seconds=timeout_s),
            pg_options=afflux.Options(device_blocks=device_blocks),
        )

    def be_late(self, seconds: float) -> None:
        if self.late is not None:
            self.late.set_delay(seconds)
        self._is_late = seconds > 0

    def given(self, values: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device to which these values are on their way."""
        tensor = torch.empty_like(values, device=self.device)
        if self.device == "cuda" and self._is_late:
            tensor.fill_(-1)
            torch.cuda._sleep(_CYCLES)
        tensor.copy_(values.pin_memory(), non_blocking=True)
        return tensor

    @staticmethod
    def seen(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values as its user's current stream sees them."""
        return tensor.clone().cpu()

    def copies_after_free(self) -> int:
        """Return the copies from or to memory that was free; 0 where nobody can tell."""
        return 0 if self.late is None else int(self.late.copies_after_free())


def elements(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + count)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    return torch.randint(-1000, 1000, (count,), generator=generator, dtype=dtype)


Pair = tuple[Any, Any]
"""A tensor, or a list of them, on the device and on the CPU; None twice if there is none."""


def calls(
    bench: Bench, rank: int, size: int, count: int, dtype: torch.dtype
) -> Iterator[tuple[str, Callable[..., Any], list[Pair]]]:
    """Yield collectives: name, function, and its tensors."""

    def pair(values: torch.Tensor) -> Pair:
        return bench.given(values), values.clone()

    def mine() -> Pair:
        return pair(elements(rank, count, dtype))

    def others() -> Pair:
        return pair(elements(rank, size * count, dtype))

    def room(parts: int = 1) -> Pair:
        return pair(torch.zeros(parts * count, dtype=dtype))

    def listed(make: Callable[[], Pair]) -> Pair:
        made = [make() for _ in range(size)]
        return [one for one, _ in made], [other for _, other in made]

    nothing = None, None
    for operation in ("SUM", "AVG", "MAX", "MIN"):
        if operation != "AVG" or dtype.is_floating_point:
            op = getattr(dist.ReduceOp, operation)
            yield f"all_reduce {operation}", functools.partial(dist.all_reduce, op=op), [mine()]
    yield "broadcast", functools.partial(dist.broadcast, src=size - 1), [mine()]
    yield "reduce", functools.partial(dist.reduce, dst=0), [mine()]
    yield "all_gather", dist.all_gather, [listed(room), mine()]
    yield "all_gather_into_tensor", dist.all_gather_into_tensor, [room(size), mine()]
    yield "reduce_scatter", dist.reduce_scatter, [room(), listed(mine)]
    yield "reduce_scatter_tensor", dist.reduce_scatter_tensor, [room(), others()]
    yield "all_to_all_single", dist.all_to_all_single, [room(size), others()]
    yield "all_to_all", dist.all_to_all, [listed(room), listed(mine)]
    scatter = functools.partial(dist.scatter, src=0)
    yield "scatter", scatter, [room(), listed(mine) if rank == 0 else nothing]
    gather = functools.partial(dist.gather, dst=0)
    yield "gather", gather, [mine(), listed(room) if rank == 0 else nothing]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return all(map(_equal, one, other))
    return one is None or torch.equal(Bench.seen(one), other)


def all_collectives(
    rank: int, size: int, device: str, count: int = 1000, late_s: float = 0.001
) -> list[str]:
    """Return the calls that give other bits on the device than on the CPU."""
    bench = Bench(device, late_s)
    wrong = []
    for dtype in DTYPES:
        for name, call, pairs in calls(bench, rank, size, count, dtype):
            call(*(one for one, _ in pairs), group=bench.group)
            call(*(other for _, other in pairs), group=bench.group)
            # The other ranks' tensors have no result of a reduce.
            if (name != "reduce" or rank == 0) and not all(_equal(*pair) for pair in pairs):
                wrong.append(f"{name} {count} {dtype}")
    if bench.late is not None and bench.late.device_waits():
        wrong.append("waited for the whole device")
    return wrong


def in_pieces(rank: int, size: int, device: str) -> list[str]:
    """Return the same of tensors that go in several pieces."""
    pieces.PIECE_BYTES = 4096
    return all_collectives(rank, size, device, 5000)


def _specials(dtype: torch.dtype) -> torch.Tensor:
    """Return elements whose bits are easily lost: of each a block has only one."""
    if not dtype.is_floating_point:
        return torch.tensor([1, torch.iinfo(dtype).min], dtype=dtype)
    least = torch.finfo(dtype).smallest_normal / 2
    return torch.tensor([-0.0, float("nan"), float("inf"), least, -1.5], dtype=dtype)


def mostly_zeros(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return elements of which few blocks have any bit set: none of the last rank's of three."""
    found = torch.zeros(count, dtype=dtype)
    if rank == 2:
        return found
    # Blocks of the first rank alone, of the second alone, of both, and the last, short one.
    specials = _specials(dtype)
    places = [3 + 1000 * n + 500 * rank for n in range(len(specials))] + [count // 2, count - 1]
    found[places] = torch.cat([specials, specials[-1:], specials[-1:]])
    return found


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _union_blocks(size: int, count: int, dtype: torch.dtype) -> int:
    """Return how many blocks any rank has of `mostly_zeros`."""
    bits = torch.zeros(-(-count * dtype.itemsize // 256) * 256, dtype=torch.uint8)
    for rank in range(size):
        bits[: count * dtype.itemsize] |= _bits(mostly_zeros(rank, count, dtype))
    return int(bits.view(-1, 256).ne(0).any(1).sum())


def by_blocks(
    rank: int,
    size: int,
    device: str,
    late_s: float = 0.001,
    dtypes: Sequence[torch.dtype] = (*DTYPES, torch.int8),
) -> list[str]:
    """Return the sums of tensors that are mostly zeros whose bits are not those on the CPU.

    Only blocks that some rank has may come to the host. The tensors are odd in size and place, and
    come by a stream of their own.
    """
    pieces.PIECE_BYTES = 4096
    bench, count = Bench(device, late_s, device_blocks="on"), 24_003
    wrong, stream = [], torch.Stream(device=device)
    everything = afflux.statistics(bench.group)["engine"] in ("shm", "streams")
    for dtype in dtypes:
        for name in ("SUM", "AVG", "MAX"):
            if name == "AVG" and not dtype.is_floating_point:
                continue
            before = afflux.statistics(bench.group)["device_blocks"]
            values = mostly_zeros(rank, count, dtype)
            behind = torch.cat([values[:1], values])
            with on_stream(stream):
                tensor = bench.given(behind)[1:]
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name), group=bench.group)
                seen = bench.seen(tensor)
            dist.all_reduce(values, op=getattr(dist.ReduceOp, name), group=bench.group)
            after = afflux.statistics(bench.group)["device_blocks"]
            # The rest is Gloo's at an aggregator, and goes whole.
            native = everything or dtype in ENGINE_DTYPES
            expected = _union_blocks(size, count, dtype) if native else 0
            came = after["blocks_taken"] - before["blocks_taken"]
            if came != expected or not torch.equal(_bits(seen), _bits(values)):
                wrong.append(f"{name} {dtype}: {came} blocks of {expected}")
    if bench.late is not None and bench.late.device_waits():
        wrong.append("waited for the whole device")
    if bench.copies_after_free():
        wrong.append("used memory that was free")
    return wrong


def looked_at(rank: int, size: int, device: str) -> list[str]:
    """Return what is wrong with sums whose blocks are looked at, or not, by what was before."""
    pieces.PIECE_BYTES = 4096
    bench, count, wrong = Bench(device, 0, device_blocks="auto"), 24_000, []
    #: Whether most blocks are there, and whether they are looked at.
    calls = [(True, True), (True, False), (True, True), (False, False), (False, False)]
    calls += [(False, True), (False, True), (True, True), (True, False), (False, True)]
    for number, (dense, looks) in enumerate(calls):
        before = afflux.statistics(bench.group)["device_blocks"]
        grid = elements(rank, count, torch.float32) if dense else torch.zeros(count)
        grid = grid.view(120, 200)
        given = bench.given(grid)
        # Not contiguous, as a view.
        dist.all_reduce(given.t(), group=bench.group)
        dist.all_reduce(grid.t(), group=bench.group)
        after = afflux.statistics(bench.group)["device_blocks"]
        told = [after[each] - before[each] for each in ("looked", "taken", "blocks_taken")]
        if not torch.equal(bench.seen(given), grid) or told != [looks, looks and not dense, 0]:
            wrong.append(f"call {number}: {told}")
    return wrong


def ways_to_wait(rank: int, size: int, device: str) -> list[str]:
    """Return the ways to call, and to wait, by which a result was not seen."""
    bench = Bench(device)
    group, expected = bench.group, float(sum(range(1, size + 1)))
    found: dict[str, bool] = {}

    def give(shape: tuple[int, ...] = (3000,)) -> torch.Tensor:
        return bench.given(torch.full(shape, float(rank + 1)))

    def is_right(tensor: torch.Tensor) -> bool:
        return bool((bench.seen(tensor) == expected).all())

    tensor = give()
    dist.all_reduce(tensor, group=group)
    found["returned"] = is_right(tensor)

    tensor = give()
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    found["work"] = is_right(tensor)

    # PyTorch's issue 170812: a future, waited for in a stream of high priority.
    tensor = give()
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    with on_stream(torch.Stream(device=device, priority=-1)):
        (result,) = future.wait()
        found["future in another stream"] = is_right(result) and is_right(tensor)

    tensor = give()
    work = dist.all_reduce(tensor, group=group, async_op=True)
    copied = work.get_future().then(lambda over: over.value()[0].clone())
    found["callback"] = is_right(copied.wait())

    # The tensor's elements come by the stream that calls.
    with on_stream(torch.Stream(device=device)):
        tensor = give()
        dist.all_reduce(tensor, group=group)
        found["called in another stream"] = is_right(tensor)

    nothing = give((0, 7))
    dist.all_reduce(nothing, group=group)
    found["no elements"] = is_right(nothing)

    grid = give((60, 50))
    dist.all_reduce(grid.t(), group=group)
    found["transposed"] = is_right(grid)
    rows = give((60, 50))
    dist.all_reduce(rows[:, ::2], group=group)
    between = bool((bench.seen(rows)[:, 1::2] == rank + 1).all())
    found["every other column"] = is_right(rows[:, ::2]) and between

    first, second = give(), give()
    with _coalescing_manager(group):
        dist.all_reduce(first, group=group)
        dist.all_reduce(second, group=group)
    found["coalesced"] = is_right(first) and is_right(second)

    # The second sum is of what the first one has given.
    tensor = give()
    works = [dist.all_reduce(tensor, group=group, async_op=True) for _ in range(2)]
    works[-1].wait()
    found["summed twice"] = bool((bench.seen(tensor) == size * expected).all())
    with _coalescing_manager(group):
        tensor = give()
        dist.all_reduce(tensor, group=group)
        dist.all_reduce(tensor, group=group)
    found["coalesced twice"] = bool((bench.seen(tensor) == size * expected).all())

    tensor = give()
    work = dist.all_reduce(tensor, group=group, async_op=True)
    while not work.is_completed():
        time.sleep(0.0002)
    with on_stream(torch.Stream(device=device)):
        found["completed"] = is_right(tensor)

    room = [give() for _ in range(size)]
    dist.all_gather(room, torch._neg_view(give()), group=group)
    negated = (bool((bench.seen(each) == -float(n + 1)).all()) for n, each in enumerate(room))
    found["negated view"] = all(negated)

    # Dropped: another tensor may get the memory, but not before the copies are over.
    work = dist.all_reduce(give(), group=group, async_op=True)
    work.wait()
    del work
    torch.accelerator.current_stream().synchronize()
    found["dropped"] = bench.copies_after_free() == 0
    bench.be_late(0.1)
    work = dist.all_reduce(give(), group=group, async_op=True)
    future = work.get_future()
    while not future.done():
        # Its copies back have begun when it is.
        time.sleep(0.001)
    del work, future
    torch.accelerator.synchronize()
    found["dropped without a wait"] = bench.copies_after_free() == 0
    work = dist.all_gather(room, torch._neg_view(give()), group=group, async_op=True)
    work.wait()
    del work
    torch.accelerator.synchronize()
    found["dropped negated view"] = bench.copies_after_free() == 0
    return [name for name, right in found.items() if not right]


def unequal(rank: int, _size: int, device: str) -> str:
    """Return the error where a rank sums two pieces, and the other twice a tensor like one."""
    pieces.PIECE_BYTES = 4096
    # To look for blocks would compare the sizes, too.
    bench = Bench(device, 0, timeout_s=3, device_blocks="off")
    try:
        for _ in range(1 + rank):
            dist.all_reduce(torch.ones(2048 // (1 + rank), device=device), group=bench.group)
    except AffluxError as error:
        return str(error)
    return ""


def refused(rank: int, _size: int, device: str) -> tuple[str, list[float]]:
    """Return the error of a call on several devices, and a sum after it."""
    bench = Bench(device, 0)
    ones, text = torch.ones(3, device=device), ""
    try:
        dist.all_gather([ones, torch.ones(3)], ones, group=bench.group)
    except ValueError as error:
        text = str(error)
    dist.all_reduce(ones, group=bench.group)
    return text, bench.seen(ones).tolist()


def capturing(rank: int, _size: int, device: str) -> tuple[str, list[float]]:
    """Return the error of a call while the current stream captures a graph, and a sum after it."""
    bench, text = Bench(device, 0), ""
    ones = torch.ones(3, device=device)
    torch.get_device_module(device).capturing = True
    try:
        dist.all_reduce(ones, group=bench.group)
    except ValueError as error:
        text = str(error)
    torch.get_device_module(device).capturing = False
    dist.all_reduce(ones, group=bench.group)
    return text, bench.seen(ones).tolist()


def sent(rank: int, size: int, device: str) -> list[str]:
    """Return the ways to receive by which not the sent elements came."""
    bench = Bench(device)
    group, before = bench.group, (rank - 1) % size
    ways: dict[str, Callable[[torch.Tensor], Any]] = {
        "recv": lambda tensor: dist.recv(tensor, before, group=group),
        "recv of anybody's": lambda tensor: dist.recv(tensor, group=group),
        "irecv": lambda tensor: dist.irecv(tensor, before, group=group).wait(),  # type: ignore[union-attr]
    }
    wrong = []
    for name, receive in ways.items():
        request = dist.isend(bench.given(torch.full((4,), float(rank))), (rank + 1) % size, group)
        room = bench.given(torch.zeros(4))
        receive(room)
        assert request is not None
        request.wait()
        if bench.seen(room).tolist() != [float(before)] * 4:
            wrong.append(name)
        dist.barrier(group)
    return wrong


def stuck(rank: int, _size: int, device: str) -> tuple[str, float]:
    """Return the error of a call for which rank 0's stream is not ready, and its seconds."""
    bench = Bench(device, 8.0 if rank == 0 else 0.0, timeout_s=2)
    tensor = bench.given(torch.ones(3))
    bench.be_late(0)
    start = time.monotonic()
    try:
        dist.all_reduce(tensor, group=bench.group)
    except AffluxError as error:
        return str(error), time.monotonic() - start
    return "", 0.0


def _model_on(device: str) -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.Linear(60, 4)).to(device)


def _train(rank: int, model: torch.nn.Module, called: Any, device: str) -> None:
    """Train a model for three steps of sums that are exact; `called` is it, as a wrapper has it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-10, foreach=False)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        called(torch.randn(8, 40, generator=generator).to(device)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def _differ(results: list[list[torch.Tensor]], device: str) -> list[str]:
    # Kernels of a GPU round in an order of their own.
    same: Callable[..., bool] = torch.equal
    if device != late_device.NAME:
        same = functools.partial(torch.allclose, rtol=1e-4, atol=1e-5)
    pairs = enumerate(zip(*results, strict=True))
    return [f"parameter {n}" for n, pair in pairs if not same(*pair)]


def replicated(rank: int, _size: int, device: str) -> list[str]:
    """Return the parameters that differ from those on the CPU after steps of DDP."""
    bench = Bench(device, 0.002)
    results = []
    for where in ("cpu", device):
        model = _model_on(where)
        ddp = DistributedDataParallel(model, process_group=bench.group, bucket_cap_mb=0.005)
        _train(rank, model, ddp, where)
        results.append([bench.seen(each.detach()) for each in model.parameters()])
    return _differ(results, device)


def sharded(rank: int, _size: int, device: str) -> list[str]:
    """Return the same of FSDP2."""
    bench = Bench(device, 0.001)
    results = []
    for where in ("cpu", device):
        model = _model_on(where)
        mesh = DeviceMesh.from_group(bench.group, where)
        fully_shard(model[0], mesh=mesh)  # type: ignore[index]
        _train(rank, model, fully_shard(model, mesh=mesh), where)
        results.append([each.full_tensor().cpu() for each in model.parameters()])  # type: ignore[attr-defined]
    return _differ(results, device)


def with_schemes(rank: int, _size: int, device: str) -> list[str]:
    """Return the schemes whose averages are others on the device than on the CPU."""
    bench = Bench(device, 0.001)
    wrong = []
    for words in SCHEMES:
        results = []
        for where in ("cpu", device):
            scheme = afflux.hooks.scheme(words, bench.group)
            for step in range(2):
                gradients = elements(rank + 10 * step, 3000, torch.float32).to(where)
                scheme.average(gradients, "gradients")
            results.append(bench.seen(gradients))
        if not torch.equal(*results):
            wrong.append(words)
    return wrong
