"""The adapter for torch from 2.14 on without a C++ compiler: a `Backend` in Python.

torch calls it through its dispatcher, as it calls a backend in C++. So other devices may have other
backends in the same group, wrappers of tensors arrive as tensors, and torch's hooks, its flight
recorder and TORCH_DISTRIBUTED_DEBUG=DETAIL work.

torch keeps little of a Work that comes from Python: its `wait` and its future. The rest of what a
user asks the Work never reaches this class: `is_completed()` stays False even when the operation is
over, `result()` raises.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store

from afflux.adapters.passing import pass_on
from afflux.group.call.work import FinishedWork
from afflux.group.core import Group
from afflux.group.settings.membership import PYTHON_BACKEND, Membership
from afflux_drivers.errors import AffluxError

__all__ = ["PythonBackend"]


class PythonBackend(Backend):
    """A backend around a `Group`.

    Args:
        core: The group itself.

    Attributes:
        core: The group itself.
    """

    def __init__(self, core: Group) -> None:
        super().__init__(core.rank, core.size)
        self.core = core
        # Under TORCH_DISTRIBUTED_DEBUG=DETAIL torch holds only the part in C++.
        _in_use.add(self)

    @classmethod
    def create(cls, membership: Membership) -> "PythonBackend":
        """Make a group with this adapter; for arguments and errors see `Group`."""
        return cls(Group(membership))

    def allreduce(self, tensors: list[torch.Tensor], options: dist.AllreduceOptions) -> Any:
        """Call `Group.allreduce`."""
        work = self.core.allreduce(tensors, options)
        if not options.asyncOp and isinstance(work, FinishedWork):
            # Nobody waits for it, and handing it over would cost a tenth of a small one.
            return None
        # The type that DDP's built-in FP16 hook sums.
        if tensors[0].dtype is torch.float16:
            return _TypedWork(work, tensors)
        return work

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        """Refuse: torch would ask a Work of its own, which does not know, who has sent.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"recv without a source, tag {tag}, at rank {self.core.rank}: torch "
            f"{torch.__version__} does not let a backend in Python say who has sent; name the "
            "source, or install a C++ compiler (g++) so that the backend afflux is in C++"
        )

    def monitored_barrier(self, options: dist.BarrierOptions, wait_all_ranks: bool = False) -> None:
        """Call Gloo's, which names the ranks that do not come."""
        self.core.monitored_barrier(options, wait_all_ranks)

    # The group itself.

    def getBackendName(self) -> str:
        """Return the name by which it is registered."""
        return "afflux"

    @property
    def options(self) -> Any:
        """Make what torch starts from when it splits the group."""
        return Backend.Options("afflux", timedelta(seconds=self.core.timeout_s))

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit the operations that are submitted from now on."""
        self.core.set_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return self.core.sequence

    @property
    def supports_splitting(self) -> bool:
        """Return True: see `split`."""
        return True

    def split(self, store: Store, ranks: list[int], options: Any) -> Backend:
        """Make the group of `ranks`, in their order.

        Raises:
            RuntimeError: This rank is in none of the groups.
        """
        if self.core.rank not in ranks:
            # None would be right, and is what C++ returns; of Python, torch takes no None.
            raise RuntimeError(
                f"split_group: rank {self.core.rank} is in none of the groups; torch "
                f"{torch.__version__} does not let a backend in Python leave a rank out; name a "
                "group for each rank, or install a C++ compiler (g++) so that the backend afflux "
                "is in C++"
            )
        rank, name = ranks.index(self.core.rank), str(options.group_name)
        members = [self.core.global_ranks[each] for each in ranks]
        timeout, own = options._timeout, self.core.pg_options
        membership = Membership(
            store, rank, len(ranks), timeout, name, members, own, PYTHON_BACKEND
        )
        return self.create(membership)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Do nothing: a rank outside a new group has no part in making it."""

    def shutdown(self) -> None:
        """End the group: operations in flight are carried out, or fail within bounded time."""
        _in_use.discard(self)
        self.core.shutdown()

    def abort(self) -> None:
        """End the group without waiting for operations in flight or for other ranks."""
        _in_use.discard(self)
        self.core.abort()

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self.core, method)(*arguments)


class _TypedWork(dist.Work):
    """A Work whose future C++ takes for one of a list of tensors.

    `torch.futures.Future` is a future of any Python object. Nothing in Python makes one of a list
    of tensors that ends later, so this one has ended when it is made.
    """

    def __init__(self, work: dist.Work, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._work = work
        self._tensors = tensors

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until the end."""
        return self._work.wait(timeout)

    def get_future(self) -> torch.futures.Future:
        """Block until the end; return a future of the tensors, or of the error."""
        try:
            self._work.wait()
        except (AffluxError, RuntimeError):
            return self._work.get_future()
        # The function runs at once; the future gets the type of what it returns.
        future: Any = torch._C.fork(lambda: self._tensors)
        return future


# If a backend in Python does not say, torch asks the backend through itself, without an end.
_UNSUPPORTED = (
    "supports_coalescing supports_shrinking supports_reconfigure supports_window "
    "supports_time_estimate _supports_time_estimate"
)


pass_on(
    PythonBackend,
    "allreduce_sparse allreduce_coalesced broadcast reduce allgather allgather_coalesced gather "
    "scatter reduce_scatter alltoall send recv barrier",
)

for _name in _UNSUPPORTED.split():
    setattr(PythonBackend, _name, property(lambda _backend: False))

_in_use: set[PythonBackend] = set()
