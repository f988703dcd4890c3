"""A job of the software engine: where its workers, its group and its parent are, and what it sends.

Results and partial sums are composed here (protocol, sections 5.4 to 5.6).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from afflux_drivers.frames import frame_header
from afflux_drivers.packets import HEADER, datagram_bytes
from afflux_drivers.soft_registers import RegisterFile
from afflux_drivers.soft_slot import SoftSlot
from afflux_hdl import wire

__all__ = ["Endpoint", "Parent", "SoftJob"]

_VERSION = wire.VERSION << 4
_NO_WORDS = bytes(wire.LOOKAHEAD_BYTES)

Endpoint = tuple[bytes, int, int]
"""MAC address, IPv4 address, UDP port."""


@dataclass(frozen=True)
class Parent:
    """The aggregator above, and what this job is there.

    Attributes:
        endpoint: Where it is.
        job: Job number there.
        worker: Own worker number there.
        key: Key of the job run there.
    """

    endpoint: Endpoint
    job: int
    worker: int
    key: int


class _Receiver:
    """Somebody who gets frames of a job: the headers before them are made once for each length."""

    __slots__ = ("_fronts", "_source", "_target")

    def __init__(self, source: Endpoint, target: Endpoint) -> None:
        self._source, self._target = source, target
        self._fronts: dict[int, bytes] = {}

    def front(self, blocks: int) -> bytes:
        """The 42 bytes before a packet of so many blocks."""
        found = self._fronts.get(blocks)
        if found is None:
            (mac, address, port), (to_mac, to_address, to_port) = self._source, self._target
            found = self._fronts[blocks] = frame_header(
                (to_mac, mac), (address, to_address), (port, to_port), datagram_bytes(blocks)
            )
        return found


class SoftJob:
    """An enabled job.

    Args:
        number: Job number.
        values: The registers, from which it takes what the job is.
        slots: Its slots.
        local: The engine's endpoint.

    Attributes:
        key: Secret of the job run.
        workers: N.
        lanes: F.
        credit: Packets that a worker may have in flight.
        slots: Its slots.
        everyone: Bitmap of all workers.
        peers: Endpoint of each worker that has joined, as its latest JOIN gave it.
        group: Address and port of the multicast group; zeros if there is none.
        parent: The aggregator above, or None.
        parent_joined: Whether that has let this job join.
    """

    __slots__ = (
        "_group_receiver",
        "_local",
        "_number",
        "_parent_receiver",
        "_receivers",
        "credit",
        "everyone",
        "group",
        "key",
        "lanes",
        "parent",
        "parent_joined",
        "peers",
        "slots",
        "workers",
    )

    def __init__(
        self, number: int, values: RegisterFile, slots: list[SoftSlot], local: Endpoint
    ) -> None:
        self._number = number
        self.key = values["job_key_high"] << 32 | values["job_key_low"]
        self.workers = values["job_workers"]
        self.lanes = values["job_lanes"]
        self.credit = values["job_credit"]
        self.slots = slots
        self.everyone = (1 << self.workers) - 1
        self.peers: list[Endpoint | None] = [None] * self.workers
        self.group = (0, 0)
        if values["job_group_address"]:
            self.group = values["job_group_address"], values["job_group_port"]
        self.parent: Parent | None = None
        self.parent_joined = False
        if values["job_parent_address"]:
            mac = values["job_parent_mac_high"] << 32 | values["job_parent_mac_low"]
            self.parent = Parent(
                (mac.to_bytes(6, "big"), values["job_parent_address"], values["job_parent_port"]),
                values["job_parent_job"],
                values["job_parent_worker"],
                values["job_parent_key_high"] << 32 | values["job_parent_key_low"],
            )
        self.moved(local)

    def moved(self, local: Endpoint) -> None:
        """Takes a new endpoint of the engine."""
        self._local = local
        self._receivers = [
            _Receiver(local, peer) if peer is not None else None for peer in self.peers
        ]
        self._group_receiver: _Receiver | None = None
        if self.group[0]:
            # RFC 1112, section 6.4.
            mac = b"\x01\x00\x5e" + (self.group[0] & 0x7F_FFFF).to_bytes(3, "big")
            self._group_receiver = _Receiver(local, (mac, *self.group))
        self._parent_receiver: _Receiver | None = None
        if self.parent is not None:
            mac, address, port = local
            source = mac, address, (port + 1 + self._number) & 0xFFFF
            self._parent_receiver = _Receiver(source, self.parent.endpoint)

    def join(self, worker: int, peer: Endpoint) -> None:
        """Takes the endpoint of a worker's JOIN."""
        self.peers[worker] = peer
        self._receivers[worker] = _Receiver(self._local, peer)

    def completed(self, number: int, round_: int) -> Iterator[bytes]:
        """The frames of a round that has just become complete: to the group, or to each worker."""
        body = self.slots[number].result(round_ & 1)
        if self._group_receiver is not None:
            yield self._result(number, round_, wire.EVERYONE, self._group_receiver, body)
            return
        for worker in range(self.workers):
            yield self._result(number, round_, worker, self._receivers[worker], body)

    def replay(self, number: int, round_: int, worker: int) -> bytes:
        """The frame of a complete round, again, to one worker."""
        body = self.slots[number].result(round_ & 1)
        return self._result(number, round_, worker, self._receivers[worker], body)

    def partial_sum(self, number: int, round_: int) -> bytes:
        """The frame that takes a full round up to the parent."""
        if self.parent is None or self._parent_receiver is None:
            raise RuntimeError("the job has no parent")
        slot, version = self.slots[number], round_ & 1
        present = slot.present[version]
        type_ = wire.Type.CONFLICT if slot.conflict[version] else wire.Type.DATA
        afflux = HEADER.pack(
            _VERSION | type_,
            slot.opcode_dtype[version],
            self.parent.job,
            self.parent.worker,
            number,
            present,
            round_,
            self.parent.key,
            slot.operation[version],
        )
        front = self._parent_receiver.front(present.bit_count())
        return front + afflux + slot.result(version)

    def join_parent(self) -> bytes | None:
        """The frame that asks the parent to let this job join; None if there is no parent."""
        if self.parent is None or self._parent_receiver is None:
            return None
        parent = self.parent
        afflux = HEADER.pack(
            _VERSION | wire.Type.JOIN, 0, parent.job, parent.worker, 0, 0, 0, parent.key, 0
        )
        return self._parent_receiver.front(0) + afflux + _NO_WORDS

    def _result(
        self, number: int, round_: int, worker: int, receiver: _Receiver | None, body: bytes
    ) -> bytes:
        if receiver is None:
            raise RuntimeError("a round is complete without all its workers having joined")
        slot, version = self.slots[number], round_ & 1
        present = slot.present[version]
        type_ = wire.Type.CONFLICT if slot.conflict[version] else wire.Type.RESULT
        afflux = HEADER.pack(
            _VERSION | type_,
            slot.opcode_dtype[version],
            self._number,
            worker,
            number,
            present,
            round_,
            self.key,
            slot.operation[version],
        )
        return receiver.front(present.bit_count()) + afflux + body
