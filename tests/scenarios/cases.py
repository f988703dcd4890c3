"""The cases of the first switch implementation's test suite, under their names there.

That suite has a pool of slots with two *sets* and a bitmap of workers; here these are the two
versions of a slot. Every frame goes in alone, so that every answer must be the golden model's to
the bit and in its order; each case states besides what the answers must be.
"""

import random
from collections.abc import Callable, Sequence

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from tests.scenarios.afflux_layer import ENGINE_PORT, Afflux, blocks_of
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job

__all__ = ["CASES", "Case"]

Case = Callable[[Director, Job, random.Random], Actions[None]]
Blocks = dict[int, list[int]]

RESULT, MISSING = 8, 10


def draw_blocks(job: Job, choose: random.Random) -> Blocks:
    """Return a block for every lane of the job."""
    return {lane: [choose.getrandbits(32) for _ in range(64)] for lane in range(job.lanes)}


def draw_words(job: Job, choose: random.Random) -> list[int]:
    return [choose.getrandbits(32) for _ in range(job.lanes)]


class Round:
    """One round of one slot: what each worker sends, and what must come back."""

    def __init__(self, job: Job, slot: int, step: int, choose: random.Random) -> None:
        self.job = job
        blocks = [draw_blocks(job, choose) for _ in range(job.workers)]
        words = [draw_words(job, choose) for _ in range(job.workers)]
        self.frames = [
            job.data(worker, slot, step, blocks[worker], words[worker])
            for worker in range(job.workers)
        ]
        self.round = (job.first_round + step) % 2**32
        self.words = [min(column) for column in zip(*words, strict=True)]
        self.sums = {
            lane: [
                (sum(column) + 2**31) % 2**32 - 2**31
                for column in zip(*(each[lane] for each in blocks), strict=True)
            ]
            for lane in range(job.lanes)
        }

    def check(self, results: Sequence[Afflux], workers: Sequence[int]) -> None:
        """Check that the results are this round's, for these workers, in this order."""
        assert [result.worker for result in results] == list(workers)
        for result in results:
            assert (result.type, result.round) == (RESULT, self.round)
            assert result.words[: self.job.lanes] == self.words
            assert blocks_of(result) == self.sums


def everyone(job: Job) -> range:
    return range(job.workers)


def reduce_round(
    director: Director, job: Job, choose: random.Random, step: int, slot: int = 0
) -> Actions[Round]:
    """Play a round in which nothing is lost."""
    current = Round(job, slot, step, choose)
    early = yield from director.each(current.frames[:-1])
    assert early == []
    current.check((yield from director.each(current.frames[-1:])), everyone(job))
    return current


def basic_reduction(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """One round in each slot."""
    for slot in range(job.slots):
        yield from reduce_round(director, job, choose, 0, slot)


def other_set_reduction(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """One round in the other version: r₀ is odd where it is even in the basic reduction."""
    other = Job(**(vars(job) | {"first_round": job.first_round ^ 1}))
    yield from director.create(other)
    yield from reduce_round(director, other, choose, 0)


def both_sets_reduction(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Two rounds, one in each version, interleaved over the slots."""
    for step in range(2):
        for slot in range(job.slots):
            yield from reduce_round(director, job, choose, step, slot)


def slot_reuse(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Each version is taken again and again."""
    for step in range(6):
        yield from reduce_round(director, job, choose, step)


def ignored_retransmissions(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Send again before the round is complete: it is neither added nor answered."""
    for step in range(2):
        current = Round(job, 0, step, choose)
        for frame in current.frames[:-1]:
            assert (yield from director.each([frame] * 3)) == []
        assert (yield from director.each(current.frames[:-1])) == []
        current.check((yield from director.each(current.frames[-1:])), everyone(job))


def retransmit_after_reduction(
    director: Director, job: Job, choose: random.Random
) -> Actions[None]:
    """Send a contribution again after the round is complete: its worker gets the result."""
    current = yield from reduce_round(director, job, choose, 0)
    for worker in everyone(job):
        current.check((yield from director.each([current.frames[worker]])), [worker])
        probe = job.probe(worker, 0, 0)
        current.check((yield from director.each([probe])), [worker])


def retransmit_from_previous_set(
    director: Director, job: Job, choose: random.Random
) -> Actions[None]:
    """While round r + 1 is open, a worker without the result of r asks for it, and gets it."""
    if job.workers < 2:
        return
    before = yield from reduce_round(director, job, choose, 0)
    after = Round(job, 0, 1, choose)
    late = job.workers - 1
    for worker in range(late):
        assert (yield from director.each([after.frames[worker]])) == []
        before.check((yield from director.each([before.frames[late]])), [late])
        before.check((yield from director.each([job.probe(late, 0, 0)])), [late])
    (missing,) = yield from director.each([job.probe(0, 0, 1)])
    seen = (1 << late) - 1
    assert missing.type == MISSING
    assert missing.words[:3] == [seen % 2**32, seen >> 32, after.round]
    after.check((yield from director.each([after.frames[late]])), everyone(job))


def slot_reuse_and_retransmit(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Play rounds one after the other, each with contributions that come again at any time."""
    before: Round | None = None
    for step in range(5):
        current = Round(job, 0, step, choose)
        order = list(everyone(job))
        choose.shuffle(order)
        for place, worker in enumerate(order):
            if before is not None and choose.random() < 0.5:
                # A worker that has not contributed to this round may lack the result of the one
                # before.
                lost = choose.choice(order[place:])
                before.check((yield from director.each([before.frames[lost]])), [lost])
            got = yield from director.each([current.frames[worker]])
            current.check(got, everyone(job) if place == job.workers - 1 else [])
            if choose.random() < 0.5:
                again = choose.choice(order[: place + 1])
                got = yield from director.each([current.frames[again]])
                current.check(got, [again] if place == job.workers - 1 else [])
        before = current


def non_switchml(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Packets of other protocols change nothing and are not answered, in the middle of a round."""
    current = Round(job, 0, 0, choose)
    frame = current.frames[0]
    ether = Ether(src=job.mac(0), dst=ENGINE_MAC)
    ip = IP(src=job.address(0), dst=ENGINE_ADDRESS)
    udp = UDP(sport=job.port(0), dport=ENGINE_PORT)
    body = bytes(Ether(frame)[Afflux])
    elsewhere = bytes(Ether(src=job.mac(0), dst="02:af:fa:00:00:02") / ip / udp / body)
    foreign = [
        bytes(Ether(src=job.mac(0), dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=ENGINE_ADDRESS)),
        bytes(ether / IPv6(dst="fe80::1") / udp / body),
        bytes(ether / Dot1Q(vlan=7) / ip / udp / body),
        bytes(ether / ip / TCP(dport=ENGINE_PORT) / body),
        bytes(ether / ip / ICMP() / body),
        bytes(ether / ip / UDP(sport=job.port(0), dport=ENGINE_PORT + 1) / Raw(body)),
        bytes(ether / IP(src=job.address(0), dst="10.0.0.10") / udp / body),
        bytes(ether / IP(src=job.address(0), dst=ENGINE_ADDRESS, flags="MF") / udp / body),
        bytes(ether / IP(src=job.address(0), dst=ENGINE_ADDRESS, frag=1) / udp / body),
        bytes(ether / IP(src=job.address(0), dst=ENGINE_ADDRESS, options=b"\x01" * 4) / udp / body),
        elsewhere,
        bytes(Raw(b"\x00" * 60)),
        b"\xff",
        frame[:63],
        frame[:64],
        frame[:127],
        frame[:-1],
        frame + b"\x00",
    ]
    for before in range(job.workers):
        assert (yield from director.each(foreign)) == []
        # The same frame, but the MAC says that it is broken.
        assert (yield from director.each([current.frames[before]], mac_error=True)) == []
        got = yield from director.each([current.frames[before]])
        current.check(got, everyone(job) if before == job.workers - 1 else [])


def different_ports_reduction(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Put all workers on one host, where only their ports differ; a stranger's port is refused."""
    other = Job(**(vars(job) | {"one_host": True}))
    yield from director.create(other)
    stranger = Job(**(vars(other) | {"first_port": 60000}))
    for step in range(2):
        current = Round(other, 0, step, choose)
        for worker in everyone(other):
            blocks = draw_blocks(job, choose)
            wrong = stranger.data(worker, 0, step, blocks)
            assert (yield from director.each([wrong])) == []
            got = yield from director.each([current.frames[worker]])
            current.check(got, everyone(other) if worker == job.workers - 1 else [])


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        basic_reduction,
        other_set_reduction,
        both_sets_reduction,
        slot_reuse,
        ignored_retransmissions,
        retransmit_after_reduction,
        retransmit_from_previous_set,
        slot_reuse_and_retransmit,
        non_switchml,
        different_ports_reduction,
    )
}
