"""Test vectors for other implementations of `docs/protocol.md`: captures, and their sums.

`python -m docs.generate.vectors docs/vectors` writes a capture for each conversation here, and
`index.json` with the jobs, tensors and results. All frames are the golden model's; a test replays
them to the software engine and to the C++ worker.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from afflux_sim.golden.frames import (
    DATA,
    JOIN,
    PROBE,
    REFUSED,
    VERSION,
    GroupAddress,
    Packet,
    build_frame,
    parse_header,
    with_udp_checksum,
)
from afflux_sim.golden.reductions import Tensor
from docs.generate.conversation import ENGINE, Conversation, Job
from docs.generate.leaf_conversation import PARENT, LeafConversation
from docs.generate.pcap import capture

__all__ = ["INDEX", "conversations", "write"]

INDEX = "index.json"

_FORMAT = 1


def scattered(count: int, worker: int, *, low: int = -4, high: int = 3) -> Tensor:
    """Return float32 numbers of many magnitudes: 2**low to 2**high, by arithmetic only."""
    mixed = (np.arange(count, dtype=np.uint64) + 7 + 1000 * worker) * 2654435761 % 2**32
    signed = (mixed >> 8 & 0xFFFFFF).astype(np.int64) - 2**23
    scale = low + (mixed & 0xFF).astype(np.int64) % (high - low + 1)
    return np.ldexp(signed.astype(np.float64), (scale - 23).astype(np.int64)).astype(np.float32)


def bfloat16(x: Tensor) -> Tensor:
    """Return the upper halves of float32 numbers: bfloat16, as its bits."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def without(x: Tensor, *blocks: int) -> Tensor:
    """Return a tensor with zeros in place of these runs of 64 elements."""
    x = x.copy()
    for block in blocks:
        x[64 * block : 64 * (block + 1)] = 0
    return x


def sums() -> Conversation:
    talk = Conversation(
        "sums",
        "float32 sums and an average, rounded once: absent blocks; lanes at different rows; NaN, "
        "infinities, overflow, both zeros",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    tensors = [without(scattered(300, 0), 2), without(scattered(300, 1), 1, 2)]
    talk.reduce(tensors, "float32", "sum")
    talk.reduce([x[:80] for x in tensors], "float32", "avg")
    greatest = np.finfo(np.float32).max
    special = [scattered(194, w) for w in range(2)]
    special[0][:6] = [np.nan, np.inf, np.inf, 1.0, -0.0, -0.0]
    special[1][:6] = [1.0, -np.inf, 2.0, -np.inf, -0.0, 0.0]
    # A block without finite numbers but zeros, at one worker; one of -0 at both; one of the
    # greatest numbers.
    special[0][64:128] = 0
    special[1][64:128] = np.nan
    for x in special:
        x[128:192] = -0.0
        x[192:] = greatest
    talk.reduce(special, "float32", "sum")
    talk.reduce([np.zeros((2, 40), dtype=np.float32)] * 2, "float32", "sum")
    return talk


def narrow_types() -> Conversation:
    talk = Conversation(
        "narrow_types",
        "an average in bfloat16 over two slots; a sum in float16 that overflows and has subnormal "
        "elements",
        Job(workers=3, lanes=1, slots=2),
    )
    talk.join()
    tensors = [bfloat16(without(scattered(270, w), 2 * w, 2 * w + 1)) for w in range(3)]
    talk.reduce(tensors, "bfloat16", "avg")
    halves = [np.ones(150, dtype=np.float16) for _ in range(3)]
    for half in halves:
        half[0] = 65504
        half[128:] = np.float16(2.0**-24)
    halves[2][129:] = 0
    halves[1][130:] = 0
    talk.reduce(halves, "float16", "sum")
    return talk


def integers() -> Conversation:
    talk = Conversation(
        "integers",
        "int32: a direct sum that wraps, sums in several rounds with absent blocks, a minimum, an "
        "operation without elements",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    small = [
        np.array([2**31 - 1, -(2**31), 5, -7], dtype=np.int32),
        np.array([1, -1, 6, 7], dtype=np.int32),
    ]
    talk.reduce(small, "int32", "sum")
    long = [(scattered(230, w) * 2**20).astype(np.int32) for w in range(2)]
    talk.reduce([without(long[0], 0, 2), without(long[1], 0, 3)], "int32", "sum")
    talk.reduce([x[:100].reshape(4, 25) for x in long], "int32", "min")
    talk.reduce([np.zeros((0, 4), dtype=np.int32)] * 2, "int32", "sum")
    return talk


def maximum_and_minimum() -> Conversation:
    talk = Conversation(
        "maximum_and_minimum",
        "MAX and MIN of floating point: NaN, infinities, both zeros; direct and in rounds",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    odd = [
        np.array([1, -2, -0.0, -0.0, np.nan, np.inf, -np.inf], dtype=np.float32),
        np.array([1.5, -3, 0.0, -0.0, 7, -np.inf, -np.inf], dtype=np.float32),
    ]
    talk.reduce(odd, "float32", "max")
    talk.reduce([bfloat16(x) for x in odd], "bfloat16", "min")
    halves = [scattered(70, w).astype(np.float16) for w in range(2)]
    for half, x in zip(halves, odd, strict=True):
        half[: x.size] = x
    talk.reduce(halves, "float16", "max")
    talk.reduce([np.resize(x, 70) for x in odd], "float32", "min")
    return talk


def side_by_side() -> Conversation:
    talk = Conversation(
        "side_by_side",
        "small tensors of three workers side by side: an average in bfloat16, sums that cancel, a "
        "greatest integer, an operation without elements",
        Job(workers=3, lanes=2, slots=1),
    )
    talk.join()
    talk.reduce([bfloat16(scattered(5, w)) for w in range(3)], "bfloat16", "avg")
    greatest = np.finfo(np.float32).max
    cancelling = [
        np.array(x, dtype=np.float32)
        for x in (
            [greatest, 1.0, 1.0, 0.0, 3.0, np.nan, -0.0],
            [greatest, 2.0**-24, 2.0**-30, -0.0, -5.0, 1.0, -0.0],
            [-greatest, 2.0**-80, -1.0, 0.0, 2.0, 2.0, -0.0],
        )
    ]
    talk.reduce(cancelling, "float32", "sum")
    talk.reduce([np.array([w, -w, 7], dtype=np.int32) for w in range(3)], "int32", "max")
    talk.reduce([np.zeros(0, dtype=np.float16)] * 3, "float16", "sum")
    return talk


def not_summed() -> Conversation:
    talk = Conversation(
        "not_summed",
        "blocks whose sums the aggregator cannot hold come back with all bits set, and are brought "
        "again: of a float32 sum, and of an average in bfloat16",
        Job(workers=3, lanes=2, slots=1),
    )
    talk.join()
    tensors = [scattered(180, w) for w in range(3)]
    # Block 0 of all comes again, and block 2 of two.
    for block in (0, 2):
        tensors[0][64 * block] = 1.0
        tensors[1][64 * block] = 2.0**-100
    tensors[2][128:] = 0
    talk.reduce(tensors, "float32", "sum")
    halves = [bfloat16(np.full(70, 1.0 + w, dtype=np.float32)) for w in range(3)]
    halves[1][30] = bfloat16(np.array([2.0**-100], dtype=np.float32))[0]
    talk.reduce(halves, "bfloat16", "avg")
    return talk


def loss() -> Conversation:
    """Play every way in which a packet may be lost, and its recovery."""
    talk = Conversation(
        "loss",
        "lost contributions and results, PROBE and MISSING, retransmissions, replays of the latest "
        "round and of the one before, a late duplicate",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    tensors = [scattered(200, w) for w in range(2)]
    first, second = talk.workers
    talk.start(tensors, "float32", "sum")
    # Opening round: worker 0's DATA is lost, and its timer runs out; then it loses the result.
    (opening,) = first.frames_to_send()
    (other,) = second.frames_to_send()
    talk.send(opening, lost=True)
    talk.send(other)
    talk.send(first.retransmit(0), lost_answers=[0])
    # Worker 1 goes on. Worker 0 asks for the round before, which is replayed.
    talk.send(*second.frames_to_send())
    talk.send(first.retransmit(0, probe=True))
    # Both results of the next round are lost; one asks, the other repeats: replays of R.
    talk.send(*first.frames_to_send(), lost_answers=[0, 1])
    talk.send(first.retransmit(0, probe=True))
    talk.send(second.retransmit(0))
    # Worker 0 asks who is missing. A contribution comes twice before the round is complete.
    (late,) = second.frames_to_send()
    talk.send(*first.frames_to_send())
    talk.send(first.retransmit(0, probe=True))
    talk.send(first.retransmit(0))
    # Worker 1's DATA is lost, and its probe, and then the answer reports that it is missing itself.
    talk.send(late, lost=True)
    talk.send(second.retransmit(0, probe=True), lost=True)
    talk.send(second.retransmit(0, probe=True))
    talk.send(*second.frames_to_send())
    # A duplicate of the opening round arrives when it is long over.
    talk.send(other)
    talk.play()
    talk.note(tensors, "float32", "sum")
    talk.reduce([np.arange(5, dtype=np.int32)] * 2, "int32", "sum")
    return talk


def multicast() -> Conversation:
    talk = Conversation(
        "multicast",
        "results to a multicast group, with 255 in the worker byte; a replay to one worker",
        Job(workers=3, lanes=2, slots=1, group=GroupAddress("239.1.2.3", 4701)),
    )
    talk.join()
    tensors = [scattered(130, w) for w in range(3)]
    talk.start(tensors, "float32", "sum")
    frames = [frame for worker in talk.workers for frame in worker.frames_to_send()]
    for frame in frames[:2]:
        talk.send(frame)
    talk.send(frames[2], lost_answers=[0])
    for worker in talk.workers:
        talk.send(worker.retransmit(0, probe=True))
    talk.play()
    talk.note(tensors, "float32", "sum")
    return talk


def leaf() -> Conversation:
    talk = LeafConversation(
        "leaf",
        "an aggregator below a parent: it joins, sends partial sums of float32 and bfloat16, takes "
        "results; one of the parent's results is lost, and MISSING with all bits brings the "
        "partial sum again",
        Job(workers=2, lanes=2, slots=1, parent=PARENT, ranks=3),
    )
    talk.join_parent()
    talk.join()
    tensors = [scattered(100, w) for w in range(3)]
    talk.begin(tensors, "float32", "avg")
    for worker in talk.workers:
        talk.send(*worker.frames_to_send())
        talk.settle()
    # The sum of the second round is lost on its way down.
    talk.results_lost = 1
    for worker in talk.workers:
        talk.send(*worker.frames_to_send())
        talk.settle()
    first = talk.workers[0]
    talk.send(first.retransmit(0, probe=True))
    talk.play()
    talk.note(tensors, "float32", "avg")
    tensors = [bfloat16(scattered(150, w)) for w in range(3)]
    tensors[0][:3] = [0x7F80, 0x8000, 0x7FC0]
    tensors[1][:2] = tensors[2][:2] = [0x3F80, 0x8000]
    talk.begin(tensors, "bfloat16", "sum")
    talk.play()
    talk.note(tensors, "bfloat16", "sum")
    return talk


def conflict() -> Conversation:
    talk = Conversation(
        "conflict",
        "the workers ask for different dtypes: CONFLICT to all",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    x = scattered(20, 0)
    calls = [(x, "float32", "max"), (x.astype(np.float16), "float16", "max")]
    talk.begin_calls(calls)
    talk.play()
    talk.note_disagreement(calls)
    return talk


def fingerprints() -> Conversation:
    talk = Conversation(
        "fingerprints",
        "the workers' shapes differ: a RESULT in which their fingerprints do",
        Job(workers=2, lanes=2, slots=1),
    )
    talk.join()
    x = scattered(100, 0)
    calls = [(x, "float32", "sum"), (x.reshape(10, 10), "float32", "sum")]
    talk.begin_calls(calls)
    talk.play()
    talk.note_disagreement(calls)
    return talk


def refused() -> Conversation:
    """Play frames that no worker of the job sends, and what answers them."""
    talk = Conversation(
        "refused",
        "joins that are refused, for each cause; packets that are dropped without an answer",
        Job(workers=2, lanes=2, slots=1),
    )
    worker = talk.workers[0]
    job = talk.job
    good = Packet(type=JOIN, job=job.number, worker=0, key=job.key)

    def send(packet: Packet) -> list[bytes]:
        frame = build_frame(worker.endpoint, ENGINE, packet)
        return talk.send_foreign(with_udp_checksum(frame) if packet.type == JOIN else frame)

    for wrong in (
        replace(good, version=VERSION - 1),
        replace(good, job=job.number + 1),
        replace(good, key=job.key ^ 1),
        replace(good, worker=job.workers),
    ):
        (answer,) = send(wrong)
        assert parse_header(answer).type == REFUSED
    # Without a checksum nothing says that it was sent so.
    assert not talk.send_foreign(
        build_frame(worker.endpoint, ENGINE, replace(good, version=VERSION - 1))
    )
    # A DATA from a worker that has not joined; one of a lane that the job does not have; a PROBE of
    # a round before the first; a DATA of a round that cannot be open yet.
    data = replace(good, type=DATA, round=job.round)
    assert not send(data)
    talk.join()
    zeros = np.zeros(64, dtype=np.int32)
    assert not send(replace(data, blocks={job.lanes: zeros}))
    assert not send(replace(data, type=PROBE, round=(job.round - 1) % 2**32))
    assert not send(replace(data, round=(job.round + 1) % 2**32))
    talk.reduce([np.arange(5, dtype=np.int32)] * 2, "int32", "sum")
    return talk


CONVERSATIONS: tuple[Callable[[], Conversation], ...] = (
    sums,
    narrow_types,
    integers,
    maximum_and_minimum,
    side_by_side,
    not_summed,
    loss,
    multicast,
    leaf,
    conflict,
    fingerprints,
    refused,
)


def conversations() -> list[Conversation]:
    """Return all conversations, played afresh."""
    return [make() for make in CONVERSATIONS]


def write(folder: Path) -> None:
    """Write the captures and their index into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    talks = conversations()
    for talk in talks:
        (folder / f"{talk.name}.pcap").write_bytes(capture(talk.frames))
    index = {"format": _FORMAT, "vectors": [talk.description() for talk in talks]}
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
