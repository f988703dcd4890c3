"""Joins a group's jobs: a worker for each rank, or one for the ranks of each host."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from afflux.group.forming.host_memory import Units
from afflux.group.reducers.continued_job_reducer import ContinuedHostReducer, ContinuedJobReducer
from afflux.group.reducers.continued_reducer import Replace
from afflux.group.reducers.fail_back import FailBack
from afflux.group.reducers.host_journal import HostJournal
from afflux.group.reducers.host_worker import HostWorker
from afflux.group.reducers.job_reducer import Holding, HostJobReducer, JobReducer, NativeJobReducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.variables import Settings
from afflux.group.store.epoch import Epoch
from afflux.group.store.exchange import Exchange
from afflux_drivers._native import Journal
from afflux_drivers.addresses import authority
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.worker import Worker

__all__ = ["GoingOn", "join_jobs"]

_log = logging.getLogger("afflux")


class GoingOn(NamedTuple):
    """How a group goes on when its aggregators end.

    Attributes:
        epoch: The change, in the store.
        replace: Makes what takes their place.
        timeout_s: The group's timeout.
        back: The way back to them, or to others.
    """

    epoch: Epoch
    replace: Replace
    timeout_s: float
    back: FailBack


def join_jobs(
    exchange: Exchange,
    rank: int,
    settings: Settings,
    tickets: Sequence[JobTicket],
    holding: Holding,
    units: Units,
    topology: Topology,
    going_on: GoingOn | None = None,
) -> JobReducer:
    """Join the jobs with the worker of this rank, or of its host. Collective.

    Args:
        exchange: The group's.
        rank: Own.
        settings: Own.
        tickets: Of this rank's jobs.
        holding: This rank's hold on them.
        units: The ranks that each worker sends for.
        topology: Which way the sums take.
        going_on: How the group goes on when its aggregators end; None if it ends with them.

    Raises:
        StepFailed: A rank could not join; at every rank.
    """
    worker: Worker | None = None
    leads = rank == units.own[0]
    rounds = units.by_host and settings.rounding == "host"
    if rounds:
        # The host's rounded sum takes the place of the leader's contribution.
        going_on = None
    journal = Journal() if going_on is not None and leads else None

    def join() -> None:
        nonlocal worker
        if not leads:
            return
        worker = Worker(
            tickets,
            rank,
            loss=_loss(settings, rank),
            peer_timeout_s=settings.peer_timeout_s,
            reduced=rounds,
            journal=journal,
        )
        try:
            worker.join(settings.connect_timeout_s)
        except AffluxError as error:
            error.args = (holding.named(str(error)),)
            raise

    try:
        exchange.join(join)
    except BaseException:
        if worker is not None:
            worker.close()
        raise
    where = ", ".join(authority(each.host, each.port) for each in tickets)
    _log.info(
        "rank %d: %s, %d lanes, %d slots at %s", rank, topology, tickets[0].lanes,
        tickets[0].slots, where,
    )  # fmt: skip
    of_jobs = tickets, settings.aggregator, holding, topology
    if units.by_host:
        of_host = rank, units.own, units.shared, worker, tickets[0].size if rounds else None
        if going_on is None:
            return HostJobReducer(HostWorker(*of_host), *of_jobs)
        ours = HostJournal(journal)
        return ContinuedHostReducer(
            HostWorker(*of_host, ours), *of_jobs, ours, rank, units.own[0], *going_on
        )
    assert worker is not None
    if journal is None or going_on is None:
        return NativeJobReducer(worker, *of_jobs)
    return ContinuedJobReducer(worker, *of_jobs, journal, rank, *going_on)


def _loss(settings: Settings, rank: int) -> LossSwitch | None:
    if settings.test_loss == 0:
        return None
    return LossSwitch(settings.test_loss, settings.test_seed, rank)
