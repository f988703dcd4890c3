"""The collectives by their names in c10d's `Backend`, each on its way: the engine's or Gloo's."""

from abc import ABC, abstractmethod
from typing import Any

import torch

from afflux.group.call.tensors import check_devices, dtype_name, lies_plainly, plain

__all__ = ["BackendMethods"]


class BackendMethods(ABC):
    """The methods of a group that an adapter calls. All return a Work."""

    @abstractmethod
    def _collective(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Carry a call out through the reducer, or through Gloo."""

    @abstractmethod
    def _fall_back(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Carry a call out through Gloo."""

    @abstractmethod
    def _pass_on(self, method: str, tensors: list[torch.Tensor], *rest: int) -> Any:
        """Send or receive through Gloo."""

    # Through the reducer where it knows them, else through Gloo, in one order.

    def allreduce(self, *arguments: Any) -> Any:
        """See `torch.distributed.all_reduce`."""
        return self._collective("allreduce", arguments)

    def allreduce_coalesced(self, *arguments: Any) -> Any:
        """All-reduce each tensor of a list; sums are those of separate calls."""
        return self._collective("allreduce_coalesced", arguments)

    def broadcast(self, *arguments: Any) -> Any:
        """See `torch.distributed.broadcast`."""
        return self._collective("broadcast", arguments)

    def allgather(self, *arguments: Any) -> Any:
        """See `torch.distributed.all_gather`."""
        return self._collective("allgather", arguments)

    def allgather_coalesced(self, *arguments: Any) -> Any:
        """Call `allgather` for several tensors."""
        return self._collective("allgather_coalesced", arguments)

    def _allgather_base(self, *arguments: Any) -> Any:
        return self._collective("_allgather_base", arguments)

    def allgather_into_tensor_coalesced(self, *arguments: Any) -> Any:
        """Call `_allgather_base` for several tensors."""
        return self._collective("allgather_into_tensor_coalesced", arguments)

    def reduce_scatter(self, *arguments: Any) -> Any:
        """See `torch.distributed.reduce_scatter`."""
        return self._collective("reduce_scatter", arguments)

    def _reduce_scatter_base(self, *arguments: Any) -> Any:
        return self._collective("_reduce_scatter_base", arguments)

    def reduce_scatter_tensor_coalesced(self, *arguments: Any) -> Any:
        """Call `_reduce_scatter_base` for several tensors."""
        return self._collective("reduce_scatter_tensor_coalesced", arguments)

    # Through Gloo, in the same order.

    def reduce(self, *arguments: Any) -> Any:
        """See `torch.distributed.reduce`."""
        return self._fall_back("reduce", arguments)

    def gather(self, *arguments: Any) -> Any:
        """See `torch.distributed.gather`."""
        return self._fall_back("gather", arguments)

    def scatter(self, *arguments: Any) -> Any:
        """See `torch.distributed.scatter`."""
        return self._fall_back("scatter", arguments)

    def alltoall(self, *arguments: Any) -> Any:
        """See `torch.distributed.all_to_all`."""
        return self._fall_back("alltoall", arguments)

    def alltoall_base(self, *arguments: Any) -> Any:
        """See `torch.distributed.all_to_all_single`."""
        return self._fall_back("alltoall_base", arguments)

    # Between two ranks: order with respect to collectives does not matter, and waiting for one in
    # the queue would keep its counterpart from starting.

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Any:
        """See `torch.distributed.send`."""
        return self._pass_on("send", [plain(each) for each in tensors], rank, tag)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Any:
        """See `torch.distributed.recv`."""
        self.check_received("recv", tensors)
        return self._pass_on("recv", tensors, rank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        """See `torch.distributed.recv` without a source."""
        self.check_received("recv_anysource", tensors)
        return self._pass_on("recv_anysource", tensors, tag)

    def check_received(self, method: str, tensors: list[torch.Tensor]) -> None:
        """Refuse what Gloo, which only begins a receive, could not fill in the end.

        Raises:
            ValueError: A tensor's elements do not lie one after the other as it shows them.
        """
        check_devices(method, tensors)
        for tensor in tensors:
            if not lies_plainly(tensor):
                raise ValueError(
                    f"{method}: the tensor {dtype_name(tensor.dtype)} {tuple(tensor.shape)} is "
                    "not contiguous, or is a conjugated or negated view; receive into its clone"
                )
