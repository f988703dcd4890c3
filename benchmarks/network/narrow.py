"""Sums in fewer bits, beside Gloo's and the group's own sums of float32."""

import torch
import torch.distributed as dist

import afflux
from benchmarks.network.cases import MIB, Case, Plan, Setup
from benchmarks.network.topologies import NetworkSession
from benchmarks.network.workload import Workload
from benchmarks.report.sides import Side

__all__ = ["WORKLOAD"]

_OWN = "own float32"
_BITS = {"int12": 12, "int8": 8, "int4": 4}
_CASES = tuple(
    Case(name, f"{name}, 6,553,600 elements", 25 * MIB, 1.0, kind="narrow") for name in _BITS
)


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    ranks = [
        torch.randn(case.bytes // 4, generator=torch.Generator().manual_seed(each))
        for each in range(session.ranks)
    ]
    expected = sum(ranks, torch.zeros(1)) / session.ranks
    own = ranks[session.rank]
    tensor, average = own.clone(), torch.empty_like(own)
    dense = name in ("gloo", _OWN)
    group = session.group("udp" if name == _OWN else name)
    compressor = afflux.hooks.scheme(case.name).compressor

    def restore() -> None:
        tensor.copy_(own)

    def call() -> None:
        if dense:
            dist.all_reduce(tensor, group=group)
        else:
            compressor.take(tensor, average, group)

    def wrong() -> int:
        restore()
        call()
        found = tensor / session.ranks if dense else average
        # No group's largest is larger than this, and of it integers have so many bits.
        most = float(max(each.abs().max() for each in ranks))
        return int(((found - expected).abs() > most * 2.0 ** (1 - _BITS[case.name])).sum())

    # The rest of a tensor after a call would be blocks of less.
    return Side(call, wrong, restore, batch=1)


_PLANS = (Plan(Setup("narrow", "1 Gbit/s, fewer bits", beside=(_OWN,)), _CASES),)

WORKLOAD = Workload("narrow", _PLANS, _side)
