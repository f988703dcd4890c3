"""One rank in an operation, packet by packet, with the test in the place of the aggregator."""

from dataclasses import replace

import numpy as np

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.support.drivers.packet_header import HEADER, Header
from tests.support.drivers.virtual_job import GROUP_KEY, joined_words, ticket_of

__all__ = [
    "F32",
    "LANES",
    "Rank",
    "answer_to",
    "header_of",
    "result_of_opening",
    "to_everyone",
]

F32 = wire.Dtype.FLOAT32
LANES = 2


class Rank:
    """Rank 1 of 3 in an operation, with a test for aggregator."""

    def __init__(self, count: int = 1000, slots: int = 1, group: str = "") -> None:
        ticket = replace(ticket_of(3, LANES, slots), group=group, group_port=4701)
        self.session = Session(ticket, 1)
        if group:
            join = _native.Join(self.session)
            (packet,) = join.open(0.0)
            joined = joined_words(ticket)
            join.receive_bytes(answer_to(packet, wire.Type.JOINED, joined), 0.0)
        elements = np.arange(1, count + 1, dtype=np.float32)
        self.operation = Operation(self.session, elements, F32, Reduction.SUM, (count,))
        self.opening = self.operation.open(0.0)

    def receive(self, datagram: bytes, now: float = 0.01) -> bytes | None:
        return self.operation.receive(datagram, now)

    def expire(self, now: float) -> list[bytes]:
        return self.operation.expire(now)

    def ignored(self) -> int:
        return self.session.statistics.ignored


def header_of(datagram: bytes) -> Header:
    return Header._make(HEADER.unpack_from(datagram))


def answer_to(datagram: bytes, type_: wire.Type, words: list[int], blocks: bytes = b"") -> bytes:
    """Return a packet of the aggregator's with the header of a worker's."""
    header = header_of(datagram)._replace(version_type=wire.VERSION << 4 | type_)
    if not blocks:
        header = header._replace(present=0)
    return HEADER.pack(*header) + np.array(words, "<u4").tobytes() + blocks


def to_everyone(datagram: bytes, key: int = GROUP_KEY) -> bytes:
    """Return a result as it goes to the group."""
    header = header_of(datagram)._replace(worker=wire.EVERYONE, key=key)
    return HEADER.pack(*header) + datagram[wire.HEADER_BYTES :]


def result_of_opening(datagram: bytes, words: list[int] | None = None) -> bytes:
    """Return the result if all ranks called the same and sent the same words."""
    block = np.frombuffer(datagram, "<u4", 64, wire.datagram_bytes(0)).copy()
    block[:3] = block[1]
    own = np.frombuffer(datagram, "<u4", 16, wire.HEADER_BYTES).tolist()
    return answer_to(datagram, wire.Type.RESULT, own if words is None else words, block.tobytes())
