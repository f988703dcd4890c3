"""Captures of `docs/vectors`, replayed to an engine and to the C++ worker."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.collective import Reduction, storage_dtype
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import destination_of
from afflux_drivers.worker.again import Again
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import registers, wire
from tests.checks.vector_reader import Vector
from tests.support.drivers.packet_header import HEADER, Header
from tests.support.drivers.virtual_job import Parent, create_job, write_registers

__all__ = ["replay_to_engine", "replay_to_workers"]

_DTYPES = {dtype.name.lower(): dtype for dtype in wire.Dtype}


def ticket_of(vector: Vector) -> JobTicket:
    """Return the job of a vector as a worker is told of it."""
    about = vector.about
    group = about["group"] or {"address": "", "port": 0}
    return JobTicket(
        host=about["aggregator"]["address"],
        port=about["aggregator"]["port"],
        job=about["job"],
        key=int(about["key"], 16),
        round=about["round"],
        workers=about["workers"],
        lanes=about["lanes"],
        slots=about["slots"],
        credit=about["credit"],
        engine="soft",
        group=group["address"],
        group_port=group["port"],
        members=tuple(range(about["workers"])) if about["parent"] else (),
        ranks=about["ranks"] if about["parent"] else 0,
    )


def parent_of(vector: Vector) -> Parent | None:
    """Return the aggregator above a vector's job."""
    above = vector.about["parent"]
    if above is None:
        return None
    address = int.from_bytes(bytes(map(int, above["address"].split("."))), "big")
    mac = bytes.fromhex(above["mac"].replace(":", ""))
    endpoint = (mac, address, above["port"])
    return Parent(endpoint, above["job"], above["worker"], int(above["key"], 16))


def replay_to_engine(vector: Vector, engine: Engine | None = None) -> None:
    """Give an engine each frame that reaches it, and compare what it sends with what follows.

    Args:
        vector: The conversation.
        engine: Fresh; a software engine if None.

    Raises:
        AssertionError: It sends something else; names the frame that caused it.
    """
    if engine is None:
        engine = SoftEngine()
    there = vector.about["aggregator"]
    mac = bytes.fromhex(there["mac"].replace(":", ""))
    write_registers(
        engine,
        {
            "local_mac_low": int.from_bytes(mac[2:], "big"),
            "local_mac_high": int.from_bytes(mac[:2], "big"),
            "local_address": int.from_bytes(bytes(map(int, there["address"].split("."))), "big"),
            "local_port": there["port"],
        },
    )
    group = vector.about["group"]
    create_job(
        engine,
        ticket_of(vector),
        parent=parent_of(vector),
        group_key=int(group["key"], 16) if group else 0,
    )
    name = vector.about["name"]
    for number in vector.about["commanded"]:
        write_registers(engine, {"job_command": registers.Command.JOIN_PARENT})
        for _ in range(1000):
            if not engine.read(registers.address_of("job_busy")):
                break
        assert engine.play([]) == [vector.frames[number - 1]], f"{name}, frame {number}: command"
    up = [n for n, frame in enumerate(vector.frames, 1) if vector.goes_up(frame)]
    assert up[0] == 1 + len(vector.about["commanded"]), "the first frame does not go up"
    for number, following in pairwise([*up, len(vector.frames) + 1]):
        arrived = [vector.frames[number - 1]] if vector.arrives(number) else []
        expected = vector.frames[number : following - 1]
        where = f"{name}: the engine's answers to frame {number}"
        assert engine.play(arrived) == expected, where


class WorkerReplay:
    """One C++ worker of a vector's job, between the frames that a capture has of it.

    Args:
        vector: The conversation.
        worker: Its number.
    """

    def __init__(self, vector: Vector, worker: int) -> None:
        self._worker = worker
        self._session = Session(ticket_of(vector), worker)
        self._join = _native.Join(self._session)
        self._calls = list(vector.about["operations"])
        self._operation: Operation | Again | None = None
        # What the operation was begun with, and its result.
        self._begun: tuple[NDArray[Any], NDArray[Any], wire.Dtype, Reduction]
        self._not_summed: list[int] = []
        self._expected: NDArray[Any] | None = None
        # All contributions so far, those that the capture has yet to show, the latest by slot.
        self._made: set[bytes] = set()
        self._unseen: set[bytes] = set()
        self._now = 0.0

    def sent(self, datagram: bytes) -> None:
        """Compare a datagram of this worker in the capture with what the C++ worker makes."""
        header = Header._make(HEADER.unpack_from(datagram))
        if header.type == wire.Type.JOIN:
            (own,) = self._join.open(0.0)
        elif header.type == wire.Type.PROBE:
            own = self._probe(header.slot)
        else:
            if self._operation is None and self._calls:
                self._begin(self._calls.pop(0))
            assert datagram in self._made, "a contribution that the worker does not make"
            self._unseen.discard(datagram)
            return
        # Their look-ahead words are not looked at.
        assert datagram[: HEADER.size] == own[: HEADER.size], (
            "a header that the worker does not make"
        )

    def _probe(self, slot: int) -> bytes:
        """Return what the worker sends when the slot's timer runs out."""
        assert self._operation is not None, "a probe outside of an operation"
        self._now += 10.0
        sent = [(HEADER.unpack_from(each), each) for each in self._operation.expire(self._now)]
        # After so long a silence it joins once more, too.
        own = [
            each for header, each in sent if header[4] == slot and header[0] & 0xF != wire.Type.JOIN
        ]
        assert len(own) == 1, own
        return own[0]

    def receive(self, datagram: bytes) -> None:
        """Give the worker a datagram from the aggregator."""
        if self._operation is None:
            joined = datagram[0] & 0xF == wire.Type.JOINED
            if joined and not self._join.done:
                self._join.receive_bytes(datagram, 0.0)
            return
        try:
            answer = self._operation.receive_bytes(datagram, self._now)
        except _native.Disagreed:
            assert self._expected is None, "the worker sees a disagreement"
            self._operation = None
            return
        if answer is not None:
            self._note(bytes(answer))
        if self._operation.done:
            assert self._expected is not None, "the worker sees no disagreement"
            self._go_on(self._operation)

    def end(self) -> None:
        """Check that the capture has shown all that this worker has to do."""
        assert self._operation is None and not self._calls, "operations that are not over"
        assert not self._unseen, "contributions that are not in the capture"

    def _begin(self, call: dict[str, Any]) -> None:
        own = call["calls"][self._worker] if "calls" in call else call
        given = own["input"] if "calls" in call else own["inputs"][self._worker]
        dtype = _DTYPES[own["dtype"]]
        elements = np.frombuffer(bytes.fromhex(given), storage_dtype(dtype)).copy()
        self._expected = None
        if call["result"] is not None:
            self._expected = np.frombuffer(bytes.fromhex(call["result"]), storage_dtype(dtype))
        reduction = Reduction(own["reduction"])
        result = np.zeros_like(elements)
        self._begun = elements, result, dtype, reduction
        shape = tuple(own["shape"])
        self._open(Operation(self._session, elements, dtype, reduction, shape, result=result))

    def _open(self, operation: Operation | Again) -> None:
        self._operation = operation
        for datagram in operation.open(0.0):
            self._note(bytes(datagram))

    def _go_on(self, over: Operation | Again) -> None:
        """Compare the result, or bring again what was not summed."""
        if isinstance(over, Again):
            over.finish()
            self._not_summed = self._not_summed[over.blocks :]
        else:
            self._not_summed = over.not_summed()
        if self._not_summed:
            self._open(Again(self._session, *self._begun, self._not_summed))
            return
        assert self._expected is not None
        assert self._begun[1].tobytes() == self._expected.tobytes(), "other bits"
        self._operation = None

    def _note(self, datagram: bytes) -> None:
        if datagram not in self._made:
            self._made.add(datagram)
            self._unseen.add(datagram)


def replay_to_workers(vector: Vector) -> None:
    """Give each C++ worker what reaches it, and compare what it sends and returns.

    Raises:
        AssertionError: It sends or returns something else; names the frame.
    """
    replays = [WorkerReplay(vector, worker) for worker in range(vector.about["workers"])]
    places = [(each["address"], each["port"]) for each in vector.about["members"]]
    for number, frame in enumerate(vector.frames, 1):
        datagram = frame[wire.AFFLUX_OFFSET :]
        try:
            above = vector.goes_to_parent(frame) or vector.comes_from_parent(frame)
            if vector.is_foreign(number) or above:
                continue
            if vector.goes_up(frame):
                source = ".".join(map(str, frame[26:30])), int.from_bytes(frame[34:36], "big")
                replays[places.index(source)].sent(datagram)
            elif vector.arrives(number):
                there = destination_of(frame)
                for each, place in zip(replays, places, strict=True):
                    if there == place or there not in places:
                        each.receive(datagram)
        except AssertionError as error:
            raise AssertionError(f"{vector.about['name']}, frame {number}: {error}") from None
    for worker, replay in enumerate(replays):
        try:
            replay.end()
        except AssertionError as error:
            raise AssertionError(f"{vector.about['name']}, worker {worker}: {error}") from None
