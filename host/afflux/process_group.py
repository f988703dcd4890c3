"""The process group of the backend "afflux": which calls go to the engine, and which to Gloo."""

import atexit
import contextlib
import logging
import os
import weakref
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from afflux.group.calls import (
    Call,
    all_reduce_text,
    canonical_name,
    describe,
    reduction_name,
    tensors_in,
)
from afflux.group.exchange import Exchange
from afflux.group.fallback import GlooFallback, make_gloo_groups
from afflux.group.notices import Notices
from afflux.group.progress import Progress
from afflux.group.rendezvous import make_reducer
from afflux.group.settings import Settings, SettingsError
from afflux.group.tensors import ENGINE_DTYPES, dtype_name
from afflux.group.torch_store import own_connection
from afflux.group.work import NO_TIMEOUT, FinishedWork
from afflux_drivers.collective import Reduction

__all__ = ["AffluxProcessGroup", "create_process_group"]

_log = logging.getLogger("afflux")

_REDUCTIONS = {each.value: each for each in Reduction}

_BARRIER = Call("barrier", "-", "barrier", "barrier")

_KNOWN_CALLS_MAX = 4096
"""Kinds of tensors that a group remembers; a training loop has some hundreds."""

_CPU = torch.device("cpu")
_EXIT_DRAIN_S = 1.0
"""When the interpreter ends, nobody waits for results any more."""


class _KnownCall(NamedTuple):
    """What is the same for all calls with one shape, dtype and reduction.

    Attributes:
        text: The call in words.
        plan: What the group's reducer makes of it.
    """

    text: str
    plan: Any


class AffluxProcessGroup(dist.ProcessGroup):
    """Ranks that share a job of an aggregator, with Gloo for what the engine does not do.

    Every collective goes through one queue, whichever way it takes, and begins with the ranks'
    agreement, through the engine, that they all mean the same call. So a rank that calls something
    else causes an error at every rank, not a hang or a wrong sum. Sends and receives, in which only
    two ranks take part, go straight to a Gloo group of their own.

    Args:
        store: This group's store.
        rank: Own rank in the group.
        size: Ranks of the group, at most 64.
        timeout: Timeout of each operation.
        name: Names the group in messages and threads.

    Raises:
        AffluxError: The group's ranks do not all reach the aggregator; at every rank.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, name: str) -> None:
        # Without the store, which torch 2.13 refuses for subclasses though its stub asks for it.
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._pid = os.getpid()
        self._timeout_s = timeout.total_seconds()
        self._known_calls: dict[Any, _KnownCall] = {}
        notices_store = PrefixStore("afflux/", own_connection(store))
        try:
            self._settings = Settings.from_environment()
        except SettingsError as error:
            Exchange(notices_store, rank, size, self._timeout_s).decline(str(error))
            raise SettingsError(f"rank {rank}: {error}") from None
        self.reducer = make_reducer(notices_store, rank, size, self._settings, timeout)
        self.closed = False
        try:
            # Two, because C++ callers reach some methods without coming through this class: they
            # must not meet the queue's calls in one Gloo group.
            stores = [PrefixStore(f"{name}/", store) for name in ("queued", "direct")]
            queued, self._direct = make_gloo_groups(stores, rank, size, timeout)
        except BaseException:
            self.reducer.leave()
            raise
        self.fallback = GlooFallback(queued)
        self._register_backend(
            _CPU, dist.ProcessGroup.BackendType.CUSTOM, self._direct._get_backend(_CPU)
        )
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        self.engine_operations = 0
        self._progress = Progress(
            Notices(notices_store, rank, size),
            PrefixStore("afflux/", own_connection(store)),
            notices_store,
            self.reducer.give_up,
            rank,
            size,
            f"afflux-{name}-rank{rank}",
        )
        _living.add(self)

    # Through the engine.

    def allreduce(  # type: ignore[override]
        self, tensors: Any, opts: Any = None, timeout: Any = None
    ) -> dist.Work | None:
        """Sum, average, or find the maximum or minimum of, one tensor, in place.

        Returns:
            Its Work; None, as torch has it, where `opts.asyncOp` is False and it is over.
        """
        if opts.__class__ is dist.AllreduceOptions and tensors.__class__ is list:
            options = opts
        else:
            tensors, options = _allreduce_arguments(tensors, opts, timeout)
        known = self._known_call(tensors[0], options.reduceOp) if len(tensors) == 1 else None
        if known is None:
            return self._fall_back("allreduce", (tensors, options))
        asked = known.text, self._reduce_one, tensors, known.plan, self._limit_s(options)
        if not options.asyncOp and self._progress.carry_out_now(*asked) is not None:
            # A Work would cost a tenth of a small one.
            return None
        return self._progress.submit(*asked)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """All-reduce each tensor of a list; sums are those of separate calls."""
        options = dist.AllreduceCoalescedOptions() if opts is None else opts
        found = [self._known_call(tensor, options.reduceOp) for tensor in tensors]
        known = [each for each in found if each is not None]
        if not known or len(known) < len(found):
            return self._fall_back("allreduce_coalesced", (tensors, options))
        text = known[0].text if len(known) == 1 else f"{known[0].text} and {len(known) - 1} more"
        plans = [each.plan for each in known]
        limit_s = self._limit_s(options)
        return self._do(text, not options.asyncOp, self._reduce, tensors, plans, limit_s)

    def barrier(  # type: ignore[override]
        self, opts: Any = None, timeout: Any = None
    ) -> dist.Work:
        """Agree with every rank that it is here; that is all it takes."""
        limit_s = self._limit_s(timeout if opts is None else opts)
        at_once = not getattr(opts, "asyncOp", True)
        return self._do(_BARRIER.text, at_once, self._meet, limit_s)

    # Through Gloo, in the same order.

    def broadcast(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.broadcast`."""
        return self._fall_back("broadcast", arguments)

    def reduce(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.reduce`."""
        return self._fall_back("reduce", arguments)

    def allgather(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.all_gather`."""
        return self._fall_back("allgather", arguments)

    def allgather_coalesced(self, *arguments: Any) -> dist.Work:
        """Call `allgather` for several tensors."""
        return self._fall_back("allgather_coalesced", arguments)

    def all_gather_single(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.all_gather_into_tensor`."""
        return self._fall_back("all_gather_single", arguments)

    def _allgather_base(self, *arguments: Any) -> dist.Work:
        return self._fall_back("_allgather_base", arguments)

    def all_gather_single_coalesced(self, *arguments: Any) -> dist.Work:
        """Call `all_gather_single` for several tensors."""
        return self._fall_back("all_gather_single_coalesced", arguments)

    def allgather_into_tensor_coalesced(self, *arguments: Any) -> dist.Work:
        """Call `all_gather_single_coalesced`, by its old name."""
        return self._fall_back("allgather_into_tensor_coalesced", arguments)

    def gather(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.gather`."""
        return self._fall_back("gather", arguments)

    def scatter(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.scatter`."""
        return self._fall_back("scatter", arguments)

    def reduce_scatter(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.reduce_scatter`."""
        return self._fall_back("reduce_scatter", arguments)

    def reduce_scatter_single(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.reduce_scatter_tensor`."""
        return self._fall_back("reduce_scatter_single", arguments)

    def _reduce_scatter_base(self, *arguments: Any) -> dist.Work:
        return self._fall_back("_reduce_scatter_base", arguments)

    def reduce_scatter_single_coalesced(self, *arguments: Any) -> dist.Work:
        """Call `reduce_scatter_single` for several tensors."""
        return self._fall_back("reduce_scatter_single_coalesced", arguments)

    def reduce_scatter_tensor_coalesced(self, *arguments: Any) -> dist.Work:
        """Call `reduce_scatter_single_coalesced`, by its old name."""
        return self._fall_back("reduce_scatter_tensor_coalesced", arguments)

    def alltoall(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.all_to_all`."""
        return self._fall_back("alltoall", arguments)

    def all_to_all_single(self, *arguments: Any) -> dist.Work:
        """See `torch.distributed.all_to_all_single`."""
        return self._fall_back("all_to_all_single", arguments)

    def alltoall_base(self, *arguments: Any) -> dist.Work:
        """Call `all_to_all_single`, by its old name."""
        return self._fall_back("alltoall_base", arguments)

    # Between two ranks: order with respect to collectives does not matter, and waiting for one in
    # the queue would keep its counterpart from starting.

    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int) -> dist.Work:
        """See `torch.distributed.send`."""
        return self._pass_on("send", tensors, dstRank, tag)

    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int) -> dist.Work:
        """See `torch.distributed.recv`."""
        return self._pass_on("recv", tensors, srcRank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> dist.Work:
        """See `torch.distributed.recv` without a source."""
        return self._pass_on("recv_anysource", tensors, tag)

    # The group itself.

    def getBackendName(self) -> str:
        """Return the name by which it is registered."""
        return "afflux"

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit the operations that are submitted from now on."""
        self._timeout_s = timeout.total_seconds()

    def shutdown(self) -> None:
        """End the group: operations in flight are carried out, or fail within bounded time."""
        self._close(self._settings.close_timeout_s, self._settings.close_timeout_s)

    def abort(self) -> None:
        """End the group without waiting for operations in flight or for other ranks."""
        self._close(0.0, 0.0)

    @property
    def failure(self) -> Exception | None:
        """The error that ended the group, if one did."""
        return self._progress.failure

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Make flat zeros, which every rank reaches if the group shares memory. Collective.

        Raises:
            AffluxError: Ranks asked for different sizes or dtypes, or there is no memory.
        """
        words = f"empty {dtype_name(dtype)} {elements}"
        call = Call("empty", dtype_name(dtype), words, words)
        work = self._do(call.text, True, self._allocate, call, elements, dtype, self._timeout_s)
        work.wait()
        return work.result()[0]

    def _allocate(
        self, call: Call, elements: int, dtype: torch.dtype, timeout_s: float
    ) -> list[torch.Tensor]:
        self._agree(call, timeout_s)
        return [self.reducer.empty(elements, dtype)]

    def _known_call(self, tensor: torch.Tensor, op: Any) -> "_KnownCall | None":
        """Return how the engine reduces such a tensor; None if it does not."""
        if not (tensor.is_cpu and tensor.layout is torch.strided):
            return None
        # Equal for equal operations, different for different ones, and cheaper to compare.
        key = (tensor.shape, tensor.dtype, hash(op))
        known = self._known_calls.get(key)
        if known is None:
            known = self._new_call(tensor, op)
            if known is not None:
                if len(self._known_calls) >= _KNOWN_CALLS_MAX:
                    self._known_calls.clear()
                self._known_calls[key] = known
        return known

    def _new_call(self, tensor: torch.Tensor, op: Any) -> "_KnownCall | None":
        dtype = ENGINE_DTYPES.get(tensor.dtype)
        reduction = _REDUCTIONS.get(reduction_name(op))
        averaged_integers = reduction is Reduction.AVG and not tensor.dtype.is_floating_point
        if dtype is None or reduction is None or averaged_integers:
            return None
        text = all_reduce_text(reduction.value, tensor)
        return _KnownCall(text, self.reducer.plan(dtype, reduction, tensor.shape))

    def _reduce(self, tensors: list[torch.Tensor], plans: list[Any], timeout_s: float) -> Any:
        for tensor, plan in zip(tensors, plans, strict=True):
            self.reducer.all_reduce(tensor, plan, timeout_s, self._progress.interrupted)
            self.engine_operations += 1
        return tensors

    def _reduce_one(
        self, tensors: list[torch.Tensor], plan: Any, timeout_s: float
    ) -> list[torch.Tensor]:
        self.reducer.all_reduce(tensors[0], plan, timeout_s, self._progress.interrupted)
        self.engine_operations += 1
        return tensors

    def _fall_back(self, method: str, arguments: tuple[Any, ...]) -> dist.Work:
        call = describe(method, arguments)
        _check_devices(call, tensors_in(arguments))
        for argument in arguments:
            if hasattr(argument, "reduceOp"):
                _check_average(call, tensors_in(arguments), reduction_name(argument.reduceOp))
        options = arguments[-1] if arguments and hasattr(arguments[-1], "timeout") else None
        return self._progress.submit(
            call.text, self._run_gloo, method, arguments, call, self._limit_s(options)
        )

    def _run_gloo(
        self, method: str, arguments: tuple[Any, ...], call: Call, timeout_s: float
    ) -> Any:
        self._agree(call, timeout_s)
        return self.fallback.run(method, arguments, call, timeout_s, self._progress.interrupted)

    def _agree(self, call: Call, timeout_s: float) -> None:
        """Return when every rank has made the same call."""
        self.reducer.agree(call.agreed_number, timeout_s, self._progress.interrupted)

    def _meet(self, timeout_s: float) -> list[torch.Tensor]:
        self._agree(_BARRIER, timeout_s)
        self.engine_operations += 1
        return []

    def _limit_s(self, options: Any) -> float:
        """Return the seconds for an operation with these options, or with this timeout."""
        wish = getattr(options, "timeout", options)
        # torch's mark for "the group's" is negative.
        if wish is not None and wish > NO_TIMEOUT:
            return wish.total_seconds()
        return self._timeout_s

    def _do(self, text: str, at_once: bool, step: Any, *arguments: Any) -> dist.Work:
        """Carry out an operation, in the calling thread if the caller waits for it anyway."""
        if at_once:
            tensors = self._progress.carry_out_now(text, step, *arguments)
            if tensors is not None:
                return FinishedWork(tensors)
        return self._progress.submit(text, step, *arguments)

    def _pass_on(self, method: str, tensors: list[torch.Tensor], *rest: int) -> dist.Work:
        self._progress.check()
        call = describe(canonical_name(method), (tensors,))
        _check_devices(call, tensors)
        self.fallback.count(call)
        return getattr(self._direct, method)(tensors, *rest)

    def _close(self, drain_s: float, confirm_s: float) -> None:
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        _living.discard(self)
        if self._progress.stop(drain_s):
            self._progress.confirm_end(confirm_s if self.reducer.ticket is not None else None)
        self.fallback.close()
        self.reducer.leave()


def _allreduce_arguments(
    tensors: Any, opts: Any, timeout: Any
) -> tuple[list[torch.Tensor], dist.AllreduceOptions]:
    """Sort out how torch calls it: (list, options), (list or tensor, op, timeout)."""
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    if opts is not None and hasattr(opts, "reduceOp"):
        return listed, opts
    options = dist.AllreduceOptions()
    if opts is not None:
        options.reduceOp = opts
    if timeout is not None:
        options.timeout = timeout
    return listed, options


def _check_devices(call: Call, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise ValueError(
                f"{call.text}: the tensor is on {tensor.device}; the backend afflux takes CPU "
                "tensors"
            )


def _check_average(call: Call, tensors: list[torch.Tensor], reduction: str) -> None:
    if reduction == "avg" and not all(tensor.dtype.is_floating_point for tensor in tensors):
        raise ValueError(f"{call.text}: integers have no average; use SUM and divide")


def create_process_group(options: Any, _backend_options: Any = None) -> AffluxProcessGroup:
    """Make a group, as torch.distributed asks for it with `extended_api=True`."""
    return AffluxProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
    )


_living: "weakref.WeakSet[AffluxProcessGroup]" = weakref.WeakSet()


def _close_all() -> None:
    # A thread that still waits when the interpreter ends could not end cleanly.
    for group in list(_living):
        with contextlib.suppress(Exception):
            group._close(_EXIT_DRAIN_S, _EXIT_DRAIN_S)


atexit.register(_close_all)
