"""Properties of every frame that a fuzzed engine sends, whatever it was sent."""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import NUMBER_MAX
from tests.scenarios.packing import HEADER, Peer, checksum

__all__ = ["Answer", "compare", "read_answer"]

DATA, JOIN, RESULT, CONFLICT = 0, 2, 8, 9
SHORT = (10, 11, 12)
EVERYONE = 255


@dataclass(frozen=True)
class Answer:
    """The header of a frame from the engine."""

    type: int
    job: int
    slot: int
    round: int
    source_port: int
    destination: Peer

    @property
    def short(self) -> bool:
        """MISSING, JOINED or REFUSED."""
        return self.type in SHORT


def read_answer(frame: bytes, engine: Peer, lanes: int) -> Answer:
    """Read a frame from the engine.

    Raises:
        AssertionError: If it is malformed, or not the engine's.
    """
    assert len(frame) >= 128, f"only {len(frame)} bytes"
    assert frame[6:12] == engine.mac and frame[12:14] == b"\x08\x00", "Ethernet header"
    ip = frame[14:34]
    assert ip[:2] == b"\x45\x00" and ip[4:10] == b"\x00\x00\x40\x00\x40\x11", "IPv4 header"
    assert checksum(ip) in (0, 0xFFFF), "IPv4 header checksum"
    source_port, port, udp_length, udp_checksum = struct.unpack_from(">HHHH", frame, 34)
    assert ip[12:16] == engine.address and udp_checksum in (0, 0xFFFF), "source"
    assert int.from_bytes(ip[2:4], "big") == len(frame) - 14 == udp_length + 20, "lengths"
    version_type, opcode, job, worker, slot, present, round_, _, _ = HEADER.unpack_from(frame, 42)
    type_ = version_type & 15
    assert version_type >> 4 == 2, f"version {version_type >> 4}"
    seal = len(frame) - 128 - 256 * present.bit_count()
    # The gateware's frames have a seal, by which their UDP checksum is right.
    assert seal == (4 if udp_checksum else 0), f"blocks and present {present:#x}"
    if seal:
        pseudo_header = ip[12:20] + struct.pack(">BBH", 0, 17, udp_length)
        assert checksum(pseudo_header + frame[34:]) in (0, 0xFFFF), "UDP checksum"
    if source_port == engine.port:
        assert type_ in (RESULT, CONFLICT, *SHORT), f"type {type_}"
    else:
        assert type_ in (DATA, JOIN, CONFLICT), f"type {type_} to the parent"
    if type_ in SHORT or type_ == JOIN:
        assert present == 0, "a short packet with blocks"
    else:
        assert present >> lanes == 0 and opcode >> 4 <= 3, f"present {present:#x}, opcode {opcode}"
    if source_port == engine.port and worker == EVERYONE and type_ not in SHORT:
        mapped = b"\x01\x00\x5e" + bytes((frame[31] & 0x7F,)) + frame[32:34]
        assert frame[30] >> 4 == 14 and frame[0:6] == mapped, "group address and MAC address"
    return Answer(type_, job, slot, round_, source_port, Peer(frame[0:6], frame[30:34], port))


def compare(
    golden: GoldenEngine,
    engine: Peer,
    lanes: int,
    sent: Sequence[bytes],
    required: Counter[bytes],
    droppable: Counter[bytes],
) -> tuple[int, int]:
    """Compare what was sent in one go with what the golden model has sent, in whatever order.

    Results of rounds that a slot has left behind by two, and partial sums of those whose result has
    come, may be overtaken while they are sent: headers count, or their absence. Of rounds whose
    blocks mean nothing headers count as well.

    Returns:
        Frames and bytes that the engine has left out, as it may.

    Raises:
        AssertionError: If anything was sent without cause, or not sent that is due.
    """
    got = Counter(sent)
    if not required - got and not got - required - droppable:
        return _left_out(got, required + droppable)
    old = _overtaken(golden, engine, lanes, {*got, *required, *droppable})
    due = Counter({frame: count for frame, count in required.items() if frame not in old})
    may = Counter({frame: count for frame, count in droppable.items() if frame not in old})
    exact = Counter({frame: count for frame, count in got.items() if frame not in old})
    lacking = due - exact
    assert not lacking, f"never sent: {_shown(lacking)}"
    extra = exact - due - may
    assert not extra, f"sent without cause: {_shown(extra)}"
    headers = _headers(got, old) - _headers(required, old) - _headers(droppable, old)
    assert not headers, f"sent without cause: {_shown(headers)}"
    return _left_out(got, required + droppable)


def _overtaken(
    golden: GoldenEngine, engine: Peer, lanes: int, frames: Iterable[bytes]
) -> Collection[bytes]:
    found = set()
    for frame in frames:
        answer = read_answer(frame, engine, lanes)
        if answer.short or answer.type == JOIN:
            continue
        up = answer.source_port != engine.port
        number = (answer.source_port - engine.port - 1) % 2**16 if up else answer.job
        job = golden.jobs[number]
        if job is None or answer.slot >= len(job.slots):
            continue
        slot = job.slots[answer.slot]
        behind = (slot.round - answer.round) % 2**32
        version = slot.versions[answer.round & 1]
        means_nothing = version.conflict and version.contributions and version.opcode < NUMBER_MAX
        if (up and (behind or not slot.waiting)) or behind not in (0, 1) or means_nothing:
            found.add(frame)
    return found


def _headers(frames: Counter[bytes], chosen: Collection[bytes]) -> Counter[bytes]:
    headers: Counter[bytes] = Counter()
    for frame, count in frames.items():
        if frame in chosen:
            headers[frame[:64]] += count
    return headers


def _left_out(got: Counter[bytes], caused: Counter[bytes]) -> tuple[int, int]:
    def size(frames: Counter[bytes]) -> int:
        return sum(len(frame) * count for frame, count in frames.items())

    return caused.total() - got.total(), size(caused) - size(got)


def _shown(frames: Counter[bytes]) -> list[str]:
    return [f"{count} × {frame[:96].hex(' ', 4)}" for frame, count in list(frames.items())[:4]]
