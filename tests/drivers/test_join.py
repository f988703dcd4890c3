"""A worker's choice of an answer to its JOIN, packet by packet, with the clock in our hand."""

from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.support.drivers.packet_header import HEADER, Header
from tests.support.drivers.virtual_job import ticket_of


def joining(group: str = "") -> tuple[Session, _native.Join, bytes]:
    ticket = replace(ticket_of(3, 5, 7), credit=9, group=group, group_port=4701 if group else 0)
    session = Session(ticket, 1)
    join = _native.Join(session)
    (packet,) = join.open(0.0)
    return session, join, packet


def answer_to(packet: bytes, words: list[int], **changes: int) -> bytes:
    header = Header._make(HEADER.unpack_from(packet))
    joined = header._replace(version_type=wire.VERSION << 4 | wire.Type.JOINED)._replace(**changes)
    return HEADER.pack(*joined) + np.array(words + [0] * (16 - len(words)), "<u4").tobytes()


def test_the_packet():
    session, join, packet = joining()
    ticket = session.ticket
    assert Header._make(HEADER.unpack_from(packet)) == (0x22, 0, ticket.job, 1, 0, 0, 0, KEY, 0)
    assert len(packet) == wire.datagram_bytes(0)
    assert (join.sends, join.done) == (1, False)


KEY = ticket_of(1, 1, 1).key
TERMS = [3, 5, 7, 9, 0, 0]


def test_joined_with_the_terms_of_the_ticket():
    session, join, packet = joining()
    assert join.receive_bytes(answer_to(packet, TERMS), 0.25) is None
    assert join.done
    assert session.trip.smoothed_s == 0.25
    assert session.heard_at == 0.25
    assert join.next_timer == float("inf")
    session, join, packet = joining("239.1.2.3")
    # Whatever the group's key is: nobody has told it before.
    join.receive_bytes(answer_to(packet, [3, 5, 7, 9, 0xEF01_0203, 4701, 5, 6]), 0.25)
    assert join.done


def test_the_timer_repeats_it_ever_more_seldom():
    session, join, packet = joining()
    times = []
    for _ in range(6):
        now = join.next_timer
        times.append(now)
        assert join.expire(now - 1e-6) == []
        assert join.expire(now) == [packet]
    np.testing.assert_allclose(np.diff([0.0, *times]), [0.2, 0.4, 0.8, 1, 1, 1])
    assert join.sends == 7
    join.receive_bytes(answer_to(packet, TERMS), 9.0)
    assert join.done
    assert session.trip.smoothed_s == 0, "which one was answered?"


@pytest.mark.parametrize("at", range(6))
def test_a_job_with_other_terms(at):
    _, join, packet = joining()
    found = TERMS.copy()
    found[at] += 1
    with pytest.raises(_native.DifferentJob) as caught:
        join.receive_bytes(answer_to(packet, found), 0.1)
    assert list(caught.value.args[0]) == found
    assert not join.done


def test_a_refusal():
    _, join, packet = joining()
    refused = answer_to(packet, [wire.Refusal.KEY, 2], version_type=0x20 | wire.Type.REFUSED)
    with pytest.raises(_native.Refused) as caught:
        join.receive_bytes(refused, 0.1)
    assert caught.value.args == (wire.Refusal.KEY,)


@pytest.mark.parametrize("type_", [wire.Type.JOINED, wire.Type.REFUSED])
@pytest.mark.parametrize(
    "change",
    [{"version_type": 0x10}, {"job": 1}, {"worker": 0}, {"present": 1}, {"key": KEY ^ 1}],
    ids=str,
)
def test_ignores_what_is_not_its_own(change, type_):
    session, join, packet = joining()
    version_type = change.get("version_type", wire.VERSION << 4) | type_
    foreign = answer_to(packet, TERMS, **{**change, "version_type": version_type})
    assert join.receive_bytes(foreign, 0.1) is None
    assert not join.done
    assert session.statistics.ignored == 1


def test_ignores_other_types_and_lengths():
    session, join, packet = joining()
    good = answer_to(packet, TERMS)
    others = [packet, *(bytes([0x20 | type_]) + good[1:] for type_ in (0, 1, 8, 9, 10, 15))]
    for foreign in (*others, b"", good[:-1], good + b"\0", good[:22]):
        assert join.receive_bytes(foreign, 0.1) is None
        assert not join.done
    assert session.statistics.ignored == len(others) + 4
