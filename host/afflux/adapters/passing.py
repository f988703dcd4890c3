"""The methods with which an adapter in Python does no more than pass a call on to its group."""

from typing import Any

__all__ = ["pass_on"]

_RENAMED = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
}
"""torch's names from 2.14 on, which 2.13 calls from some places too, and a group's."""


def pass_on(adapter: type, methods: str) -> None:
    """Give a class methods that call its `_call` with the group's method and their arguments.

    Args:
        adapter: The class.
        methods: Names of the group's methods, which the adapter's have too. torch's newer names are
            added.
    """
    for name, method in {**{each: each for each in methods.split()}, **_RENAMED}.items():
        setattr(adapter, name, _passing(method))


def _passing(method: str) -> Any:
    def passed(self: Any, *arguments: Any, **named: Any) -> Any:
        return self._call(method, arguments, **named)

    return passed
