"""Afflux sums gradients inside the network, behind `torch.distributed`.

Importing this package registers the backend "afflux" for CPU tensors:

    import afflux
    torch.distributed.init_process_group("afflux")

AFFLUX_AGGREGATOR chooses what sums (docs/aggregators.md). By default the ranks of one host sum in
memory that they share; between hosts, a software engine in each host or Gloo sums, whichever is
faster for a tensor."""

from importlib.metadata import version as _version

from afflux import hooks, sparse
from afflux.ddp import ReachableBuckets, ddp_hook, reachable_hook
from afflux.group.settings.options import Options
from afflux.observe_api import dump_flight_record, monitored_barrier, register_hook
from afflux.overlap.hybrid import hybrid_mesh
from afflux.reachable import empty, reachable_gradients
from afflux.registration import register
from afflux.statistics import engine_counters, engine_description, statistics

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
    "reachable_gradients",
    "reachable_hook",
    "register_hook",
    "sparse",
    "statistics",
]

register()


def __getattr__(name: str) -> str:
    """Return the version of the installed package on request: `pyproject.toml` alone states it."""
    if name == "__version__":
        return _version("afflux")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
