"""Afflux sums gradients inside the network, behind `torch.distributed`.

Importing this package registers the backend "afflux" for CPU tensors:

    import afflux
    torch.distributed.init_process_group("afflux")

AFFLUX_AGGREGATOR chooses what sums (docs/aggregators.md). By default the ranks of one host sum in
memory that they share; between hosts, a software engine in each host or Gloo sums, whichever is
faster for a tensor.

Nothing here imports torch before somebody else does, or asks for a name that needs it: the command
`afflux` is this package too, and torch takes seconds."""

import importlib
from typing import TYPE_CHECKING, Any

from afflux.registration import register_with_torch

if TYPE_CHECKING:
    from afflux import hooks, sparse
    from afflux.ddp import ReachableBuckets, ddp_hook, reachable_hook
    from afflux.group.settings.options import Options
    from afflux.group_statistics import engine_counters, engine_description, statistics
    from afflux.observe_api import dump_flight_record, monitored_barrier, register_hook
    from afflux.overlap.hybrid import hybrid_mesh
    from afflux.reachable import empty, reachable_gradients
    from afflux.reconfigure_api import (
        process_group,
        reconfigure,
        reconfigure_handle,
        supports_reconfigure,
    )

__all__ = [
    "Options",
    "ReachableBuckets",
    "ddp_hook",
    "dump_flight_record",
    "empty",
    "engine_counters",
    "engine_description",
    "hooks",
    "hybrid_mesh",
    "monitored_barrier",
    "process_group",
    "reachable_gradients",
    "reachable_hook",
    "reconfigure",
    "reconfigure_handle",
    "register_hook",
    "sparse",
    "statistics",
    "supports_reconfigure",
]

_WHERE = {
    "Options": "group.settings.options",
    "ReachableBuckets": "ddp",
    "ddp_hook": "ddp",
    "dump_flight_record": "observe_api",
    "empty": "reachable",
    "engine_counters": "group_statistics",
    "engine_description": "group_statistics",
    "hybrid_mesh": "overlap.hybrid",
    "monitored_barrier": "observe_api",
    "process_group": "reconfigure_api",
    "reachable_gradients": "reachable",
    "reachable_hook": "ddp",
    "reconfigure": "reconfigure_api",
    "reconfigure_handle": "reconfigure_api",
    "register_hook": "observe_api",
    "statistics": "group_statistics",
    "supports_reconfigure": "reconfigure_api",
}
"""The module that has each name, below this package; `hooks` and `sparse` are modules."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from afflux.version import version

        return version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_WHERE.get(name, name)}")
    found = globals()[name] = getattr(module, name) if name in _WHERE else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


register_with_torch()
