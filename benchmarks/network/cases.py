"""The cases of `make bench-network`: networks, cases in each, and their targets.

The files that `benchmarks.network.workloads` names hold the cases of `make bench-sparse`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MIB", "PLANS", "UCX_PLANS", "Case", "Plan", "Setup", "plans_for"]

MIB = 1 << 20


@dataclass(frozen=True)
class Setup:
    """A network, and the ranks on it.

    Attributes:
        name: Value of "setup" in rows.
        title: Its name in tables.
        hosts, ranks_per_host: How many there are.
        gbit: Rate of each host's port; None: no limit.
        aggregator_gbit: Rate of the aggregator's port.
        mtu: Most bytes of an IP packet.
        loss: Share of packets that are lost.
        links: Interfaces of each host, each at a switch of its own.
        offloads: Whether packets pass interfaces uncut.
        queue_bytes: The limit of the queue at a port of the switch, with ports that pass no packets
            at once; None: as much as at a usual switch.
        default_buffers: Whether receive buffers stay as Linux makes them.
        topologies: Which of `benchmarks.network.topologies` take part, beside Gloo.
        with_mpi: Whether an MPI launcher starts the ranks, and MPI takes part.
        beside: Other contenders, by names that the cases' workload knows.
        reference: Name of the setup whose speed, in the same case, counts as 1; "" if none does.
        reference_wanted: The target for that speed.
    """

    name: str
    title: str
    hosts: int = 4
    ranks_per_host: int = 1
    gbit: float | None = 1.0
    aggregator_gbit: float | None = 10.0
    mtu: int = 1500
    loss: float = 0.0
    links: int = 1
    offloads: bool = True
    queue_bytes: int | None = None
    default_buffers: bool = False
    topologies: tuple[str, ...] = ("auto", "udp")
    with_mpi: bool = False
    beside: tuple[str, ...] = ()
    reference: str = ""
    reference_wanted: float = 0.0

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.hosts * self.ranks_per_host


@dataclass(frozen=True)
class Case:
    """The work of all ranks.

    Attributes:
        name: Value of "case" in rows.
        title: Its name in tables.
        bytes: Size of each rank's tensor, or of a step's embedding or layers.
        density: Share of its blocks that are not zero; of the embedding's rows that a rank has in
            a step.
        overlap: "random" or "full": whether these are the same blocks at all ranks.
        dtype: Of the tensor of an all-reduce.
        kind: "all_reduce"; "step" and "sharded_step", steps of training; or that of a workload.
        wanted: Times as fast as Gloo, by topology.
        wanted_beside: Times as fast as other contenders, by their names, whoever sums.
    """

    name: str
    title: str
    bytes: int
    density: float = 1.0
    overlap: str = "random"
    dtype: str = "float32"
    kind: str = "all_reduce"
    wanted: Mapping[str, float] = field(default_factory=dict)
    wanted_beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A setup with its cases."""

    setup: Setup
    cases: tuple[Case, ...]


def _large(dense: Mapping[str, float]) -> tuple[Case, ...]:
    """Return the cases of 100 MiB; the target of the dense one differs by MTU."""
    tenth, random, full = {"auto": 3.0, "udp": 3.5}, {"auto": 12.0, "udp": 15.0}, {"udp": 30.0}
    size = 100 * MIB
    return (
        Case("dense", "100 MiB dense", size, wanted=dense),
        Case("10%", "100 MiB, 10 % of blocks", size, 0.1, wanted=tenth),
        Case("1%", "100 MiB, 1 % of blocks", size, 0.01, wanted=random),
        Case("1%_full", "100 MiB, 1 % of blocks, the same", size, 0.01, "full", wanted=full),
    )


def _small() -> tuple[Case, ...]:
    wanted = {"udp": 4.0}
    return (
        Case("4", "4 bytes", 4, wanted=wanted),
        Case("256", "256 bytes", 256, wanted=wanted),
        Case("4K", "4 KB", 4 << 10, wanted=wanted),
        Case("64K", "64 KB", 64 << 10),
        Case("1M", "1 MB", MIB),
    )


_EMBEDDING = 4 * 64 * 100_000
"""Bytes of 100,000 rows of 64 numbers, as `benchmarks.network.embedding` makes them."""


_DENSE = Case("dense", "16 MiB dense", 16 * MIB)
_ONE_PERCENT = Case("1%", "16 MiB, 1 % of blocks", 16 * MIB, 0.01)


def _fast(name: str, hosts: int, gbit: float | None, dense: float, *more: Case) -> Plan:
    """Return a setup, with the target of its dense tensor."""
    rate = "no limit of rates" if gbit is None else f"{gbit:.0f} Gbit/s"
    aggregator = None if gbit is None else hosts * gbit
    return Plan(
        Setup(
            name, f"{hosts} hosts, {rate}, MTU 1,500", hosts=hosts, gbit=gbit,
            # Two hosts have nothing for an aggregator of streams to do.
            aggregator_gbit=aggregator, topologies=("auto", "udp", *(("tcp",) * (hosts > 2))),
        ),
        (
            Case("dense", "100 MiB dense", 100 * MIB, wanted={"auto": dense, "tcp": 0.7}),
            Case("1%", "100 MiB, 1 % of blocks", 100 * MIB, 0.01, wanted={"auto": 10.0}),
            *more,
        ),
    )  # fmt: skip


_SMALLER = (
    Case("1M", "1 MB", MIB, wanted={"auto": 2.5}),
    Case("64K", "64 KB", 64 << 10, wanted={"auto": 8.0}),
    Case("4K", "4 KB", 4 << 10, wanted={"auto": 15.0}),
)

_TENTH = Case("10%", "100 MiB, 10 % of blocks", 100 * MIB, 0.1, wanted={"auto": 2.5})


_ROUNDED = ("auto", "auto_host", "udp", "udp_host")

_OF_TYPES = (
    Case("float32", "25 MiB of float32", 25 * MIB),
    Case("bfloat16", "25 MiB of bfloat16", 25 * MIB, dtype="bfloat16"),
)

_INCAST = (Case("dense", "4 MiB dense", 4 * MIB),)


def _incast(name: str, title: str, queue_bytes: int, **reference: Any) -> Setup:
    return Setup(
        name, title, hosts=8, gbit=0.2, aggregator_gbit=0.2, queue_bytes=queue_bytes, **reference
    )


def _lossy(name: str, title: str, loss: float, wanted: float) -> Setup:
    return Setup(name, title, loss=loss, reference="loss_0", reference_wanted=wanted)


PLANS = (
    Plan(
        Setup("gigabit", "1 Gbit/s, MTU 1,500", topologies=("auto", "udp", "tcp")),
        (
            *_large({"auto": 0.92, "udp": 1.35}),
            *_small(),
            Case("embedding", "DDP step, 24.4-MiB embedding, 1 % of rows", _EMBEDDING, 0.01,
                 kind="step", wanted={"auto": 3.0, "udp": 3.0}),
            Case("embedding_4%", "DDP step, 24.4-MiB embedding, 4 % of rows", _EMBEDDING, 0.04,
                 kind="step"),
        ),
    ),
    Plan(
        Setup("jumbo", "1 Gbit/s, MTU 9,000", mtu=9000),
        _large({"auto": 0.94, "udp": 1.4}),
    ),
    _fast("ten", 4, 10.0, 1.0, *_SMALLER),
    _fast("ten_two", 2, 10.0, 1.25, *_SMALLER),
    _fast("twenty_five_two", 2, 25.0, 1.3, *_SMALLER),
    _fast("unlimited_two", 2, None, 1.2, _TENTH),
    _fast("unlimited_four", 4, None, 1.0, _TENTH),
    Plan(
        Setup("ten_eight", "8 hosts, 10 Gbit/s", hosts=8, gbit=10.0, topologies=("auto",)),
        (Case("1M", "1 MB", MIB, wanted={"auto": 2.0}),
         Case("64K", "64 KB", 64 << 10, wanted={"auto": 6.0})),
    ),
    Plan(
        Setup("ten_steps", "10 Gbit/s", gbit=10.0, topologies=("auto",)),
        (Case("embedding", "DDP step, 24.4-MiB embedding, 1 % of rows", _EMBEDDING, 0.01,
              kind="step", wanted={"auto": 1.0}),
         Case("all_rows", "DDP step, 24.4-MiB embedding, most rows", _EMBEDDING, 1.0,
              kind="step", wanted={"auto": 1.15}),
         Case("fsdp2", "FSDP2 step, 4 layers of 4 MiB", 16 * MIB, kind="sharded_step",
              wanted={"auto": 1.0})),
    ),
    Plan(
        Setup("pairs", "1 Gbit/s, 2 ranks on each host", ranks_per_host=2),
        (Case("dense", "16 MiB dense", 16 * MIB, wanted={"auto": 1.3, "udp": 1.3}), _ONE_PERCENT),
    ),
    Plan(
        Setup("two_pairs", "1 Gbit/s, 2 hosts of 2 ranks", hosts=2, ranks_per_host=2,
              topologies=_ROUNDED),
        _OF_TYPES,
    ),
    Plan(
        Setup("two_pairs_ten", "10 Gbit/s, 2 hosts of 2 ranks", hosts=2, ranks_per_host=2,
              gbit=10.0, aggregator_gbit=20.0, topologies=_ROUNDED),
        _OF_TYPES,
    ),
    Plan(
        Setup("two_fours", "1 Gbit/s, 2 hosts of 4 ranks", hosts=2, ranks_per_host=4,
              topologies=_ROUNDED),
        _OF_TYPES,
    ),
    # The cost of loss shows against the same network without: packets are cut there too.
    Plan(Setup("loss_0", "1 Gbit/s, packets cut, no loss", offloads=False), (_DENSE,)),
    Plan(_lossy("loss_0.1%", "1 Gbit/s, 0.1 % loss", 0.001, 0.8), (_DENSE,)),
    Plan(_lossy("loss_1%", "1 Gbit/s, 1 % loss", 0.01, 0.5), (_DENSE,)),
    Plan(
        Setup("eight", "8 hosts, 0.2 Gbit/s", hosts=8, gbit=0.2, aggregator_gbit=2.0),
        (_DENSE, _ONE_PERCENT),
    ),
    # All workers' packets meet at a port that is no faster than theirs.
    Plan(_incast("incast_deep", "8 hosts, aggregator as slow, 1-MiB queues", MIB), _INCAST),
    Plan(
        _incast(
            "incast", "8 hosts, aggregator as slow, 32-KiB queues", 32 << 10,
            reference="incast_deep", reference_wanted=0.9,
        ),
        _INCAST,
    ),
    Plan(
        Setup(
            "buffers", "1 Gbit/s, Linux's receive buffers", default_buffers=True,
            reference="gigabit", reference_wanted=0.7,
        ),
        _large({})[::2],
    ),
    Plan(
        Setup("interfaces", "2 interfaces of 1 Gbit/s", links=2, topologies=("streams", "two")),
        (Case("dense", "16 MiB dense", 16 * MIB, wanted={"streams": 0.92, "two": 1.8}),
         _ONE_PERCENT),
    ),
    Plan(
        Setup("mpi", "4 hosts, 1 Gbit/s", with_mpi=True),
        (Case("4K", "4 KB", 4 << 10), Case("1M", "1 MB", MIB), _DENSE),
    ),
    Plan(
        Setup("mpi_ten", "2 hosts, 10 Gbit/s", hosts=2, gbit=10.0,
              topologies=("auto",), with_mpi=True),
        (Case("4K", "4 KB", 4 << 10), Case("64K", "64 KB", 64 << 10), Case("1M", "1 MB", MIB),
         Case("dense", "100 MiB dense", 100 * MIB)),
    ),
)  # fmt: skip


_CARRIED = (
    Case("4K", "4 KB", 4 << 10),
    Case("64K", "64 KB", 64 << 10),
    Case("1M", "1 MB", MIB),
    Case("dense", "100 MiB dense", 100 * MIB),
)

UCX_PLANS = (
    Plan(
        Setup("ucx_ten", "2 hosts, 10 Gbit/s", hosts=2, gbit=10.0, topologies=("streams", "ucx")),
        _CARRIED,
    ),
    Plan(
        Setup("ucx_unlimited", "2 hosts, no limit of rates", hosts=2, gbit=None,
              aggregator_gbit=None, topologies=("streams", "ucx")),
        _CARRIED,
    ),
)  # fmt: skip
"""What carries the streams: TCP connections or UCX, which these hosts must have."""


def plans_for(wanted: tuple[str, ...], plans: Sequence[Plan] = PLANS) -> list[Plan]:
    """Return what is asked for: "SETUP" or "SETUP:CASE"; all if nothing is.

    Args:
        wanted: These words.
        plans: All plans.

    Raises:
        ValueError: There is no such setup, or no such case in it.
    """
    if not wanted:
        return list(plans)
    by_name = {plan.setup.name: plan for plan in plans}
    asked: dict[str, list[str]] = {}
    for each in wanted:
        setup, _, case = each.partition(":")
        if setup not in by_name:
            raise ValueError(f"{each!r}: the setups are {', '.join(by_name)}")
        known = [one.name for one in by_name[setup].cases]
        if case and case not in known:
            raise ValueError(f"{each!r}: the cases of {setup} are {', '.join(known)}")
        asked.setdefault(setup, []).extend([case] if case else known)
    return [
        Plan(plan.setup, tuple(case for case in plan.cases if case.name in asked[name]))
        for name, plan in by_name.items()
        if name in asked
    ]
