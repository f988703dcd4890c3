"""Every case of docs/protocol.md section 5.6: a parent above, one frame at a time."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import (
    ABSENT_WORDS,
    CONFLICT,
    DATA,
    ELEMENTS,
    JOIN,
    JOINED,
    MISSING,
    PROBE,
    REFUSED,
    RESULT,
    Endpoint,
    GroupAddress,
    Packet,
    as_block,
    build_frame,
    parse_packet,
)
from afflux_sim.golden.state import Parent
from tests.scenarios.packing import with_udp_checksum
from tests.support.golden_job import ENGINE, FIRST_ROUND, JOB, KEY, new_engine

R0 = FIRST_ROUND
SLOT, SLOTS, LANES = 1, 2, 3
PARENT_KEY = 0x0123456789ABCDEF
PARENT = Parent(Endpoint(bytes.fromhex("02affa0000fe"), "10.0.9.9", 4799), 5, 6, PARENT_KEY)
# The job's side towards its parent.
PARENT_PORT = Endpoint(ENGINE.mac, ENGINE.address, ENGINE.port + 1 + JOB)
OWN_PORT = ENGINE


class Rig:
    """A leaf whose workers have joined; `change` is what the last frame counted."""

    def __init__(self, workers: int = 2, parent: Parent | None = PARENT, **options: Any) -> None:
        self.engine = new_engine()
        self.engine.create_job(
            JOB,
            key=KEY,
            workers=workers,
            lanes=LANES,
            slot_base=4,
            slot_count=SLOTS,
            round=R0,
            credit=2,
            parent=parent,
            **options,
        )
        self.workers = workers
        self.change: dict[str, int] = {}
        for worker in range(workers):
            self.send(JOIN, worker, 0)

    def endpoint(self, worker: int) -> Endpoint:
        return Endpoint(bytes([2, 0, 0, 0, 0, worker]), f"10.0.1.{1 + worker}", 50000)

    def give(self, frame: bytes) -> list[bytes]:
        before = dict(self.engine.counters)
        sent = self.engine.receive(frame)
        after = self.engine.counters
        self.change = {n: after[n] - before[n] for n in after if after[n] != before[n]}
        assert self.change.pop("frames_in") == 1
        assert self.change.pop("bytes_in") == len(frame)
        assert self.change.pop("frames_out", 0) == len(sent)
        assert self.change.pop("bytes_out", 0) == sum(map(len, sent))
        return sent

    def send(self, type_: int, worker: int, round_: int, **fields: Any) -> list[bytes]:
        """Send a frame of a worker."""
        common: dict[str, Any] = {
            "job": JOB,
            "key": KEY,
            "worker": worker,
            "slot": SLOT,
            "words": ABSENT_WORDS,
        }
        packet = Packet(type=type_, round=round_ % 2**32, **common | fields)
        return self.give(build_frame(self.endpoint(worker), OWN_PORT, packet))

    def data(self, worker: int, round_: int, **fields: Any) -> list[bytes]:
        return self.send(DATA, worker, round_, **fields)

    def fill(self, round_: int, **fields: Any) -> Packet:
        """All workers contribute to a round; the partial sum that goes up."""
        for worker in range(self.workers):
            sent = self.data(worker, round_, blocks={0: as_block([worker + 1])}, **fields)
        (frame,) = sent
        return parse_packet(frame)

    def down(self, type_: int, round_: int, source: Endpoint = PARENT.endpoint, **fields: Any):
        """Send a frame of the parent."""
        return self.give(build_frame(source, PARENT_PORT, from_parent(type_, round_, **fields)))

    def complete(self, round_: int) -> None:
        self.fill(round_)
        self.down(RESULT, round_)
        assert self.change["rounds"] == 1

    @property
    def slot(self):
        return self.engine.slot(JOB, SLOT)


def from_parent(type_: int, round_: int, **fields: Any) -> Packet:
    common: dict[str, Any] = {
        "job": PARENT.job,
        "key": PARENT.key,
        "worker": PARENT.worker,
        "slot": SLOT,
        "words": ABSENT_WORDS,
    }
    return Packet(type=type_, round=round_ % 2**32, **common | fields)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def assert_untouched(rig: Rig, send, counter: str) -> None:
    before = copy.deepcopy(rig.engine.jobs)
    assert send() == []
    assert rig.change == {counter: 1}
    assert repr(rig.engine.jobs) == repr(before)


def assert_goes_up(frame: bytes) -> Packet:
    """Check that the frame is the job's own, from its parent port to its parent."""
    seen = Ether(frame)
    assert bytes.fromhex(seen.dst.replace(":", "")) == PARENT.endpoint.mac
    assert bytes.fromhex(seen.src.replace(":", "")) == ENGINE.mac
    assert (seen[IP].src, seen[IP].dst) == (ENGINE.address, PARENT.endpoint.address)
    assert (seen[UDP].sport, seen[UDP].dport) == (PARENT_PORT.port, PARENT.endpoint.port)
    packet = parse_packet(frame)
    assert (packet.job, packet.worker, packet.key) == (5, 6, PARENT_KEY)
    return packet


# Join.


def test_joins_its_parent(rig):
    before = rig.engine.counters["frames_out"]
    packet = assert_goes_up(rig.engine.join_parent(JOB))
    assert packet.to_bytes() == Packet(type=JOIN, job=5, worker=6, key=PARENT_KEY).to_bytes()
    assert rig.engine.counters["frames_out"] == before + 1
    assert not rig.engine.has_joined_parent(JOB)
    assert rig.down(JOINED, 0, slot=999) == []
    assert rig.change == {"joins": 1}
    assert rig.engine.has_joined_parent(JOB)


def test_no_join_without_a_parent():
    with pytest.raises(ValueError):
        Rig(parent=None).engine.join_parent(JOB)
    with pytest.raises(ValueError):
        new_engine().join_parent(JOB)


def test_a_new_create_must_join_again(rig):
    rig.down(JOINED, 0)
    again = Rig()
    assert not again.engine.has_joined_parent(JOB)


# Up.


def test_partial_sum_goes_up_when_all_are_in(rig):
    words = tuple(range(16))
    assert rig.data(1, R0, blocks={0: as_block([5])}, words=words, opcode=1, operation=9) == []
    blocks = {0: as_block([6]), 2: as_block([7])}
    (frame,) = rig.data(0, R0, blocks=blocks, words=words[::-1], opcode=1, operation=9)
    assert rig.change == {"accepted": 1, "blocks_accepted": 2}
    packet = assert_goes_up(frame)
    assert (packet.type, packet.slot, packet.round) == (DATA, SLOT, R0)
    assert (packet.opcode, packet.dtype, packet.operation) == (1, 0, 9)
    assert packet.words == tuple(min(i, 15 - i) for i in range(16))
    assert {lane: block[0] for lane, block in packet.blocks.items()} == {0: 6, 2: 7}
    assert (rig.slot.seen, rig.slot.waiting) == (0b11, True)


def test_one_worker_sends_every_contribution_up():
    rig = Rig(workers=1)
    (frame,) = rig.data(0, R0)
    assert assert_goes_up(frame).round == R0
    assert rig.slot.waiting


def test_duplicate_while_waiting_goes_up_again(rig):
    (first,) = [rig.data(worker, R0) for worker in (0, 1)][1]
    for worker in (0, 1):
        assert rig.data(worker, R0) == [first]
        assert rig.change == {"duplicates": 1, "replays": 1}
    assert rig.slot.waiting


def test_duplicate_before_all_are_in_does_not_go_up(rig):
    rig.data(0, R0)
    assert_untouched(rig, lambda: rig.data(0, R0), "duplicates")


def test_probe_while_waiting_tells_that_all_are_in(rig):
    rig.fill(R0)
    (frame,) = rig.send(PROBE, 1, R0)
    packet = parse_packet(frame)
    assert (packet.type, packet.worker, packet.words[:3]) == (MISSING, 1, (0b11, 0, R0))
    assert rig.change == {"probes": 1}


@pytest.mark.parametrize("type_", [DATA, PROBE, CONFLICT])
def test_next_round_while_waiting_is_premature(rig, type_):
    rig.fill(R0)
    assert_untouched(rig, lambda: rig.send(type_, 0, R0 + 1), "premature")


@pytest.mark.parametrize("type_", [DATA, PROBE])
def test_round_before_is_replayed_while_waiting(rig, type_):
    rig.complete(R0)
    rig.fill(R0 + 1)
    (frame,) = rig.send(type_, 1, R0)
    assert (parse_packet(frame).type, parse_packet(frame).round) == (RESULT, R0)
    assert rig.change["replays"] == 1


def test_conflict_among_the_workers_goes_up(rig):
    rig.data(0, R0, operation=1)
    (frame,) = rig.data(1, R0, operation=2)
    packet = assert_goes_up(frame)
    assert (packet.type, packet.operation) == (CONFLICT, 1)
    assert rig.change == {"accepted": 1}
    # Its parent has the last word.
    rig.down(RESULT, R0)
    assert rig.change == {"parent_results": 1, "rounds": 1}


@pytest.mark.parametrize("first", [0, 1])
def test_conflict_of_a_child_makes_a_conflict(first):
    rig = Rig(parent=None)
    types = {0: CONFLICT, 1: DATA}
    rig.send(types[first], first, R0, blocks={0: as_block([1])})
    sent = rig.send(types[1 - first], 1 - first, R0, blocks={0: as_block([1])})
    assert [parse_packet(frame).type for frame in sent] == [CONFLICT] * 2
    assert parse_packet(sent[0]).blocks[0][0] == 2
    assert rig.change == {"accepted": 1, "blocks_accepted": 1, "rounds": 1, "conflicts": 1}
    # Duplicates of it are duplicates, and the next round of the version is a clean one.
    (replay,) = rig.send(CONFLICT, 0, R0)
    assert (parse_packet(replay).type, rig.change["duplicates"]) == (CONFLICT, 1)
    for round_ in (R0 + 1, R0 + 2):
        sent = [rig.data(worker, round_) for worker in (0, 1)][1]
        assert [parse_packet(frame).type for frame in sent] == [RESULT] * 2


# Down.


def test_result_is_taken_and_goes_to_the_workers(rig):
    rig.fill(R0, opcode=2, operation=3)
    blocks = {1: as_block(range(ELEMENTS)), 2: as_block([-1])}
    words = tuple(range(100, 116))
    sent = rig.down(RESULT, R0, blocks=blocks, words=words, opcode=0, operation=99, dtype=7)
    assert rig.change == {"parent_results": 1, "rounds": 1}
    for worker, frame in enumerate(sent):
        packet = parse_packet(frame)
        assert (packet.type, packet.worker, packet.job, packet.key) == (RESULT, worker, JOB, KEY)
        # Of the version, not of the parent's frame.
        assert (packet.opcode, packet.dtype, packet.operation) == (2, 0, 3)
        assert (packet.round, packet.words) == (R0, words)
        assert {n: b.tolist() for n, b in packet.blocks.items()} == {
            n: b.tolist() for n, b in blocks.items()
        }
        assert frame[34:36] == ENGINE.port.to_bytes(2, "big")
    assert len(sent) == 2
    assert not rig.slot.waiting
    # Asked for again, it comes again.
    assert rig.data(1, R0) == [sent[1]]
    assert rig.send(PROBE, 0, R0) == [sent[0]]
    # And now the next round may open.
    rig.fill(R0 + 1)


def test_conflict_comes_down(rig):
    rig.fill(R0)
    sent = rig.down(CONFLICT, R0)
    assert [parse_packet(frame).type for frame in sent] == [CONFLICT] * 2
    assert rig.change == {"parent_results": 1, "rounds": 1, "conflicts": 1}


def test_result_goes_to_the_group():
    group = GroupAddress("239.129.2.3", 4701)
    rig = Rig(group=group)
    rig.fill(R0)
    (frame,) = rig.down(RESULT, R0)
    seen = Ether(frame)
    assert (seen.dst, seen[IP].dst, seen[UDP].dport) == ("01:00:5e:01:02:03", group.address, 4701)
    assert parse_packet(frame).worker == 255


def test_result_that_comes_twice(rig):
    rig.fill(R0)
    rig.down(RESULT, R0)
    assert_untouched(rig, lambda: rig.down(RESULT, R0), "duplicates")
    rig.data(0, R0 + 1)
    assert_untouched(rig, lambda: rig.down(RESULT, R0), "duplicates")
    rig.data(1, R0 + 1)
    assert_untouched(rig, lambda: rig.down(RESULT, R0), "duplicates")


@pytest.mark.parametrize(
    ("distance", "counter"),
    [
        (1, "premature"),
        (2, "premature"),
        (2**31 - 1, "premature"),
        (2**31, "stale"),
        (-2, "stale"),
        (-1, "duplicates"),
    ],
)
@pytest.mark.parametrize("type_", [RESULT, CONFLICT])
@pytest.mark.parametrize("phase", ["open", "waiting", "complete"])
def test_rounds_of_results(rig, distance, counter, type_, phase):
    rig.complete(R0)
    rig.data(0, R0 + 1)
    if phase != "open":
        rig.data(1, R0 + 1)
    if phase == "complete":
        rig.down(RESULT, R0 + 1)
    assert_untouched(rig, lambda: rig.down(type_, R0 + 1 + distance), counter)


def test_result_of_an_open_round_is_premature(rig):
    rig.data(0, R0)
    assert_untouched(rig, lambda: rig.down(RESULT, R0), "premature")


@pytest.mark.parametrize("distance", [0, -1])
def test_results_before_the_first_round_are_stale(rig, distance):
    assert_untouched(rig, lambda: rig.down(RESULT, R0 - 1 + distance), "stale")
    rig.data(0, R0)
    assert_untouched(rig, lambda: rig.down(RESULT, R0 - 1), "stale")


# Checks. In the order of the table; a frame's content of the later ones does not matter.

WRONG_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("bad_type", {"type_": DATA}),
    ("bad_type", {"type_": PROBE}),
    ("bad_type", {"type_": JOIN}),
    ("bad_type", {"type_": MISSING}),
    ("bad_type", {"type_": REFUSED}),
    ("bad_type", {"opcode": 7}),
    ("bad_job", {"job": JOB}),
    ("bad_key", {"key": KEY}),
    ("bad_key", {"key": PARENT_KEY ^ 1 << 63}),
    ("bad_worker", {"worker": 5}),
    ("bad_worker", {"worker": 255}),
    ("bad_address", {"source": replace(PARENT.endpoint, address="10.0.9.8")}),
    ("bad_address", {"source": replace(PARENT.endpoint, port=4700)}),
    ("bad_slot", {"slot": SLOTS}),
    ("bad_present", {"blocks": {LANES: as_block([])}}),
]


@pytest.mark.parametrize("at", range(len(WRONG_FIELDS)), ids=lambda at: str(WRONG_FIELDS[at]))
def test_wrong_fields(rig, at):
    rig.fill(R0)
    counter, wrong = WRONG_FIELDS[at]
    fields = {"type_": RESULT} | wrong
    assert_untouched(rig, lambda: rig.down(round_=R0, **fields), counter)
    # The rest is wrong too, but for what this line checks.
    later = [change for name, change in WRONG_FIELDS[at + 1 :] if name != counter]
    for change in reversed(later):
        fields = change | fields
    assert_untouched(rig, lambda: rig.down(round_=R0, **fields), counter)


def test_joined_has_checks_of_its_own(rig):
    assert_untouched(rig, lambda: rig.down(JOINED, 0, blocks={0: as_block([])}), "bad_present")
    wrong = replace(PARENT.endpoint, port=1)
    assert_untouched(rig, lambda: rig.down(JOINED, 0, source=wrong), "bad_address")


def test_parents_mac_address_is_not_checked(rig):
    rig.fill(R0)
    rig.down(RESULT, R0, source=replace(PARENT.endpoint, mac=bytes(6)))
    assert rig.change["parent_results"] == 1


def test_other_jobs_parent_ports_are_not_this_jobs(rig):
    rig.fill(R0)
    frame = bytearray(build_frame(PARENT.endpoint, PARENT_PORT, from_parent(RESULT, R0)))
    counters = {JOB - 1: "bad_job", JOB + 1: "bad_job", -1: "bad_type", 8: "not_ours"}
    for number, counter in counters.items():
        frame[36:38] = (ENGINE.port + 1 + number).to_bytes(2, "big")
        assert rig.give(bytes(frame)) == []
        assert rig.change == {counter: 1}


def test_a_job_without_a_parent_takes_nothing_from_above():
    rig = Rig(parent=None)
    assert_untouched(rig, lambda: rig.down(RESULT, R0), "bad_job")
    assert_untouched(rig, lambda: rig.down(JOINED, R0), "bad_job")


def test_workers_cannot_speak_to_the_parent_port(rig):
    packet = Packet(type=DATA, job=JOB, key=KEY, slot=SLOT, round=R0)
    frame = build_frame(rig.endpoint(0), PARENT_PORT, packet)
    assert_untouched(rig, lambda: rig.give(frame), "bad_type")


def test_results_are_not_taken_at_the_own_port(rig):
    rig.fill(R0)
    frame = build_frame(PARENT.endpoint, OWN_PORT, from_parent(RESULT, R0))
    assert_untouched(rig, lambda: rig.give(frame), "bad_type")


def test_another_version_is_refused_at_the_parent_port_too(rig):
    packet = replace(from_parent(JOIN, R0), version=1)
    join = with_udp_checksum(build_frame(PARENT.endpoint, PARENT_PORT, packet))
    (frame,) = rig.give(join)
    assert (parse_packet(frame).type, rig.change) == (REFUSED, {"bad_version": 1})
    packet = replace(from_parent(RESULT, R0), version=1)
    frame = build_frame(PARENT.endpoint, PARENT_PORT, packet)
    assert_untouched(rig, lambda: rig.give(frame), "bad_version")


def test_the_parents_ports_go_round_behind_the_last_one() -> None:
    """*port + 1 + j* modulo 2¹⁶: a JOIN from there, and JOINED to there."""
    here = replace(ENGINE, port=2**16 - 1)
    engine = GoldenEngine(mac=here.mac, address=here.address, port=here.port)
    engine.create_job(
        JOB, key=KEY, workers=1, lanes=LANES, slot_base=4, slot_count=SLOTS, round=R0, credit=2,
        parent=PARENT,
    )  # fmt: skip
    assert Ether(engine.join_parent(JOB))[UDP].sport == JOB
    answer = Packet(type=JOINED, job=PARENT.job, worker=PARENT.worker, key=PARENT_KEY)
    engine.receive(build_frame(PARENT.endpoint, replace(here, port=JOB), answer))
    assert engine.counters["joins"] == 1 and engine.has_joined_parent(JOB)
