"""Every case of docs/protocol.md section 5.3, with its counter, its state and what is sent."""

import copy
import itertools
import re

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import (
    ABSENT_WORDS,
    CONFLICT,
    DATA,
    MAX,
    MIN,
    MISSING,
    PROBE,
    RESULT,
    SUM,
    UMIN,
    Endpoint,
    Packet,
    as_block,
    build_frame,
    parse_packet,
)
from afflux_sim.golden.merge import combine
from tests.support.checkout import ROOT
from tests.support.golden_job import ENGINE, FIRST_ROUND, JOB, KEY, new_job

SLOT = 1
R0 = FIRST_ROUND


class Rig:
    """A job, and packets to it by worker and round; `change` is what the last one counted."""

    def __init__(self, workers: int = 2, lanes: int = 3, first_round: int = R0) -> None:
        self.engine, members = new_job(
            workers=workers, lanes=lanes, slots=2, first_round=first_round
        )
        self.endpoints: list[Endpoint] = [member.endpoint for member in members]
        self.change: dict[str, int] = {}

    def send(self, type_: int, worker: int, round_: int, **fields) -> list[Packet]:
        packet = Packet(
            type=type_,
            job=JOB,
            key=KEY,
            worker=worker,
            slot=SLOT,
            round=round_ % 2**32,
            **{"words": ABSENT_WORDS} | fields,
        )
        before = dict(self.engine.counters)
        frame = build_frame(self.endpoints[worker], ENGINE, packet)
        sent = self.engine.receive(frame)
        after = self.engine.counters
        self.change = {n: after[n] - before[n] for n in after if after[n] != before[n]}
        assert self.change.pop("frames_in") == 1
        assert self.change.pop("frames_out", 0) == len(sent)
        assert self.change.pop("bytes_in") == len(frame)
        assert self.change.pop("bytes_out", 0) == sum(map(len, sent))
        return [self._checked(frame) for frame in sent]

    def data(self, worker: int, round_: int, **fields) -> list[Packet]:
        return self.send(DATA, worker, round_, **fields)

    def probe(self, worker: int, round_: int) -> list[Packet]:
        return self.send(PROBE, worker, round_)

    def complete(self, round_: int) -> None:
        for worker in range(len(self.endpoints)):
            self.data(worker, round_, blocks={0: as_block([round_ % 1000 + worker])})

    @property
    def slot(self):
        return self.engine.slot(JOB, SLOT)

    def _checked(self, frame: bytes) -> Packet:
        """Return the packet of a frame that went to its worker's own endpoint."""
        packet = parse_packet(frame)
        there = self.endpoints[packet.worker]
        seen = Ether(frame)
        assert (seen[IP].dst, seen[UDP].dport) == (there.address, there.port)
        assert frame[0:6] == there.mac
        assert (packet.job, packet.key, packet.slot) == (JOB, KEY, SLOT)
        return packet


@pytest.fixture
def rig() -> Rig:
    return Rig()


def assert_untouched(rig: Rig, type_: int, worker: int, round_: int, counter: str) -> None:
    before = copy.deepcopy(rig.slot)
    assert rig.send(type_, worker, round_) == []
    assert rig.change == {counter: 1}
    assert repr(rig.slot) == repr(before)


def test_first_state(rig):
    assert (rig.slot.round, rig.slot.seen) == ((R0 - 1) % 2**32, 0b11)


def test_data_opens_adds_and_completes(rig):
    words = tuple(range(16))
    assert rig.data(1, R0, blocks={0: as_block([5]), 2: as_block([7])}, words=words) == []
    assert rig.change == {"accepted": 1, "blocks_accepted": 2}
    assert (rig.slot.round, rig.slot.seen) == (R0, 0b10)
    version = rig.slot.versions[R0 & 1]
    assert (version.present, version.words) == (0b101, words)

    others = tuple(range(16))[::-1]
    results = rig.data(0, R0, blocks={0: as_block([6]), 1: as_block([9])}, words=others)
    assert rig.change == {"accepted": 1, "blocks_accepted": 2, "rounds": 1}
    assert [(p.type, p.worker, p.round) for p in results] == [(RESULT, 0, R0), (RESULT, 1, R0)]
    for packet in results:
        assert {lane: block[0] for lane, block in packet.blocks.items()} == {0: 11, 1: 9, 2: 7}
        assert packet.words == tuple(min(i, 15 - i) for i in range(16))


def test_words_are_compared_unsigned(rig):
    rig.data(0, R0, words=(0x80000000,) * 16)
    (packet, _) = rig.data(1, R0, words=(0x7FFFFFFF, 0xFFFFFFFF) * 8)
    assert packet.words == (0x7FFFFFFF, 0x80000000) * 8


def test_opening_forgets_the_round_before_the_last(rig):
    for worker in (0, 1):
        rig.data(worker, R0, blocks={0: as_block([1]), 1: as_block([1])}, words=(0,) * 16)
    rig.complete(R0 + 1)
    rig.data(0, R0 + 2, blocks={1: as_block([3])})
    (packet, _) = rig.data(1, R0 + 2)
    assert {lane: block[0] for lane, block in packet.blocks.items()} == {1: 3}
    assert packet.words == ABSENT_WORDS


def test_data_one_ahead_of_an_incomplete_round_is_premature(rig):
    rig.data(0, R0)
    assert_untouched(rig, DATA, 0, R0 + 1, "premature")
    assert_untouched(rig, DATA, 1, R0 + 1, "premature")


def test_data_seen_before(rig):
    rig.data(0, R0)
    assert_untouched(rig, DATA, 0, R0, "duplicates")
    rig.data(1, R0)
    (replay,) = rig.data(0, R0)
    assert (replay.type, replay.worker, replay.round) == (RESULT, 0, R0)
    assert rig.change == {"duplicates": 1, "replays": 1}


def test_data_of_the_round_before_is_answered_with_its_result(rig):
    rig.complete(R0)
    rig.data(0, R0 + 1, blocks={0: as_block([99])})
    (replay,) = rig.data(1, R0, blocks={0: as_block([12345])})
    assert (replay.worker, replay.round) == (1, R0)
    assert replay.blocks[0][0] == 2 * (R0 % 1000) + 1
    assert rig.change == {"duplicates": 1, "replays": 1}
    assert rig.slot.seen == 0b01


@pytest.mark.parametrize(
    ("distance", "counter"),
    [
        (2, "premature"),
        (3, "premature"),
        (2**31 - 1, "premature"),
        (2**31, "stale"),
        (-3, "stale"),
        (-2, "stale"),
    ],
)
@pytest.mark.parametrize("type_", [DATA, PROBE])
@pytest.mark.parametrize("complete", [False, True])
def test_far_rounds(rig, distance, counter, type_, complete):
    rig.data(0, R0)
    if complete:
        rig.data(1, R0)
    assert_untouched(rig, type_, 1, R0 + distance, counter)


def test_probe_of_a_complete_round(rig):
    rig.complete(R0)
    (replay,) = rig.probe(1, R0)
    assert (replay.type, replay.worker, replay.round) == (RESULT, 1, R0)
    assert rig.change == {"probes": 1, "replays": 1}


def test_probe_of_the_round_before(rig):
    rig.complete(R0)
    rig.data(0, R0 + 1)
    (replay,) = rig.probe(1, R0)
    assert (replay.worker, replay.round) == (1, R0)
    assert rig.change == {"probes": 1, "replays": 1}


def test_probe_of_an_incomplete_round_tells_who_is_in():
    rig = Rig(workers=64)
    for worker in (0, 31, 32, 63):
        rig.data(worker, R0)
    (answer,) = rig.probe(5, R0)
    assert (answer.type, answer.worker, answer.round) == (MISSING, 5, R0)
    assert answer.words == (0x80000001, 0x80000001, R0) + (0,) * 13
    assert rig.change == {"probes": 1}


def test_probe_of_the_next_round_tells_that_nobody_is_in(rig):
    rig.complete(R0)
    (answer,) = rig.probe(1, R0 + 1)
    assert (answer.type, answer.round) == (MISSING, R0 + 1)
    assert answer.words == (0, 0, R0) + (0,) * 13
    assert rig.change == {"probes": 1}


def test_probe_one_ahead_of_an_incomplete_round_is_premature(rig):
    rig.data(0, R0)
    assert_untouched(rig, PROBE, 0, R0 + 1, "premature")


@pytest.mark.parametrize("field", ["opcode", "dtype", "operation"])
def test_a_difference_makes_a_conflict_and_the_next_round_starts_afresh(rig, field):
    rig.data(0, R0, blocks={0: as_block([1])})
    results = rig.data(1, R0, blocks={0: as_block([2])}, **{field: 1})
    assert [p.type for p in results] == [CONFLICT, CONFLICT]
    assert [getattr(p, field) for p in results] == [0, 0]
    assert rig.change == {"accepted": 1, "blocks_accepted": 1, "rounds": 1, "conflicts": 1}
    # The packet's own opcode: MAX where the second came with it.
    assert results[0].blocks[0][0] == (2 if field == "opcode" else 3)
    assert [p.type for p in rig.probe(1, R0)] == [CONFLICT]
    # Both versions: the other one, and the one that held the conflict.
    for round_ in (R0 + 1, R0 + 2):
        rig.complete(round_)
        assert rig.change == {"accepted": 1, "blocks_accepted": 1, "rounds": 1}
        assert [p.type for p in rig.probe(1, round_)] == [RESULT]


def test_one_worker_completes_every_round_by_itself():
    rig = Rig(workers=1)
    for round_ in range(R0, R0 + 5):
        (result,) = rig.data(0, round_, blocks={0: as_block([4])}, opcode=MIN, operation=3)
        assert (result.round, result.blocks[0][0]) == (round_ % 2**32, 4)
        assert (result.opcode, result.operation) == (MIN, 3)


def test_slots_and_jobs_are_apart():
    rig = Rig()
    rig.engine.create_job(
        3, key=1, workers=1, lanes=1, slot_base=9, slot_count=1, round=0, credit=1
    )
    rig.complete(R0)
    assert rig.engine.slot(JOB, 0).round == (R0 - 1) % 2**32
    assert rig.engine.slot(3, 0).round == 2**32 - 1


def test_rounds_wrap():
    for first_round in (2**31 - 1, 2**31, 2**32 - 1, 0):
        rig = Rig(first_round=first_round)
        for round_ in range(first_round, first_round + 4):
            rig.complete(round_)
            assert rig.change["rounds"] == 1


@pytest.mark.parametrize(
    ("opcode", "expected", "overflows"),
    [
        (SUM, [3, -2, -(2**31), 2**31 - 1, 0, -1], 3),
        (MAX, [2, -1, 2**31 - 1, -1, -(2**31), 2**31 - 1], 0),
        (MIN, [1, -1, 1, -(2**31), -(2**31), -(2**31)], 0),
        (UMIN, [1, -1, 1, -(2**31), -(2**31), 2**31 - 1], 0),
    ],
)
def test_opcodes(opcode, expected, overflows):
    a = as_block([1, -1, 2**31 - 1, -(2**31), -(2**31), 2**31 - 1])
    b = as_block([2, -1, 1, -1, -(2**31), -(2**31)])
    for x, y in ((a, b), (b, a)):
        result, count = combine(opcode, x, y)
        assert result.tolist()[:6] == expected
        assert result.dtype == np.int32
        assert count == overflows

    rig = Rig()
    rig.data(0, R0, blocks={1: a}, opcode=opcode)
    # A first block is not added, so it cannot overflow.
    assert "overflows" not in rig.change
    (packet, _) = rig.data(1, R0, blocks={1: b}, opcode=opcode)
    assert packet.blocks[1].tolist()[:6] == expected
    assert rig.change.get("overflows", 0) == overflows


def test_order_of_arrival_changes_nothing():
    blocks = [as_block(np.arange(64) * 1_000_003 * (w + 1)) for w in range(3)]
    frames = set()
    for order in itertools.permutations(range(3)):
        rig = Rig(workers=3)
        for worker in order:
            sent = rig.data(worker, R0, blocks={worker % 2: blocks[worker]})
        frames.add(b"".join(packet.to_bytes() for packet in sent))
    assert len(frames) == 1


def test_results_are_not_sent_to_workers_that_have_not_joined(rig):
    # Not reachable through packets: a worker that has not joined cannot have contributed.
    rig.data(0, R0)
    del rig.engine.jobs[JOB].joined[0]
    assert [p.worker for p in rig.data(1, R0)] == [1]


def test_counters_are_those_of_the_document_and_add_up(rig):
    rig.complete(R0)
    rig.probe(0, R0 + 5)
    counters = rig.engine.counters
    assert isinstance(rig.engine, GoldenEngine)
    names = list(counters)
    one_each = names[names.index("mac_error") : names.index("parent_results") + 1]
    assert sum(counters[name] for name in one_each) == counters["frames_in"]
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    table = page[page.index("## 11. Counters") :]
    assert names == re.findall(r"^\| \d+ \| `(\w+)` \|", table, re.MULTILINE)
