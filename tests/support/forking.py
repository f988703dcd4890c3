"""Processes that are forked from one that has imported what they need.

A fresh interpreter takes seconds to import torch; a fork takes milliseconds. A process of pytest
has one such server for all of its tests, and of two lists of modules the later one would count
alone: hence one list, for all that is forked.
"""

import multiprocessing

__all__ = ["context"]

_PRELOADED = (
    # The module of a test's body imports pytest, DistributedDataParallel all of torch._dynamo, and
    # the first group its adapter.
    "pytest",
    "torch.distributed",
    "torch._dynamo",
    "afflux.adapters.choice",
    "tests.support.host.ranks",
    "tests.support.host.aggregators",
    "tests.support.nccl.node",
    "afflux_sim.golden.reductions",
)

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(list(_PRELOADED))
