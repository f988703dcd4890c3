"""Every row of the table in docs/protocol.md section 5.2, alone and with rows below it."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from afflux_sim.golden.frames import (
    COUNTERS,
    HEADER,
    JOIN,
    JOINED,
    PROBE,
    REFUSED,
    GroupAddress,
    parse_packet,
)
from afflux_sim.golden.job_table import CommandRefused
from tests.support.golden_job import ENGINE, FIRST_ROUND, JOB, KEY, new_engine, new_job

WORKERS, LANES, SLOTS = 3, 5, 2
GOOD: dict[str, Any] = {
    "dst": "02:af:fa:00:00:01",
    "ether_type": 0x0800,
    "ip_dst": ENGINE.address,
    "source": "10.1.2.2",
    "sport": 50001,
    "dport": ENGINE.port,
    "version": 2,
    "type": 0,
    "opcode": 0,
    "job": JOB,
    "worker": 1,
    "slot": 1,
    "present": 0b10001,
    "round": FIRST_ROUND,
    "key": KEY,
}

# In the order of the table. A row's ways of going wrong exclude each other.
ROWS: list[tuple[str, list[dict[str, Any]]]] = [
    ("mac_error", [{"mac_error": True}]),
    (
        "not_ours",
        [
            {"cut": 63},
            {"cut": 10},
            {"cut": 0},
            {"dst": "02:af:fa:00:00:02"},
            {"dst": "ff:ff:ff:ff:ff:ff"},
            {"ether_type": 0x0806},
            {"ether_type": 0x8100},
            {"ip_version": 6},
            {"proto": 6},
            {"ip_dst": "10.0.0.8"},
        ],
    ),
    (
        "bad_ip",
        [
            {"ihl": 6},
            {"ihl": 4},
            {"source": "0.0.0.0"},
            {"source": "0.1.2.3"},
            {"source": "224.0.0.1"},
            {"source": "240.0.0.1"},
            {"source": "255.255.255.255"},
            {"src": "ff:ff:ff:ff:ff:ff"},
            {"src": "01:00:5e:00:00:01"},
            {"flags": "MF"},
            {"flags": "evil"},
            {"frag": 1},
            {"frag": 0x1FFF},
            {"ip_checksum_off": 1},
        ],
    ),
    ("not_ours", [{"dport": ENGINE.port - 1}, {"dport": ENGINE.port + 9}, {"dport": 0}]),
    (
        "bad_length",
        [
            {"extra": b"\0"},
            {"extra": b"\0" * 256},
            {"ip_len_off": 1},
            {"ip_len_off": -1},
            {"udp_len_off": 4},
            {"cut": 639},
            {"cut": 64},
            {"cut": 384},
            {"blocks": 1},
            {"blocks": 3},
        ],
    ),
    ("bad_checksum", [{"udp_checksum_off": 1}, {"udp_checksum_off": 0x100}]),
    ("bad_version", [{"version": 0}, {"version": 1}, {"version": 15}]),
    ("bad_type", [{"type": 3}, {"type": 8}, {"type": 15}, {"opcode": 7}, {"opcode": 15}]),
    ("bad_job", [{"job": 1}, {"job": 8}, {"job": 255}]),
    ("bad_key", [{"key": KEY ^ 1}, {"key": KEY ^ 1 << 63}, {"key": 0}]),
    ("bad_worker", [{"worker": 3}, {"worker": 255}]),
    (
        "bad_address",
        [{"worker": 2}, {"source": "10.1.2.3"}, {"sport": 50002}],
    ),
    ("bad_slot", [{"slot": 2}, {"slot": 65535}]),
    ("bad_present", [{"present": 0b100001}, {"present": 0x8000}, {"type": PROBE}]),
]


def craft(**changes: Any) -> bytes:
    """Return a frame made by scapy, right in everything but what `changes` say."""
    f = GOOD | changes
    header = HEADER.pack(
        f["version"] << 4 | f["type"],
        f["opcode"] << 4 | 1,
        f["job"],
        f["worker"],
        f["slot"],
        f["present"],
        f["round"],
        f["key"],
        0,
    )
    blocks = f.get("blocks", f["present"].bit_count())
    ip = IP(src=f["source"], dst=f["ip_dst"], flags=f.get("flags", "DF"), frag=f.get("frag", 0))
    ip.proto = f.get("proto", 17)
    ip.version = f.get("ip_version", 4)
    ip.ihl = f.get("ihl", 5)
    frame = Ether(src=f.get("src", "02:00:0a:01:02:01"), dst=f["dst"], type=f["ether_type"]) / ip
    frame /= UDP(sport=f["sport"], dport=f["dport"])
    frame /= Raw(header + bytes(64) + bytes(range(256)) * blocks)
    # The value that scapy computes is taken over, then put off by as much as asked for.
    seen = IP(raw_ip(frame))
    udp_length = len(frame[UDP])
    frame[IP].len = 20 + udp_length + f.get("ip_len_off", 0)
    frame[UDP].len = udp_length + f.get("udp_len_off", 0)
    frame[UDP].chksum = (seen[UDP].chksum + f.get("udp_checksum_off", 0)) & 0xFFFF
    frame[IP].chksum = IP(raw_ip(frame)).chksum ^ f.get("ip_checksum_off", 0)
    made = frame.build() + f.get("extra", b"")
    return made[: f.get("cut", len(made))]


def raw_ip(frame: Ether) -> bytes:
    """Return the IPv4 datagram as scapy makes it, parsed as plain IPv4 to read its checksums."""
    plain = frame[IP].copy()
    header = plain.build()
    plain.version, plain.ihl, plain.proto, plain.frag = 4, 5, 17, 0
    parsed = bytearray(plain.build())
    parsed[10:12] = header[10:12]
    return bytes(parsed)


def join(engine, worker: int) -> None:
    frame = craft(
        type=JOIN, worker=worker, present=0, source=f"10.1.2.{1 + worker}", sport=50000 + worker
    )
    engine.receive(frame)


def engine_with_a_job():
    """Workers 0 and 1 of three have joined."""
    engine = new_engine()
    engine.create_job(
        JOB,
        key=KEY,
        workers=WORKERS,
        lanes=LANES,
        slot_base=0,
        slot_count=SLOTS,
        round=FIRST_ROUND,
        credit=4,
    )
    join(engine, 0)
    join(engine, 1)
    assert engine.counters["joins"] == 2
    return engine


def counted(engine, frame: bytes, mac_error: bool = False) -> tuple[dict[str, int], list[bytes]]:
    """Return what a frame adds to the counters, but for bytes, and what it causes to be sent."""
    before = dict(engine.counters)
    sent = engine.receive(frame, mac_error)
    grown = {
        name: engine.counters[name] - before[name]
        for name in COUNTERS
        if engine.counters[name] != before[name]
    }
    assert grown.pop("bytes_in", 0) == len(frame)
    assert grown.pop("bytes_out", 0) == sum(map(len, sent))
    return grown, sent


def assert_dropped(changes: dict[str, Any], counter: str) -> None:
    engine = engine_with_a_job()
    state = pickle.dumps(engine.jobs)
    mac_error = changes.pop("mac_error", False)
    grown, sent = counted(engine, craft(**changes), mac_error)
    assert grown == {"frames_in": 1, counter: 1}
    assert sent == []
    assert pickle.dumps(engine.jobs) == state


def test_the_good_frame_is_accepted():
    grown, sent = counted(engine_with_a_job(), craft())
    assert grown == {"frames_in": 1, "accepted": 1, "blocks_accepted": 2}
    assert sent == []


@pytest.mark.parametrize(
    ("counter", "changes"),
    [
        pytest.param(counter, changes, id=f"{counter}-{next(iter(changes.items()))}")
        for counter, ways in ROWS
        for changes in ways
    ],
)
def test_each_fault_alone(counter, changes):
    assert_dropped(dict(changes), counter)


@given(
    st.lists(
        st.one_of(st.none(), st.integers(0, 99)), min_size=len(ROWS), max_size=len(ROWS)
    ).filter(any)
)
def test_of_several_faults_the_first_row_counts(choices):
    faults = [
        (counter, ways[choice % len(ways)])
        for (counter, ways), choice in zip(ROWS, choices, strict=True)
        if choice is not None
    ]
    changes: dict[str, Any] = {}
    # Rows that change the same field cannot both be wrong: the earlier one stays.
    for _, fault in reversed(faults):
        if "present" in changes and "blocks" in fault and fault is not faults[0][1]:
            continue
        changes |= fault
    # Lengths are wrong for as many blocks as the good frame has.
    if faults[0][0] == "bad_length":
        changes.pop("present", None)
    changes.setdefault("blocks", changes.get("present", GOOD["present"]).bit_count())
    assert_dropped(changes, faults[0][0])


def test_zero_checksum_is_not_verified():
    engine = engine_with_a_job()
    frame = bytearray(craft())
    frame[40:42] = b"\0\0"
    assert counted(engine, bytes(frame))[0]["accepted"] == 1


def test_what_routers_change_is_not_checked():
    engine = engine_with_a_job()
    frame = Ether(craft())
    frame.src = "02:99:99:99:99:99"
    frame[IP].ttl, frame[IP].tos, frame[IP].id, frame[IP].flags = 3, 0xB8, 999, 0
    del frame[IP].chksum
    assert counted(engine, frame.build())[0]["accepted"] == 1


def test_other_dtypes_than_those_named_are_opaque():
    engine = engine_with_a_job()
    frame = bytearray(craft())
    frame[43] = 0x0F
    frame[40:42] = b"\0\0"
    assert counted(engine, bytes(frame))[0]["accepted"] == 1
    assert engine.slot(JOB, 1).versions[FIRST_ROUND & 1].dtype == 15


@pytest.mark.parametrize(
    ("counter", "changes", "cause"),
    [
        ("bad_version", {"version": 1}, 1),
        ("bad_version", {"version": 1, "job": 1, "key": 0, "worker": 9}, 1),
        ("bad_version", {"version": 0, "present": 1}, 1),
        ("bad_job", {"job": 1, "key": 0, "worker": 9}, 2),
        ("bad_job", {"job": 200}, 2),
        ("bad_key", {"key": 5, "worker": 9}, 3),
        ("bad_worker", {"worker": 3}, 4),
        ("bad_worker", {"worker": 3, "present": 1}, 4),
    ],
)
def test_refused_joins(counter, changes, cause):
    engine = engine_with_a_job()
    frame = craft(**{"type": JOIN, "present": 0, "round": 77, "slot": 9} | changes)
    grown, sent = counted(engine, frame)
    assert grown == {"frames_in": 1, counter: 1, "frames_out": 1}
    (answer,) = sent
    assert_answers(answer, frame, REFUSED, (cause, 2))


@pytest.mark.parametrize("changes", [{"present": 1}, {"present": 0x8000}])
def test_a_join_with_blocks_is_dropped(changes):
    assert_dropped({"type": JOIN} | changes, "bad_present")


@pytest.mark.parametrize(
    ("changes", "counter"),
    [
        ({"extra": b"x"}, "bad_length"),
        ({"udp_checksum_off": 1}, "bad_checksum"),
        ({"opcode": 7}, "bad_type"),
        ({"version": 1, "extra": b"x"}, "bad_length"),
        ({"version": 1, "cut": 64}, "bad_length"),
        ({"version": 1, "udp_checksum_off": 1}, "bad_checksum"),
    ],
)
def test_a_join_that_is_no_packet_is_not_answered(changes, counter):
    assert_dropped({"type": JOIN, "present": 0} | changes, counter)


@pytest.mark.parametrize(
    ("counter", "changes"),
    [
        ("bad_version", {"version": 1}),
        ("bad_job", {"job": 1}),
        ("bad_key", {"key": 5}),
        ("bad_worker", {"worker": 3}),
    ],
)
def test_a_join_without_a_checksum_is_not_refused(counter, changes):
    """It is dropped: what is wrong in it may be damage."""
    engine = engine_with_a_job()
    frame = bytearray(craft(**{"type": JOIN, "present": 0} | changes))
    frame[40:42] = b"\0\0"
    assert counted(engine, bytes(frame)) == ({"frames_in": 1, counter: 1}, [])


def test_joined():
    engine = engine_with_a_job()
    # Slot, round and the rest of the header mean nothing in a JOIN, and come back.
    frame = craft(type=JOIN, worker=2, present=0, slot=999, round=5, opcode=3, source="10.1.2.3")
    grown, sent = counted(engine, frame)
    assert grown == {"frames_in": 1, "joins": 1, "frames_out": 1}
    (answer,) = sent
    assert_answers(answer, frame, JOINED, (WORKERS, LANES, SLOTS, 4))


def test_a_later_join_replaces_the_address():
    engine = engine_with_a_job()
    moved = {"source": "10.9.9.9", "sport": 1234}
    assert counted(engine, craft(type=JOIN, present=0, **moved))[0]["joins"] == 1
    assert counted(engine, craft())[0] == {"frames_in": 1, "bad_address": 1}
    assert counted(engine, craft(**moved))[0]["accepted"] == 1


@pytest.mark.parametrize("elsewhere", [{"source": "10.9.9.9"}, {"sport": 1234}])
@pytest.mark.parametrize("may_move", [False, True])
def test_once_a_job_has_started_its_workers_stay(elsewhere, may_move):
    engine = engine_with_a_job()
    engine.jobs[JOB].may_move = may_move
    away = craft(type=JOIN, present=0, **elsewhere)
    here = craft(type=JOIN, present=0)
    # Neither a JOIN nor a PROBE starts it.
    for frame in (away, here, craft(type=PROBE, present=0), craft(type=JOIN, present=0)):
        engine.receive(frame)
    assert counted(engine, craft())[0]["accepted"] == 1
    grown, (answer,) = counted(engine, away)
    if may_move:
        assert grown["joins"] == 1
        assert_answers(answer, away, JOINED, (WORKERS, LANES, SLOTS, 4))
        return
    assert grown == {"frames_in": 1, "bad_address": 1, "frames_out": 1}
    assert_answers(answer, away, REFUSED, (5, 2))
    # Without a checksum it may be damaged, and is dropped.
    damaged = away[:40] + bytes(2) + away[42:]
    assert counted(engine, damaged) == ({"frames_in": 1, "bad_address": 1}, [])
    # It is where it was, may say so again, and a worker that has not joined yet may come from
    # anywhere.
    again = bytearray(here)
    again[6:12] = b"\x02other"
    for frame in (bytes(again), craft(type=JOIN, worker=2, present=0, source="10.8.8.8")):
        assert counted(engine, frame)[0]["joins"] == 1
    assert engine.jobs[JOB].joined[1].mac == b"\x02other"
    assert counted(engine, craft(**elsewhere))[0] == {"frames_in": 1, "bad_address": 1}


def test_results_go_to_the_mac_address_of_the_join():
    engine, _ = new_job(workers=1, lanes=LANES, slots=SLOTS)
    frame = bytearray(craft(worker=0, source="10.1.2.1", sport=50000))
    frame[6:12] = b"\x02router"[:6]
    (result,) = engine.receive(bytes(frame))
    assert result[0:6] == bytes([2, 0, 0, 0, JOB, 0])


def test_a_destroyed_job_is_gone():
    engine = engine_with_a_job()
    engine.destroy_job(JOB)
    assert counted(engine, craft())[0] == {"frames_in": 1, "bad_job": 1}


def test_a_new_create_forgets_the_workers():
    engine = engine_with_a_job()
    engine.create_job(
        JOB, key=KEY, workers=3, lanes=5, slot_base=0, slot_count=2, round=0, credit=4
    )
    assert counted(engine, craft())[0] == {"frames_in": 1, "bad_address": 1}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"job": 8}, 2),
        ({"workers": 0}, 3),
        ({"workers": 65}, 3),
        ({"lanes": 0}, 4),
        ({"lanes": 17}, 4),
        ({"slot_count": 0}, 5),
        ({"slot_base": 511}, 5),
        ({"slot_base": 1, "job": 3}, 6),
        ({"group": GroupAddress("223.255.255.255", 1)}, 7),
    ],
)
def test_create_refuses_what_the_engine_was_not_built_for(wrong, reason):
    engine = engine_with_a_job()
    right = {"key": 1, "workers": 2, "lanes": 2, "slot_base": 8, "slot_count": 2}
    given_ = {"job": 0, "round": 0, "credit": 2} | right | wrong
    with pytest.raises(CommandRefused) as caught:
        engine.create_job(given_.pop("job"), **given_)
    assert caught.value.reason == reason
    assert engine.jobs[0] is None


def test_joins_to_a_parent_that_nobody_can_send():
    engine = engine_with_a_job()
    for job, reason in ((8, 2), (0, 8), (JOB, 9)):
        with pytest.raises(CommandRefused) as caught:
            engine.join_parent(job)
        assert caught.value.reason == reason


def assert_answers(answer: bytes, asked: bytes, type_: int, words: tuple[int, ...]) -> None:
    """Check that a short answer goes back to the asker with its header but for three fields."""
    there, back = Ether(asked), Ether(answer)
    assert (back.dst, back.src) == (there.src, there.dst)
    assert (back[IP].dst, back[IP].src) == (there[IP].src, there[IP].dst)
    assert (back[UDP].dport, back[UDP].sport) == (there[UDP].sport, there[UDP].dport)
    assert len(answer) == 128 + 4, "a short answer and its seal"
    assert answer[42] == 0x20 | type_
    assert answer[43:48] == asked[43:48]
    assert answer[48:50] == b"\0\0"
    assert answer[50:64] == asked[50:64]
    assert parse_packet(answer).words == words + (0,) * (16 - len(words))
