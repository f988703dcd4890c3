"""Frames of the workers of several jobs, given by tickets; many are wrong. Seeded."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import mac_of
from afflux_hdl.contract import wire
from tests.scenarios.corruption import HEADERS_BYTES, cut, extended, flip_bits
from tests.scenarios.packing import Peer, pack_frame, sealed, with_ip_checksum, with_udp_checksum
from tests.support.drivers.packet_header import HEADER
from tests.support.drivers.virtual_job import ENGINE_ADDRESS, ENGINE_MAC, Parent

_INTERESTING = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30) - 1], np.int32)


def packed(address: int) -> bytes:
    """Return an IPv4 address as it is on the wire."""
    return address.to_bytes(4, "big")


@dataclass
class TicketFrames:
    """Frames of the workers of some jobs. Most help the open rounds on, so that many complete.

    Attributes:
        generator: Draws everything.
        tickets: The jobs.
        state: R, the seen bitmap and whether it waits for its parent, of a job's slot.
        parents: The parents of those jobs that have one, by job number.
    """

    generator: random.Random
    tickets: list[JobTicket]
    state: Callable[[JobTicket, int], tuple[int, int, bool]]
    parents: dict[int, Parent] = field(default_factory=dict)

    def frame(self) -> bytes:
        """Return the next frame."""
        draw = self.generator.random()
        if draw < 0.02:
            return self.generator.randbytes(self.generator.randrange(200))
        frame = self._valid()
        if draw < 0.10:
            frame = self._mutated(frame)
        elif draw < 0.2:
            frame = with_udp_checksum(frame)
        elif draw < 0.22:
            frame = self._mutated(with_udp_checksum(frame))
        return frame

    def join(self, ticket: JobTicket, worker: int) -> bytes:
        """Return a JOIN that is accepted."""
        version_type = wire.VERSION << 4 | wire.Type.JOIN
        afflux = HEADER.pack(version_type, 0, ticket.job, worker, 0, 0, 0, ticket.key, 0)
        address = int.from_bytes(bytes((10, 1, ticket.job, worker)), "big")
        return self._framed(
            afflux + bytes(64), Peer(mac_of(address), packed(address), 4000 + worker)
        )

    def _peer(self, ticket: JobTicket, worker: int) -> Peer:
        moved = self.generator.random() < 0.02
        address = int.from_bytes(bytes((10, 1, ticket.job, worker)), "big") + (moved << 8)
        # The MAC address may change on the way and must not matter but for the answers.
        mac = mac_of(address ^ self.generator.randrange(2))
        return Peer(mac, packed(address), 4000 + worker)

    def _valid(self) -> bytes:
        generator = self.generator
        ticket = generator.choice(self.tickets)
        slot = generator.randrange(ticket.slots)
        round_, seen, waiting = self.state(ticket, slot)
        parent = self.parents.get(ticket.job)
        if parent is not None and generator.random() < (0.5 if waiting else 0.05):
            return self._from_above(ticket, parent, slot, round_)
        awaited = [worker for worker in range(ticket.workers) if not seen >> worker & 1]
        if not awaited:
            round_, awaited = round_ + 1, list(range(ticket.workers))
        worker = generator.choice(awaited)
        if generator.random() < 0.3:
            worker = generator.randrange(ticket.workers + (generator.random() < 0.1))
            round_ += generator.choice([0] * 8 + [-1, -1, -1, -2, 1, 2, 1 << 31, -(1 << 30)])
        if generator.random() < 0.02:
            slot = ticket.slots
        type_: int = generator.choice(
            [wire.Type.DATA] * 24
            + [wire.Type.PROBE] * 6
            + [wire.Type.JOIN] * 2
            + [wire.Type.CONFLICT]
        )
        everything = (1 << ticket.lanes) - 1
        present = generator.choice([0, 1, everything, everything, generator.getrandbits(16)])
        if generator.random() < 0.98:
            present &= everything
        if type_ in (wire.Type.PROBE, wire.Type.JOIN) and generator.random() < 0.98:
            present = 0
        opcode_dtype = self._opcode_dtype(slot, round_)
        if generator.random() < 0.02:
            type_ = generator.randrange(16)
        afflux = HEADER.pack(
            (wire.VERSION + (generator.random() < 0.02)) << 4 | type_,
            opcode_dtype,
            ticket.job + (8 if generator.random() < 0.01 else 0),
            worker,
            slot,
            present,
            round_ & 0xFFFF_FFFF,
            ticket.key ^ (generator.random() < 0.01),
            generator.choice([7] * 30 + [8]),
        )
        return self._framed(afflux + self._body(present), self._peer(ticket, worker))

    def _opcode_dtype(self, slot: int, round_: int) -> int:
        generator = self.generator
        opcode = generator.choice([0] * 30 + [1, 2, 3, 4, 15])
        return opcode << 4 | generator.choice([1] * 20 + [0, 9])

    def _from_above(self, ticket: JobTicket, parent: Parent, slot: int, round_: int) -> bytes:
        """Return what a parent sends to the parent port of a job, or something much like it."""
        generator = self.generator

        def wrong(right: int, other: int) -> int:
            return other if generator.random() < 0.02 else right

        type_ = generator.choice(
            [wire.Type.RESULT] * 16 + [wire.Type.CONFLICT, wire.Type.JOINED, wire.Type.MISSING]
        )
        everything = (1 << ticket.lanes) - 1
        present = generator.choice([0, everything, generator.getrandbits(16) & everything])
        if type_ is wire.Type.JOINED:
            present = wrong(0, 1)
        round_ += generator.choice([0] * 12 + [-1, -2, 1, 1 << 31])
        afflux = HEADER.pack(
            wrong(wire.VERSION, 2) << 4 | wrong(type_, wire.Type.DATA),
            wrong(wire.Opcode.SUM, 7) << 4 | wire.Dtype.FLOAT32,
            wrong(parent.job, ticket.job),
            wrong(parent.worker, wire.EVERYONE),
            wrong(slot, ticket.slots),
            wrong(present, generator.getrandbits(16)),
            round_ & 0xFFFF_FFFF,
            wrong(0, 1) ^ parent.key,
            7,
        )
        mac, address, port = parent.endpoint
        above = wire.PORT + 1 + wrong(ticket.job, generator.randrange(12))
        peer = Peer(mac, packed(wrong(address, address + 1)), wrong(port, port + 1))
        return self._framed(afflux + self._body(HEADER.unpack(afflux)[5]), peer, above)

    def _body(self, present: int) -> bytes:
        """Words, and blocks for the lanes in present."""
        numbers = np.random.default_rng(self.generator.getrandbits(32))
        count = present.bit_count()
        blocks = numbers.integers(-(2**31), 2**31, (count, 64)).astype(np.int32)
        if self.generator.random() < 0.5:
            blocks = numbers.choice(_INTERESTING, (count, 64))
        words = numbers.integers(0, 2**32, 16).astype(np.uint32)
        words[numbers.random(16) < 0.3] = wire.ABSENT
        return words.tobytes() + blocks.tobytes()

    def _framed(self, payload: bytes, peer: Peer, port: int = wire.PORT) -> bytes:
        engine = Peer(ENGINE_MAC, packed(ENGINE_ADDRESS), port)
        frame = pack_frame(peer, engine, payload, checked=False)
        return sealed(frame) if self.generator.random() < 0.15 else frame

    def _mutated(self, frame: bytes) -> bytes:
        generator = self.generator
        what = generator.randrange(5)
        if what == 0:
            return cut(generator, frame, least=0)
        if what == 1:
            return extended(generator, frame, generator.randrange(1, 300))
        changed = bytearray(frame)
        flip_bits(generator, changed, (1, 1, 2), lambda: HEADERS_BYTES if what < 4 else len(frame))
        # In some, what stands behind the checksum is looked at too.
        return with_ip_checksum(bytes(changed)) if what == 2 else bytes(changed)
