"""Requests of the control channel and their answers, one JSON object per line (protocol, 10)."""

import ipaddress
import json
import re
from collections.abc import Callable
from typing import Any

from afflux_drivers.aggregator.board import Board, BoardFailed
from afflux_drivers.aggregator.conversation import Client
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.job import Job
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.aggregator.jobs import JobTable, engine_limits, read_counters
from afflux_drivers.control.tickets import ParentJob
from afflux_hdl.contract import wire

__all__ = ["RequestHandler"]


_JOBS_OF_A_CONNECTION = 16
_LEASE_MAX_S = 3600


class _Bad(Exception):
    """A request is wrong; the text gives the reason."""


class RequestHandler:
    """Answers requests. Not thread-safe.

    Args:
        engine: The engine.
        table: Its jobs.
        port: The aggregator's UDP port.
        wake: Called when the engine has something to send that no frame has caused.
        host: The IPv4 address of an engine that is elsewhere than its control channel; else empty.
    """

    def __init__(
        self,
        engine: Engine | Board,
        table: JobTable,
        port: int,
        wake: Callable[[], None],
        host: str = "",
    ) -> None:
        self._engine, self._table, self._port, self._wake = engine, table, port, wake
        # With whose connection each job ends.
        self._owners: dict[int, Client] = {}
        self._place: dict[str, Any] = {"port": port, **({"host": host} if host else {})}

    def answer(self, line: bytes, client: Client) -> bytes:
        """Carry out one request and return the line to answer.

        Args:
            line: The request.
            client: The one that asks; a new job is added to its own.
        """
        try:
            answer = self._carry_out(_object(line), client)
        except (_Bad, NoRoom, BoardFailed) as error:
            answer = {"ok": False, "error": str(error)}
        return json.dumps(answer).encode() + b"\n"

    def _carry_out(self, request: dict[str, Any], client: Client) -> dict[str, Any]:
        kind = request.get("request")
        if kind == "create":
            return self._create(request, client)
        if kind == "close":
            self._table.destroy(self._job(request))
            return {"ok": True}
        if kind == "join_parent":
            job = self._job(request)
            if job.parent is None:
                raise _Bad(f"job {job.number} has no parent")
            joined = self._table.join_parent(job)
            self._wake()
            return {"ok": True, "joined": joined}
        if kind == "renew":
            return self._renew(self._job(request), client)
        if kind == "counters":
            return {"ok": True, "counters": read_counters(self._engine)}
        if kind == "describe":
            # Only a simulated engine counts its clock cycles.
            cycles = getattr(self._engine, "cycles", None)
            return {
                "ok": True,
                "protocol": wire.VERSION,
                "engine": self._engine.name,
                **engine_limits(self._engine),
                **self._place,
                **({} if cycles is None else {"cycles": cycles}),
            }
        raise _Bad(
            f"request {kind!r} must be create, renew, join_parent, close, counters or describe"
        )

    def _job(self, request: dict[str, Any]) -> Job:
        number, key = _integer(request, "job", 0, 255), _key(request)
        job = self._table.find(number, key)
        if job is None:
            raise _Bad(f"there is no job {number} with this key")
        return job

    def _renew(self, job: Job, client: Client) -> dict[str, Any]:
        if not job.lease_s:
            raise _Bad(f"job {job.number} was created without a lease")
        owner = self._owners.get(job.number)
        if not client.gone and (owner is not client or job not in client.jobs):
            # Its own connection was to an earlier process, or is broken and nobody has noticed yet:
            # from now on it ends with this one. Not if that has ended too, as those by which it was
            # tried while this process was held up.
            self._make_room(client)
            if owner is not None and job in owner.jobs:
                owner.jobs.remove(job)
            self._give(job, client)
        self._table.renew(job)
        return {"ok": True, "lease_s": job.lease_s}

    def _give(self, job: Job, client: Client) -> None:
        self._owners[job.number] = client
        client.jobs.append(job)

    def _make_room(self, client: Client) -> None:
        """See that a connection may have one more job."""
        client.jobs = [job for job in client.jobs if self._table.find(job.number, job.key) is job]
        if len(client.jobs) >= _JOBS_OF_A_CONNECTION:
            raise _Bad(
                f"this connection of peer {client.peer} has {_JOBS_OF_A_CONNECTION} jobs: another "
                "one is to create more"
            )

    def _create(self, request: dict[str, Any], client: Client) -> dict[str, Any]:
        self._make_room(client)
        protocol = _integer(request, "protocol", 0, 1 << 32)
        if protocol != wire.VERSION:
            older = "the client" if protocol < wire.VERSION else "this aggregator"
            raise _Bad(
                f"protocol {protocol} is not supported, only {wire.VERSION}: update Afflux on the "
                f"host of {older}"
            )
        job = self._table.create(
            _integer(request, "workers", 1, 1 << 32),
            _integer(request, "lanes", 1, 1 << 32),
            _integer(request, "slots", 1, 1 << 32),
            _parent(request["parent"]) if "parent" in request else None,
            # Children are not members of groups.
            to_each=request.get("group") is False,
            peer=client.peer,
            lease_s=_integer(request, "lease_s", 1, _LEASE_MAX_S) if "lease_s" in request else 0,
        )
        self._give(job, client)
        group = job.group
        # Only an engine in software is served by threads; a job below a parent by one of them.
        ranges = getattr(self._engine, "shares", 1) if job.parent is None else 1
        return {
            "ok": True,
            "job": job.number,
            "key": f"{job.key:016x}",
            "round": job.round,
            "workers": job.workers,
            "lanes": job.lanes,
            "slots": job.slots,
            "credit": job.credit,
            **self._place,
            "engine": self._engine.name,
            **({} if ranges == 1 else {"ranges": ranges}),
            **({"lease_s": job.lease_s} if job.lease_s else {}),
            **({} if group is None else {"group": group.address, "group_port": group.port}),
        }


def _object(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _Bad("a request must be one line with a JSON object in UTF-8") from None
    if not isinstance(request, dict):
        raise _Bad(f"a request must be a JSON object, not {type(request).__name__}")
    return request


def _integer(request: dict[str, Any], name: str, least: int, most: int) -> int:
    value = request.get(name)
    if type(value) is not int or not least <= value <= most:
        raise _Bad(f"{name} must be an integer from {least} to {most}, not {str(value)[:40]!r}")
    return value


def _key(request: dict[str, Any]) -> int:
    text = request.get("key")
    if not isinstance(text, str) or not re.fullmatch("[0-9A-Fa-f]{16}", text):
        raise _Bad("key must be 16 hexadecimal digits")
    return int(text, 16)


def _parent(given: Any) -> ParentJob:
    if not isinstance(given, dict):
        raise _Bad("parent must be an object")
    try:
        address = str(ipaddress.ip_address(str(given["address"])))
    except (KeyError, ValueError):
        raise _Bad("address of the parent must be four decimal octets or an IPv6 address") from None
    return ParentJob(
        address,
        _integer(given, "port", 1, 0xFFFF),
        _integer(given, "job", 0, 255),
        _key(given),
        _integer(given, "worker", 0, wire.WORKERS_MAX - 1),
        _integer(given, "round", 0, 0xFFFF_FFFF),
    )
