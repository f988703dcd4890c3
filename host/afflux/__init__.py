"""Afflux sums gradients inside the network, behind `torch.distributed`.

Importing this package registers the backend "afflux" for CPU tensors:

    import afflux
    torch.distributed.init_process_group("afflux")

AFFLUX_AGGREGATOR sets where sums are made (see `afflux.group.settings`). Without it, they are made
in memory that the ranks of one host share, or else in a software engine beside rank 0.
"""

import torch.distributed as dist

from afflux.ddp import ReachableBuckets, ddp_hook, reachable_hook
from afflux.process_group import AffluxProcessGroup, create_process_group
from afflux.reachable import empty, reachable_gradients
from afflux.statistics import engine_counters, engine_description, statistics

__all__ = [
    "AffluxProcessGroup",
    "ReachableBuckets",
    "ddp_hook",
    "empty",
    "engine_counters",
    "engine_description",
    "reachable_gradients",
    "reachable_hook",
    "statistics",
]

__version__ = "0.1.0"

if "afflux" not in dist.Backend.backend_list:
    dist.Backend.register_backend(
        "afflux", create_process_group, extended_api=True, devices=["cpu"]
    )
