"""Captures of `docs/vectors`, read as a stranger would: by scapy, and from the page alone.

Checks what stands on the wire without our own code: addresses, checksums and lengths of every
frame, and that every result holds the sums, the least words and the union of what was contributed.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from tests.checks.number_sums import check_numbers
from tests.scenarios.afflux_layer import TYPES, Afflux, block_size, blocks_of

__all__ = ["Vector", "check_capture", "read_vectors"]

HEADERS = 14 + 20 + 8
GROUP_MAC = "01:00:5e:"


@dataclass
class Vector:
    """One conversation: its frames, and what the index says of it."""

    frames: list[bytes]
    about: dict[str, Any]

    def arrives(self, number: int) -> bool:
        """Return whether the frame of this number, from 1, was not lost."""
        return number not in self.about["lost"]

    def is_foreign(self, number: int) -> bool:
        """Return whether no worker of the job would send the frame of this number."""
        return number in self.about["foreign"]

    def goes_up(self, frame: bytes) -> bool:
        """Return whether a frame goes to the aggregator."""
        return frame[0:6].hex(":") == self.about["aggregator"]["mac"]

    def goes_to_parent(self, frame: bytes) -> bool:
        """Return whether a frame goes to the aggregator above."""
        parent = self.about["parent"]
        return bool(parent) and frame[0:6].hex(":") == parent["mac"]

    def comes_from_parent(self, frame: bytes) -> bool:
        """Return whether a frame comes from the aggregator above."""
        parent = self.about["parent"]
        return bool(parent) and frame[6:12].hex(":") == parent["mac"]


def check_key(vector: Vector, packet: Afflux, other: tuple[str, str, int], where: str) -> None:
    """Check that a packet has job, key and worker of its job here, or of the parent's."""
    about = vector.about
    parent = about["parent"]
    if parent and other == place(parent):
        assert (packet.job, packet.worker) == (parent["job"], parent["worker"]), where
        assert packet.key == int(parent["key"], 16), where
        return
    key = int(about["key"] if packet.worker != 255 else about["group"]["key"], 16)
    assert (packet.job, packet.key) == (about["job"], key), where
    if packet.worker != 255:
        assert other == place(about["members"][packet.worker]), f"{where}: worker"


def read_vectors(folder: Path) -> list[Vector]:
    """Return the vectors of a folder, with frames as scapy reads them."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    assert index["format"] == 1
    vectors = []
    for about in index["vectors"]:
        frames = [bytes(packet) for packet in rdpcap(str(folder / about["file"]))]
        assert len(frames) == about["frames"]
        vectors.append(Vector(frames, about))
    return vectors


@dataclass
class Round:
    """The contributions to one round of one slot.

    `blocks` has sums of words, once the round is full, or what the parent has sent for it;
    `numbers` what was sent of numbers, by lane.
    """

    opcode: int
    words: list[int]
    blocks: dict[int, list[int]] = field(default_factory=dict)
    numbers: dict[int, list[list[int]]] = field(default_factory=dict)
    workers: set[int] = field(default_factory=set)
    first: tuple[int, int, int] = (0, 0, 0)
    conflict: bool = False
    from_parent: bool = False

    def add(self, packet: Afflux) -> None:
        """Add the contribution of a worker that has not contributed yet."""
        call = (packet.operation, packet.opcode, packet.dtype)
        if not self.workers:
            self.first = call
        self.conflict |= call != self.first
        self.workers.add(packet.worker)
        self.words = list(map(min, self.words, packet.words))
        for lane, block in blocks_of(packet).items():
            if packet.opcode >= 4:
                self.numbers.setdefault(lane, []).append(block)
            elif lane in self.blocks:
                pairs = zip(self.blocks[lane], block, strict=True)
                self.blocks[lane] = [combined(packet.opcode, a, b) for a, b in pairs]
            else:
                self.blocks[lane] = block

    def check_blocks(self, packet: Afflux, before: "Round | None", workers: int) -> None:
        """Check the blocks of a result, or of a partial sum, of this round."""
        if self.opcode < 4 or self.from_parent:
            assert blocks_of(packet) == self.blocks, "sums"
            return
        assert before is not None and set(blocks_of(packet)) == set(self.numbers), "lanes"
        for lane, block in blocks_of(packet).items():
            exponent = 255 - before.words[lane] % 256
            result = packet.dtype, block
            check_numbers(self.opcode, exponent, self.numbers[lane], workers, result, self.first[2])


def combined(opcode: int, a: int, b: int) -> int:
    """Return what opcode 0 (SUM), 1 (MAX) or 2 (MIN) makes of two int32."""
    if opcode == 0:
        return (a + b + 2**31) % 2**32 - 2**31
    return max(a, b) if opcode == 1 else min(a, b)


def check_capture(vector: Vector) -> None:
    """Check every frame of a vector.

    Raises:
        AssertionError: A frame is wrong; names its number.
    """
    rounds: dict[tuple[int, int], Round] = {}
    from_above: dict[tuple[int, int], bytes] = {}
    for number in range(1, len(vector.frames) + 1):
        where = f"{vector.about['name']}, frame {number}"
        packet = dissected(vector, number, where)
        if vector.comes_from_parent(vector.frames[number - 1]) and TYPES[packet.type] == "RESULT":
            # Whether it arrives or not: the parent sends a result again as it was.
            same = from_above.setdefault((packet.slot, packet.round), bytes(packet))
            assert bytes(packet) == same, f"{where}: another result"
        if vector.is_foreign(number) or not vector.arrives(number):
            continue
        kind = TYPES.get(packet.type)
        here = (packet.slot, packet.round)
        if kind == "DATA" and vector.goes_to_parent(vector.frames[number - 1]):
            check_result(packet, "RESULT", rounds, vector.about["workers"], where)
        elif kind == "DATA":
            current = rounds.setdefault(here, Round(packet.opcode, [2**32 - 1] * 16))
            if packet.worker not in current.workers:
                current.add(packet)
        elif kind in ("RESULT", "CONFLICT") and vector.goes_up(vector.frames[number - 1]):
            # The parent's: what the workers get next.
            rounds[here].words, rounds[here].blocks = packet.words, blocks_of(packet)
            rounds[here].from_parent = True
        elif kind in ("RESULT", "CONFLICT"):
            check_result(packet, kind, rounds, vector.about["workers"], where)
        elif kind == "JOINED" and not vector.goes_up(vector.frames[number - 1]):
            about = vector.about
            told = [about["workers"], about["lanes"], about["slots"], about["credit"]]
            assert packet.words[:4] == told, where


def check_result(
    packet: Afflux, kind: str, rounds: dict[tuple[int, int], Round], workers: int, where: str
) -> None:
    """Check that a result, or a partial sum, is what was contributed to its round."""
    current = rounds[packet.slot, packet.round]
    before = rounds.get((packet.slot, (packet.round - 1) % 2**32))
    assert current.workers == set(range(workers)), f"{where}: the round is not full"
    assert kind == ("CONFLICT" if current.conflict else "RESULT"), where
    # Partial sums have 8 more than the dtype of their numbers, but for two of float32.
    dtype = packet.dtype if packet.dtype < 8 else {12: 1, 13: 1}.get(packet.dtype, packet.dtype - 8)
    assert (packet.operation, packet.opcode, dtype) == current.first, where
    assert packet.words == current.words, f"{where}: words"
    try:
        current.check_blocks(packet, before, workers)
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from None


def dissected(vector: Vector, number: int, where: str) -> Afflux:
    """Return the packet of the frame of this number, whose headers are right."""
    frame, about = vector.frames[number - 1], vector.about
    ether = Ether(frame)
    ip, udp = ether[IP], ether[UDP]
    assert bytes(ether) == frame, where
    assert ether.type == 0x0800 and ip.version == 4 and ip.ihl == 5 and ip.proto == 17, where
    assert ip.flags == "DF" and ip.frag == 0, where
    assert ip.len == len(frame) - 14 and udp.len == len(frame) - 34, f"{where}: lengths"
    if udp.chksum:
        # Only who is to be refused has one, and what has a seal: the aggregators' frames.
        sealed = udp.chksum == 0xFFFF
        aggregators = [about["aggregator"], *filter(None, [about["parent"]])]
        assert sealed == (ether.src in [place(each)[0] for each in aggregators]), where
        assert sealed or vector.is_foreign(number), where
        summed = Ether(frame)
        del summed[UDP].chksum
        assert bytes(summed) == frame, f"{where}: UDP checksum"
    assert IP(bytes(ip)[:20]).chksum == right_checksum(bytes(ip)[:20]), f"{where}: checksum"
    packet = udp[Afflux]
    seal = 4 if udp.chksum == 0xFFFF else 0
    size = block_size(packet) * packet.present.bit_count()
    assert len(frame) == HEADERS + 86 + size + seal, f"{where}: lengths"
    ends = (ether.src, ip.src, udp.sport), (ether.dst, ip.dst, udp.dport)
    engine = place(about["aggregator"])
    others = [place(each) for each in about["members"]]
    if about["parent"]:
        others.append(place(about["parent"]))
        if others[-1] in ends:
            engine = (*engine[:2], (engine[2] + 1 + about["job"]) % 2**16)
    up = ends[1] == engine
    member = ends[0] if up else ends[1]
    assert up or ends[0] == engine, f"{where}: neither from nor to the aggregator"
    if about["group"] and packet.worker == 255:
        group = about["group"]
        assert member[0].startswith(GROUP_MAC), where
        assert member[1:] == (group["address"], group["port"]), where
    else:
        assert member in others, f"{where}: {member}"
    # A refusal repeats what was wrong.
    if not vector.is_foreign(number) and TYPES[packet.type] != "REFUSED":
        assert packet.version == Afflux().version, where
        check_key(vector, packet, member, where)
    return packet


def place(end: dict[str, Any]) -> tuple[str, str, int]:
    """Return MAC address, IPv4 address and port of an end in the index."""
    return end["mac"], end["address"], end["port"]


def right_checksum(header: bytes) -> int:
    """Return the checksum that belongs into an IPv4 header of 20 bytes."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2) if i != 10)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
