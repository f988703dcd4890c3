"""The packets that a worker accepts, repeats and refuses, one by one, by a clock of the test."""

from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.errors import AggregatorMisbehaved, Disagreement
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.checks.accept_rule import check_accepts_only_its_own_round
from tests.support.drivers.packet_header import HEADER
from tests.support.drivers.single_rank import (
    F32,
    LANES,
    Rank,
    answer_to,
    header_of,
    result_of_opening,
    to_everyone,
)
from tests.support.drivers.virtual_job import GROUP_KEY, ticket_of


def result_of_next(datagram: bytes) -> bytes:
    """Return the result of a round that both lanes contribute to; row 1 comes next."""
    result = answer_to(datagram, wire.Type.RESULT, [0x1_00 | 60, 0x1_00 | 60, *[wire.ABSENT] * 14])
    return HEADER.pack(*header_of(result)._replace(present=3)) + result[22:] + bytes(512)


def test_opening_packet():
    rank = Rank()
    (datagram,) = rank.opening
    header = header_of(datagram)
    assert header == (
        0x20,
        0x01,
        rank.session.ticket.job,
        1,
        0,
        1,
        rank.session.ticket.round,
        rank.session.ticket.key,
        0,
    )
    words = np.frombuffer(datagram, "<u4", 16, wire.HEADER_BYTES).tolist()
    # The greatest elements of blocks 0 and 1 are 64 = 2**6 and 128 = 2**7.
    assert words == [255 - (127 + 6), 255 - (127 + 7)] + [wire.ABSENT] * 14
    block = np.frombuffer(datagram, "<u4", 64, wire.datagram_bytes(0))
    assert block[1] == rank.operation.description.fingerprint
    assert not block[[0, *range(2, 64)]].any()


def test_contribution_after_a_result():
    rank = Rank()
    answer = rank.receive(result_of_opening(rank.opening[0]))
    assert answer is not None
    header = header_of(answer)
    assert header.round == (rank.session.ticket.round + 1) & 0xFFFF_FFFF
    assert header.present == 3
    # The tensor's own bytes.
    assert np.frombuffer(answer, "<f4", 128, wire.datagram_bytes(0)).tolist() == [*range(1, 129)]


@pytest.mark.parametrize(
    "change",
    [
        {"version_type": 0x18},
        {"version_type": 0x20},
        {"version_type": 0x2C},
        {"version_type": 0x2B},
        {"opcode_dtype": 0x02},
        {"job": 1},
        {"worker": 0},
        {"worker": 2},
        {"slot": 1},
        {"slot": 0xFFFF},
        {"key": 0x0123_4567_89AB_CDEE},
        {"operation": 1},
        {"operation": 0xFFFF},
        {"present": 3},
        {"present": 0},
        *({"round": (0xFFFF_FFFD + step) & 0xFFFF_FFFF} for step in (-2, -1, 1, 2, 1 << 31)),
    ],
    ids=str,
)
def test_accepts_nothing_but_its_own_round_of_its_own_operation(change):
    check_accepts_only_its_own_round(change)


def test_results_for_everyone_count_in_a_group_only():
    alone = Rank()
    result = to_everyone(result_of_opening(alone.opening[0]))
    assert alone.receive(result) is None
    assert alone.ignored() == 1
    rank = Rank(group="239.1.2.3")
    assert rank.receive(result) is not None
    assert rank.ignored() == 0
    # Replays come to the worker itself, and another worker's are not for it.
    rank = Rank(group="239.1.2.3")
    assert rank.receive(result_of_opening(rank.opening[0])) is not None
    for worker in (0, 2, 254):
        rank = Rank(group="239.1.2.3")
        header = header_of(result)._replace(worker=worker)
        assert rank.receive(HEADER.pack(*header) + result[wire.HEADER_BYTES :]) is None
    rank = Rank(group="239.1.2.3")
    missing = answer_to(rank.opening[0], wire.Type.MISSING, [0b101, 0, 0, *[0] * 13])
    assert rank.receive(to_everyone(missing)) is None
    assert rank.ignored() == 1


def test_the_key_of_the_group_is_good_for_its_results_alone():
    rank = Rank(group="239.1.2.3")
    good = result_of_opening(rank.opening[0])
    job_key = header_of(good).key
    for wrong in (job_key, 0, GROUP_KEY ^ 1, GROUP_KEY ^ 1 << 63):
        assert rank.receive(to_everyone(good, wrong)) is None
    with_group_key = header_of(good)._replace(key=GROUP_KEY)
    assert rank.receive(HEADER.pack(*with_group_key) + good[wire.HEADER_BYTES :]) is None
    conflict = answer_to(rank.opening[0], wire.Type.CONFLICT, [0] * 16)
    assert rank.receive(to_everyone(conflict, job_key)) is None
    assert rank.ignored() == 6
    assert rank.session.heard_at == 0.0
    assert rank.receive(to_everyone(good)) is not None


def test_ignores_lengths_that_do_not_fit():
    rank = Rank()
    good = result_of_opening(rank.opening[0])
    lengths = [0, 1, 21, 22, 85, 86, len(good) - 1, len(good) - 256]
    for length in lengths:
        assert rank.receive(good[:length]) is None
    for extra in (1, 256):
        assert rank.receive(good + bytes(extra)) is None
    assert rank.ignored() == len(lengths) + 2
    assert rank.receive(good) is not None


def test_ignores_the_same_result_twice():
    rank = Rank()
    good = result_of_opening(rank.opening[0])
    assert rank.receive(good) is not None
    assert rank.receive(good) is None
    assert rank.ignored() == 1


def test_timer_probes_ever_more_seldom():
    rank = Rank()
    times, sent = [], []
    for _ in range(8):
        now = rank.operation.next_timer
        times.append(now)
        assert rank.expire(now - 1e-6) == []
        *joins, datagram = rank.expire(now)
        sent.append(datagram)
        # Its address may be another one by now.
        assert [header_of(each).version_type & 0xF for each in joins] == (
            [wire.Type.JOIN] if now - times[0] >= 1.0 else []
        )
    for probe in sent:
        assert len(probe) == wire.datagram_bytes(0)
        want = header_of(rank.opening[0])._replace(version_type=0x21, present=0)
        assert header_of(probe) == want
    waits = np.diff([0.0, *times])
    np.testing.assert_allclose(waits, [0.2, 0.4, 0.8, 1, 1, 1, 1, 1])
    statistics = rank.session.statistics
    assert (statistics.retransmissions, statistics.probes) == (0, 8)
    assert statistics.blocks_sent == 1


def next_probe(rank: Rank) -> tuple[float, bytes]:
    """When the rank asks next, and what it sends. Its timer may run out for nothing."""
    for _ in range(3):
        now = rank.operation.next_timer
        sent = rank.expire(now)
        if sent:
            (probe,) = sent
            return now, probe
    raise AssertionError("no probe")


def probed(rank: Rank) -> bytes:
    return next_probe(rank)[1]


def test_missing_without_own_bit_repeats_the_contribution():
    rank = Rank()
    probe = probed(rank)
    missing = answer_to(probe, wire.Type.MISSING, [0b101, 0, 0, *[0] * 13])
    assert rank.receive(missing, 1.0) == rank.opening[0]
    assert rank.operation.missing_ranks() == ()


def test_missing_with_own_bit_names_the_others():
    rank = Rank()
    probe = probed(rank)
    missing = answer_to(probe, wire.Type.MISSING, [0b010, 0, 0, *[0] * 13])
    assert rank.receive(missing, 1.0) is None
    assert rank.operation.missing_ranks() == (0, 2)
    assert rank.session.heard_at == 1.0
    now, probe = next_probe(rank)
    assert 1.0 < now <= 2.0
    missing = answer_to(probe, wire.Type.MISSING, [0b110, 0, 0, *[0] * 13])
    assert rank.receive(missing, now + 0.1) is None
    assert rank.operation.missing_ranks() == (0,)


def test_missing_of_nobody_repeats_the_contribution_and_leaves_the_timer():
    """The aggregator waits for its parent, and its partial sum may be lost."""
    rank = Rank()
    probe = probed(rank)
    some = answer_to(probe, wire.Type.MISSING, [0b011, 0, 0, *[0] * 13])
    assert rank.receive(some, 1.0) is None
    assert not rank.operation.waits_above()
    ordinary = rank.operation.next_timer - 1.0
    rank = Rank()
    probe = probed(rank)
    nobody = answer_to(probe, wire.Type.MISSING, [0b111, 0, 0, *[0] * 13])
    before = rank.session.statistics.retransmissions
    for number in range(1, 4):
        # Once for each answer, and no sooner again than after any other answer.
        assert rank.receive(nobody, 1.0) == rank.opening[0]
        assert rank.session.statistics.retransmissions == before + number
        assert rank.operation.next_timer - 1.0 == pytest.approx(ordinary)
    assert rank.operation.missing_ranks() == ()
    assert rank.operation.waits_above()
    assert rank.receive(some, 1.0) is None
    assert not rank.operation.waits_above()


def test_ranks_of_a_tree_have_numbers_of_their_own():
    """Rank 7 of 9 is worker 1 of this aggregator: headers have the worker, all else the rank."""
    ticket = replace(ticket_of(3, LANES, 1), members=(4, 7, 1), ranks=9)
    session = Session(ticket, 7)
    operation = Operation(session, np.ones(1000, np.float32), F32, Reduction.SUM, (1000,))
    (opening,) = operation.open(0.0)
    assert header_of(opening).worker == 1
    (join,) = _native.Join(session).open(0.0)
    assert header_of(join).worker == 1
    block = np.frombuffer(opening, "<u4", 64, wire.datagram_bytes(0))
    assert np.flatnonzero(block).tolist() == [7]
    missing = answer_to(opening, wire.Type.MISSING, [0b010, 0, 0, *[0] * 13])
    assert operation.receive(missing, 0.1) is None
    assert operation.missing_ranks() == (1, 4)
    block = np.full(64, operation.description.fingerprint, np.uint32)
    block[8] ^= 1
    words = np.frombuffer(opening, "<u4", 16, wire.HEADER_BYTES).tolist()
    odd = answer_to(opening, wire.Type.RESULT, words, block.tobytes())
    with pytest.raises(Disagreement, match=r"rank 7 called .*ranks \[8\]"):
        operation.receive(odd, 0.1)


def test_missing_of_another_round_is_ignored():
    rank = Rank()
    probe = probed(rank)
    missing = answer_to(probe, wire.Type.MISSING, [0, 0, 0, *[0] * 13])
    header = header_of(missing)
    assert rank.receive(HEADER.pack(*header._replace(round=0)) + missing[22:]) is None
    assert rank.ignored() == 1


def test_workers_above_31_are_named_by_the_second_word():
    session = Session(ticket_of(40, LANES, 1), 35)
    operation = Operation(session, np.ones(1000, np.float32), F32, Reduction.SUM, (1000,))
    (opening,) = operation.open(0.0)
    words = [0xFFFF_FFFF & ~(1 << 3), 0xFF & ~(1 << 7), 0, *[0] * 13]
    missing = answer_to(opening, wire.Type.MISSING, words)
    assert operation.receive(missing, 0.1) is None
    assert operation.missing_ranks() == (3, 39)


def test_only_round_trips_that_measure_the_path_count():
    rank = Rank()
    rank.session.trip.sample(-0.25, 0.0)
    opening = result_of_opening(rank.opening[0])
    answer = rank.receive(opening, now=50.0)
    assert answer is not None
    assert rank.session.trip.smoothed_s == 0.25, "an opening round waits for other ranks"
    assert rank.receive(result_of_next(answer), now=50.5) is not None
    assert rank.session.trip.smoothed_s == pytest.approx(0.25 + 0.25 / 8)


def test_an_opening_round_shows_how_long_a_round_trip_is_at_most():
    rank = Rank()
    rank.receive(result_of_opening(rank.opening[0]), now=0.125)
    assert rank.session.trip.smoothed_s == 0.125


def test_what_was_probed_for_is_no_sample():
    rank = Rank()
    answer = rank.receive(result_of_opening(rank.opening[0]), now=0.125)
    assert answer is not None
    now, _ = next_probe(rank)
    assert rank.receive(result_of_next(answer), now + 0.001) is not None
    assert rank.session.trip.smoothed_s == 0.125


def test_a_packet_is_overdue_when_a_later_one_is_answered():
    rank = Rank(count=64 * LANES * 2 * 3, slots=2)
    rank.session.trip.sample(-0.001, 0.0)
    timeout, overdue = rank.session.trip.timeout_s, rank.session.trip.overdue_after_s
    assert overdue < timeout
    # Slot 0's opening round is answered, and the round after it; slot 1's is not.
    answer = rank.receive(result_of_opening(rank.opening[0]), now=0.001)
    assert answer is not None
    assert rank.expire(overdue) == []
    assert rank.receive(result_of_next(answer), now=0.002) is not None
    overdue = rank.session.trip.overdue_after_s
    now = rank.operation.next_timer
    assert overdue <= now <= 0.002 + overdue
    (probe,) = rank.expire(now)
    assert (header_of(probe).slot, header_of(probe).version_type) == (1, 0x21)
    assert rank.session.trip.timeout_s < timeout + 0.001, "it is lost, and the path not slow"
    # Once: from then on its timer counts.
    assert rank.expire(now + 1e-6) == []


def test_conflict_and_other_fingerprints_are_disagreements():
    rank = Rank()
    with pytest.raises(Disagreement) as caught:
        rank.receive(answer_to(rank.opening[0], wire.Type.CONFLICT, [0] * 16))
    assert caught.value.fingerprints is None
    assert (caught.value.number, caught.value.description) == (0, "0:sum:float32:1000")

    rank = Rank()
    good = result_of_opening(rank.opening[0])
    odd = bytearray(good)
    odd[wire.datagram_bytes(0) + 8] ^= 1
    with pytest.raises(Disagreement, match=r"ranks \[2\]") as caught:
        rank.receive(bytes(odd))
    own = caught.value.fingerprint
    assert caught.value.fingerprints == (own, own, own ^ 1)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([0x1_00 | 60, 100, *[wire.ABSENT] * 14], "not the least"),
        ([100, 0xFFFF_FE00, *[wire.ABSENT] * 14], "not the least"),
        ([100, 130, *[wire.ABSENT] * 14], "not the least"),
        ([100, wire.ABSENT, 5, *[wire.ABSENT] * 13], "not in use"),
        ([100, wire.ABSENT, *[wire.ABSENT] * 14], "not the least"),
    ],
)
def test_words_that_no_aggregator_may_send(words, what):
    rank = Rank()
    with pytest.raises(AggregatorMisbehaved, match=what):
        rank.receive(result_of_opening(rank.opening[0], words))


def test_blocks_that_no_aggregator_may_send():
    rank = Rank()
    opening = result_of_opening(rank.opening[0])
    answer = rank.receive(opening)
    assert answer is not None
    words = np.frombuffer(answer, "<u4", 16, wire.HEADER_BYTES).tolist()
    for present in (0, 1, 2):
        rank = Rank()
        answer = rank.receive(opening)
        assert answer is not None
        result = (
            HEADER.pack(*header_of(answer)._replace(version_type=0x28, present=present))
            + np.array(words, "<u4").tobytes()
        )
        with pytest.raises(AggregatorMisbehaved, match="0x0003 were agreed on"):
            rank.receive(result + bytes(256 * present.bit_count()))

    rank = Rank()
    with pytest.raises(AggregatorMisbehaved, match="fingerprints are missing"):
        rank.receive(answer_to(rank.opening[0], wire.Type.RESULT, [100] * 16))


def test_blocks_in_an_opening_round_of_another_slot():
    rank = Rank(slots=2)
    assert header_of(rank.opening[1]).slot == 1
    header = header_of(rank.opening[1])._replace(version_type=0x28, present=1)
    with pytest.raises(AggregatorMisbehaved, match="slot 1"):
        rank.receive(HEADER.pack(*header) + rank.opening[1][22:] + bytes(256))


def test_no_result_before_the_end():
    with pytest.raises(RuntimeError, match="0:sum:float32:1000 is not over"):
        Rank().operation.result()
