"""Ranks that are written from `docs/streams.md` alone, and an aggregator: sums, and refusals."""

import hashlib
import hmac
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product

import pytest

from afflux_drivers.aggregator.access import Access
from tests.support.drivers.raw_stream import RawStream, place
from tests.support.host.aggregators import streams_aggregator

SECRET = b"0123456789abcdef"
KEY = hmac.digest(SECRET, b"afflux streams 1: aggregator", hashlib.sha256)[:16]
NAME = "7/aggregator/0"
RANKS = 3
CALL, CONTRIBUTION, RESULT = 1, 2, 3
SUM, INT32, FLOAT32 = 0, 0, 1
ACCEPTED, OCCUPIED, OTHER_PLACE = 0, 1, 3
HEAD = struct.Struct("<IIIBBBB")
BLOCK = 64


@pytest.fixture
def endpoint() -> Iterator[tuple[str, int]]:
    with streams_aggregator(access=Access(secret=SECRET)) as url:
        host, _, port = url.removeprefix("streams://").rpartition(":")
        yield host, int(port)


def claimed(links: int = 1, connecting: int = 0, link: int = 0, **changed: int) -> bytes:
    numbers = {"ranks": RANKS, "accepting": RANKS, "sources": 1} | changed
    return place(
        NAME, numbers["ranks"], links, connecting, numbers["accepting"], link,
        number=connecting, sources=numbers["sources"],
    )  # fmt: skip


def message(operation: int, kind: int, payload: bytes, piece: int = 0, bitmaps: int = 0) -> bytes:
    return HEAD.pack(len(payload), operation, piece, kind, bitmaps, 0, 0) + payload


def call(operation: int, count: int, dtype: int, fingerprint: int = 5) -> bytes:
    text = struct.pack("<QQQBBBBI", count, fingerprint, 0, 0, dtype, SUM, 0, 0)
    return message(operation, CALL, text)


def results(raw: RawStream, operation: int, sizes: Sequence[int]) -> bytes:
    """Return the part that results of so many elements make, each with a bitmap or whole."""
    part = b""
    for number, elements in enumerate(sizes):
        size, told, piece, kind, bitmaps, packed, _ = HEAD.unpack(raw.receive(HEAD.size))
        assert (told, piece, kind, packed) == (operation, number, RESULT, 0)
        payload = raw.receive(size)
        if not bitmaps:
            part += payload
            continue
        assert bitmaps == 1
        blocks = elements // BLOCK
        bitmap, payload = payload[: blocks // 8], payload[blocks // 8 :]
        for block in range(blocks):
            there = bitmap[block // 8] >> block % 8 & 1
            part += payload[: 4 * BLOCK] if there else bytes(4 * BLOCK)
            payload = payload[4 * BLOCK :] if there else payload
        assert not payload
    return part


def pieces(elements: int, of: int) -> list[int]:
    """Return the elements of the pieces of a part of a tensor of `of` elements."""
    most = BLOCK * min(512, max(64, of // BLOCK // 32))
    return [min(most, elements - start) for start in range(0, elements, most)]


def test_three_ranks_sum(endpoint: tuple[str, int]) -> None:
    """In two lanes; pieces of several sizes, and one with a bitmap."""
    count = 8200 * BLOCK + 7
    with ExitStack() as stack:
        raws = {
            each: stack.enter_context(RawStream(endpoint)) for each in product(range(RANKS), (0, 1))
        }
        for (rank, lane), raw in raws.items():
            assert raw.claim(KEY, claimed(2, rank, lane)) == ACCEPTED
        # Of 8,201 blocks lane 0 carries 4,100.
        sizes = {0: pieces(4100 * BLOCK, count), 1: pieces(4100 * BLOCK + 7, count)}
        assert sizes[0][0] == 256 * BLOCK
        with ThreadPoolExecutor(len(raws)) as threads:

            def give(rank: int, lane: int) -> None:
                raw = raws[rank, lane]
                raw.send(call(1, count, INT32))
                for piece, elements in enumerate(sizes[lane]):
                    values = struct.pack(f"<{elements}i", *(rank * n for n in range(elements)))
                    raw.send(message(1, CONTRIBUTION, values, piece))

            given = [threads.submit(give, *each) for each in raws]
            for (_, lane), raw in raws.items():
                right = b"".join(
                    struct.pack(f"<{elements}i", *(3 * n for n in range(elements)))
                    for elements in sizes[lane]
                )
                assert results(raw, 1, sizes[lane]) == right
            for each in given:
                each.result()
        # Operation 7 comes next here. Rank r has block r alone; it is of one lane.
        sizes[0] = pieces(512 * BLOCK, 512 * BLOCK)
        assert sizes[0] == 8 * [64 * BLOCK]
        for rank in range(RANKS):
            raw = raws[rank, 0]
            raw.send(call(7, 512 * BLOCK, FLOAT32))
            for piece in range(len(sizes[0])):
                bitmap = bytes([0 if piece else 1 << rank]) + bytes(7)
                values = struct.pack(f"<{BLOCK}f", *(rank + n / 4 for n in range(BLOCK)))
                payload = bitmap + (b"" if piece else values)
                raw.send(message(7, CONTRIBUTION, payload, piece, bitmaps=1))
        right = b"".join(
            struct.pack(f"<{BLOCK}f", *(rank + n / 4 for n in range(BLOCK)))
            for rank in range(RANKS)
        )
        for rank in range(RANKS):
            assert results(raws[rank, 0], 7, sizes[0]) == right + bytes(4 * (512 - RANKS) * BLOCK)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (claimed(connecting=RANKS), OTHER_PLACE),
        (claimed(accepting=0), OTHER_PLACE),
        (claimed(ranks=64, accepting=64), OTHER_PLACE),
        (claimed(ranks=0, accepting=0), OTHER_PLACE),
        (claimed(link=1), OTHER_PLACE),
        (claimed(links=0), OTHER_PLACE),
        (claimed(sources=0), OTHER_PLACE),
        (claimed(sources=65), OTHER_PLACE),
        (claimed(links=1 << 20), OTHER_PLACE),
    ],
)
def test_wrong_claims_are_refused(endpoint: tuple[str, int], text: bytes, verdict: int) -> None:
    with RawStream(endpoint) as raw:
        assert raw.claim(KEY, text) == verdict


def test_a_place_is_taken_until_its_connection_ends(endpoint: tuple[str, int]) -> None:
    with RawStream(endpoint) as first:
        assert first.claim(KEY, claimed()) == ACCEPTED
        with RawStream(endpoint) as second:
            assert second.claim(KEY, claimed()) == OCCUPIED
    # The kernel tells the server when it likes.
    for _ in range(1000):
        with RawStream(endpoint) as third:
            if third.claim(KEY, claimed()) == ACCEPTED:
                break
    else:
        pytest.fail("the place stays taken")


def test_another_secret_gets_nowhere(endpoint: tuple[str, int]) -> None:
    with RawStream(endpoint) as raw, pytest.raises(AssertionError):
        raw.claim(SECRET, claimed())
