"""The adapter for torch before 2.14 on a machine without a C++ compiler: a ProcessGroup in Python.

It takes no backend that is written in Python, only a whole process group, whose methods it
calls past its dispatcher. So what the dispatcher does for a backend is missing: a group serves the
CPU alone, tensors of other classes are refused, torch's hooks and traces see nothing, and DDP's
built-in FP16 hook, which wants a typed future, cannot be used.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from afflux.adapters.overloads import backend_arguments
from afflux.adapters.passing import pass_on
from afflux.group.core import Group
from afflux.group.reducers.gloo import make_gloo
from afflux.group.settings.membership import Membership

__all__ = ["AffluxProcessGroup"]

_CPU = torch.device("cpu")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class AffluxProcessGroup(dist.ProcessGroup):
    """A process group around a `Group`.

    Args:
        membership: Of this rank.

    Attributes:
        core: The group itself.

    Raises:
        AffluxError: The group's ranks do not all reach the aggregator; at every rank.
    """

    def __init__(self, membership: Membership) -> None:
        # Without the store, which torch 2.13 refuses for subclasses though its stub asks for it.
        super().__init__(membership.rank, membership.size)  # type: ignore[call-arg]
        self.core = Group(membership)
        # C++ callers reach some methods without coming through this class: they must not meet the
        # group's own calls in one Gloo group.
        try:
            self._direct = make_gloo(PrefixStore("direct", self.core.store), membership)
        except BaseException:
            self.core.abort()
            raise
        self._register_backend(_CPU, dist.ProcessGroup.BackendType.CUSTOM, self._direct)
        self.core.held.append(self._direct)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Call `Group.monitored_barrier`."""
        self.core.monitored_barrier(timeout, wait_all_ranks)

    def getBackendName(self) -> str:
        """Return the name by which it is registered."""
        return "afflux"

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit the operations that are submitted from now on."""
        self.core.set_timeout(timeout)

    def shutdown(self) -> None:
        """End the group: operations in flight are carried out, or fail within bounded time."""
        self.core.shutdown()

    def abort(self) -> None:
        """End the group without waiting for operations in flight or for other ranks."""
        self.core.abort()

    def _get_sequence_number_for_group(self) -> int:
        return self.core.sequence

    def _call(self, method: str, arguments: tuple[Any, ...], **named: Any) -> Any:
        plain = tuple(_plain(method, each) for each in arguments)
        return getattr(self.core, method)(*backend_arguments(method, plain, named))


def _plain(method: str, argument: Any) -> Any:
    """Return the argument with tensors that have memory, which wrappers of tensors have not."""
    if isinstance(argument, list | tuple):
        return [_plain(method, each) for each in argument]
    if isinstance(argument, AsyncCollectiveTensor):
        return argument.trigger_wait()
    if isinstance(argument, torch.Tensor) and type(argument) not in _PLAIN:
        raise TypeError(
            f"{method}: without a C++ compiler on this machine, the backend afflux takes ordinary "
            f"tensors, not {type(argument).__name__}, in torch {torch.__version__}"
        )
    return argument


pass_on(
    AffluxProcessGroup,
    "allreduce allreduce_coalesced broadcast reduce allgather allgather_coalesced _allgather_base "
    "gather scatter reduce_scatter allgather_into_tensor_coalesced _reduce_scatter_base "
    "reduce_scatter_tensor_coalesced alltoall alltoall_base send recv recv_anysource barrier",
)
