"""Cases for multicast groups and for a parent above: docs/protocol.md sections 5.5 and 5.6.

As in the ten cases, every frame goes in alone and every answer must be the golden model's to the
bit; each case states besides what the answers must be. The parent is played by the test.
"""

import random
from collections.abc import Sequence
from typing import Any

from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from tests.scenarios.afflux_layer import ENGINE_PORT, Afflux, blocks_of
from tests.scenarios.cases import Case, Round, draw_blocks, draw_words, everyone
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job, ParentJob, ResultGroup

__all__ = ["TREE_CASES"]

DATA, JOIN, RESULT, CONFLICT, MISSING = 0, 2, 8, 9, 10
EVERYONE = 255
GROUP = ResultGroup("239.129.2.3", 4701)


def changed(job: Job, **changes: object) -> Job:
    return Job(**(vars(job) | changes))


def new_leaf(director: Director, job: Job, **changes: object) -> Actions[Job]:
    """Create the job again, with a parent that it has joined."""
    leaf = changed(job, **({"parent": ParentJob()} | changes))
    yield from director.create(leaf)
    join = yield from director.join_parent(leaf)
    assert_goes_up(leaf, join)
    assert (join.type, join.slot, join.present, join.round) == (JOIN, 0, 0, 0)
    assert (join.opcode, join.dtype, join.operation, join.words) == (0, 0, 0, [0] * 16)
    assert not (yield from director.check_parent_joined(leaf))
    assert (yield from director.each([leaf.joined_above()])) == []
    assert (yield from director.check_parent_joined(leaf))
    return leaf


def assert_goes_up(job: Job, packet: Afflux) -> None:
    """Check that the packet is the job's own, from its parent port to its parent."""
    parent = job.parent
    assert parent is not None
    udp = packet.underlayer
    ip, ether = udp.underlayer, udp.underlayer.underlayer
    assert (ether.src, ip.src, udp.sport) == (ENGINE_MAC, ENGINE_ADDRESS, job.parent_port)
    assert (ether.dst, ip.dst, udp.dport) == (parent.mac, parent.address, parent.port)
    assert (packet.job, packet.worker, packet.key) == (parent.number, parent.worker, parent.key)


class LeafRound(Round):
    """A round of a leaf: its partial sum, and a result of the parent that is another one."""

    def __init__(self, job: Job, slot: int, step: int, choose: random.Random) -> None:
        super().__init__(job, slot, step, choose)
        self.slot, self.step = slot, step
        # Any of the job's lanes, whether the leaf has something in them or not.
        drawn = draw_blocks(job, choose)
        self.blocks = {lane: block for lane, block in drawn.items() if choose.random() < 0.7}
        self.total_words = draw_words(job, choose)

    @property
    def down(self) -> bytes:
        return self.frame_down()

    def frame_down(self, **changes: Any) -> bytes:
        """Return the parent's result, or one that is somewhat different."""
        return self.job.down(self.slot, self.step, self.blocks, self.total_words, **changes)

    def fill(self, director: Director) -> Actions[None]:
        """All workers contribute, the partial sum goes up."""
        yield from director.each(self.frames[:-1])
        self.check_up((yield from director.each(self.frames[-1:])))

    def check_up(self, sent: Sequence[Afflux], type_: int = DATA) -> None:
        """Check that what was sent is the partial sum."""
        (packet,) = sent
        assert_goes_up(self.job, packet)
        assert (packet.type, packet.slot, packet.round) == (type_, self.slot, self.round)
        assert packet.words[: self.job.lanes] == self.words
        assert blocks_of(packet) == self.sums

    def check_down(
        self, results: Sequence[Afflux], workers: Sequence[int], type_: int = RESULT
    ) -> None:
        """Check that what was sent is the parent's result, for these workers."""
        assert [result.worker for result in results] == list(workers)
        for result in results:
            assert (result.type, result.round, result.slot) == (type_, self.round, self.slot)
            assert result.words[: self.job.lanes] == self.total_words
            signed = {
                lane: [(element + 2**31) % 2**32 - 2**31 for element in block]
                for lane, block in self.blocks.items()
            }
            assert blocks_of(result) == signed


def leaf_rounds(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Round after round in all slots: up when all are in, down to all workers."""
    leaf = yield from new_leaf(director, job)
    for step in range(4):
        rounds = [LeafRound(leaf, slot, step, choose) for slot in range(leaf.slots)]
        for current in rounds:
            yield from current.fill(director)
        choose.shuffle(rounds)
        for current in rounds:
            current.check_down((yield from director.each([current.down])), everyone(leaf))


def leaf_of_one_worker(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Every contribution of the only worker goes up."""
    leaf = yield from new_leaf(director, job, workers=1)
    for step in range(3):
        current = LeafRound(leaf, 0, step, choose)
        yield from current.fill(director)
        for _ in range(2):
            current.check_up((yield from director.each(current.frames)))
        current.check_down((yield from director.each([current.down])), [0])


def retransmit_while_waiting(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """While the parent's result is not in, a contribution that comes again sends the sum again."""
    leaf = yield from new_leaf(director, job)
    before: LeafRound | None = None
    for step in range(3):
        current = LeafRound(leaf, 0, step, choose)
        for frame in current.frames[:-1]:
            assert (yield from director.each([frame] * 2)) == []
        current.check_up((yield from director.each(current.frames[-1:])))
        for frame in current.frames:
            current.check_up((yield from director.each([frame])))
            if before is not None:
                # A worker whose packets of the round before are late has its result, from the
                # version.
                last = leaf.workers - 1
                late = [before.frames[last], leaf.probe(last, 0, step - 1)]
                before.check_down((yield from director.each(late)), [last] * 2)
        current.check_down((yield from director.each([current.down])), everyone(leaf))
        for worker in everyone(leaf):
            late = [current.frames[worker], leaf.probe(worker, 0, step)]
            current.check_down((yield from director.each(late)), [worker] * 2)
        before = current


def probe_while_waiting(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Probe a waiting slot: the answer is that all are in. A round ahead is premature."""
    leaf = yield from new_leaf(director, job)
    for step in range(2):
        current = LeafRound(leaf, 0, step, choose)
        yield from current.fill(director)
        for worker in everyone(leaf):
            (missing,) = yield from director.each([leaf.probe(worker, 0, step)])
            everybody = (1 << leaf.workers) - 1
            seen = [everybody % 2**32, everybody >> 32, current.round]
            assert (missing.type, missing.worker, missing.words[:3]) == (MISSING, worker, seen)
            after = LeafRound(leaf, 0, step + 1, choose)
            early = [after.frames[worker], leaf.probe(worker, 0, step + 1), after.down]
            assert (yield from director.each(early)) == []
        # Nothing of that has touched the sum.
        current.check_up((yield from director.each(current.frames[:1])))
        current.check_down((yield from director.each([current.down])), everyone(leaf))


def result_of_the_parent_twice(
    director: Director, job: Job, choose: random.Random
) -> Actions[None]:
    """Only the first one counts, also when the slot has gone on; and none before all are in."""
    leaf = yield from new_leaf(director, job)
    before: LeafRound | None = None
    for step in range(4):
        current = LeafRound(leaf, 0, step, choose)
        other = LeafRound(leaf, 0, step, choose)
        early = [other.down, other.frame_down(type="CONFLICT")]
        for frame in current.frames[:-1]:
            assert (yield from director.each([frame, *early])) == []
        current.check_up((yield from director.each(current.frames[-1:])))
        if before is not None:
            assert (yield from director.each([before.down])) == []
        current.check_down((yield from director.each([current.down])), everyone(leaf))
        assert (yield from director.each([current.down, *early])) == []
        current.check_down((yield from director.each(current.frames[:1])), [0])
        before = current


def wrong_results_of_the_parent(
    director: Director, job: Job, choose: random.Random
) -> Actions[None]:
    """Send what is not the parent's result of just this round: it changes nothing, unanswered."""
    leaf = yield from new_leaf(director, job)
    parent = leaf.parent
    assert parent is not None
    current = LeafRound(leaf, 0, 0, choose)
    yield from current.fill(director)
    changes: list[dict[str, Any]] = [
        {"key": parent.key ^ 1},
        {"key": leaf.key},
        {"job": parent.number ^ 1},
        {"job": leaf.number},
        {"worker": parent.worker ^ 1},
        {"worker": EVERYONE},
        {"source": {"address": "10.0.9.8"}},
        {"source": {"port": parent.port + 1}},
        {"slot": leaf.slots},
        {"slot": 2**16 - 1},
        {"opcode": 4},
        {"version": 1},
        *({"type": type_} for type_ in (0, 1, 3, 10, 12, 15)),
    ]
    changes += [
        {"round": (leaf.first_round + step) % 2**32} for step in (-2, -1, 1, 2, 2**31 - 1, 2**31)
    ]
    frames = [current.frame_down(**change) for change in changes]
    if leaf.lanes < 16:
        frames.append(leaf.down(0, 0, {leaf.lanes: [1] * 64}))
    frames += [current.down[:-1], current.down + b"\0"]
    # To the ports beside its own: the engine's, and another job's.
    for port in (ENGINE_PORT, leaf.parent_port - 1, leaf.parent_port + 1):
        packet = Ether(current.down)
        packet[UDP].dport = port
        del packet[UDP].chksum
        frames.append(bytes(packet))
    broken = bytearray(current.down)
    broken[70] ^= 1
    frames.append(bytes(broken))
    # A worker that speaks to the parent port is not taken for a parent.
    packet = Ether(current.frames[0])
    packet[UDP].dport = leaf.parent_port
    del packet[UDP].chksum
    frames.append(bytes(packet))
    assert (yield from director.each(frames)) == []
    assert (yield from director.each([current.down], mac_error=True)) == []
    # JOINED has checks of its own; none of these may take the place of the first.
    current.check_up((yield from director.each(current.frames[:1])))
    current.check_down((yield from director.each([current.down])), everyone(leaf))


def what_routers_change(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Of the parent's frames neither the MAC address nor opcode, dtype and operation matter."""
    leaf = yield from new_leaf(director, job)
    current = LeafRound(leaf, 0, 0, choose)
    yield from current.fill(director)
    other = {"opcode": 3, "dtype": 9, "operation": 77, "source": {"mac": "02:99:00:00:00:01"}}
    results = yield from director.each([current.frame_down(**other)])
    current.check_down(results, everyone(leaf))
    assert {(result.opcode, result.dtype, result.operation) for result in results} == {(0, 0, 0)}


def joining_the_parent(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Only a right JOINED counts; a new create must join again; a job alone has no parent."""
    leaf = changed(job, parent=ParentJob())
    parent = leaf.parent
    assert parent is not None
    yield from director.create(leaf)
    wrong: list[dict[str, object]] = [
        {"key": 1},
        {"job": parent.number + 1},
        {"worker": parent.worker + 1},
        {"present": 1, "type": "RESULT"},
        {"type": "REFUSED"},
        {"opcode": 5},
        {"source": {"port": 1}},
    ]
    for change in wrong:
        assert (yield from director.each([leaf.joined_above(**change)])) == []
        assert not (yield from director.check_parent_joined(leaf))
    with_a_block = leaf.down(0, 0, {0: [1] * 64}, type="JOINED")
    assert (yield from director.each([with_a_block])) == []
    for _ in range(2):
        assert_goes_up(leaf, (yield from director.join_parent(leaf)))
        assert not (yield from director.check_parent_joined(leaf))
    yield from director.each([leaf.joined_above(slot=2**16 - 1, round=5)])
    assert (yield from director.check_parent_joined(leaf))
    yield from director.create(leaf)
    assert not (yield from director.check_parent_joined(leaf))
    alone = changed(job, parent=None)
    yield from director.create(alone)
    frames = [leaf.joined_above(), leaf.down(0, 0, {0: [1] * 64})]
    assert (yield from director.each(frames)) == []
    assert not (yield from director.check_parent_joined(alone))
    current = Round(alone, 0, 0, choose)
    yield from director.each(current.frames[:-1])
    current.check((yield from director.each(current.frames[-1:])), everyone(alone))


def conflict_goes_up_and_down(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Send a conflict of the workers up as one; the parent's verdict comes down to all."""
    leaf = yield from new_leaf(director, job)
    for step, (own, verdict) in enumerate(
        [("operation", "CONFLICT"), ("dtype", "RESULT"), ("", "CONFLICT"), ("", "RESULT")] * 2
    ):
        current = LeafRound(leaf, 0, step, choose)
        if own and leaf.workers > 1:
            words, blocks = draw_words(leaf, choose), {0: [choose.getrandbits(32)] * 64}
            other = leaf.data(0, 0, step, blocks, words, **{own: 5})
            yield from director.each([other, *current.frames[1:-1]])
            (up,) = yield from director.each(current.frames[-1:])
            assert_goes_up(leaf, up)
            assert (up.type, up.round) == (CONFLICT, current.round)
            (again,) = yield from director.each([other])
            assert again == up
        else:
            yield from current.fill(director)
        type_ = CONFLICT if verdict == "CONFLICT" else RESULT
        down = current.frame_down(type=verdict)
        current.check_down((yield from director.each([down])), everyone(leaf), type_)
        probe = leaf.probe(0, 0, step)
        current.check_down((yield from director.each([probe])), [0], type_)


def conflict_of_a_child(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Send a CONFLICT as a leaf: it is added like DATA, and all get a CONFLICT."""
    for step, guilty in enumerate([0, job.workers - 1, -1] * 2):
        current = Round(job, 0, step, choose)
        for worker in everyone(job):
            frame = current.frames[worker]
            if worker == guilty:
                packet = Ether(frame)
                packet[Afflux].type = CONFLICT
                del packet[UDP].chksum
                frame = bytes(packet)
            got = yield from director.each([frame])
        assert [packet.type for packet in got] == [CONFLICT if guilty >= 0 else RESULT] * len(got)
        assert len(got) == job.workers
        for packet in got:
            assert blocks_of(packet) == current.sums
        if guilty >= 0:
            (replay,) = yield from director.each([frame])
            assert replay.type == CONFLICT


def assert_for_group(packets: Sequence[Afflux], group: ResultGroup) -> None:
    (packet,) = packets
    udp = packet.underlayer
    ip, ether = udp.underlayer, udp.underlayer.underlayer
    assert (ether.src, ip.src, udp.sport) == (ENGINE_MAC, ENGINE_ADDRESS, ENGINE_PORT)
    assert (ether.dst, ip.dst, udp.dport) == ("01:00:5e:01:02:03", group.address, group.port)
    assert packet.worker == EVERYONE


def results_to_a_group(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Check that the result goes once to the group, and a replay to the one who asks."""
    shared = changed(job, group=GROUP)
    yield from director.create(shared)
    for step in range(4):
        for slot in range(shared.slots):
            current = Round(shared, slot, step, choose)
            assert (yield from director.each(current.frames[:-1])) == []
            results = yield from director.each(current.frames[-1:])
            assert_for_group(results, GROUP)
            current.check(results, [EVERYONE])
            for worker in everyone(shared):
                asking = [current.frames[worker], shared.probe(worker, slot, step)]
                current.check((yield from director.each(asking)), [worker] * 2)
    # A create without one forgets it.
    yield from director.create(job)
    current = Round(job, 0, 0, choose)
    yield from director.each(current.frames[:-1])
    current.check((yield from director.each(current.frames[-1:])), everyone(job))


def leaf_with_a_group(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Check that results go down once to the group; frames that go up are the same as without."""
    leaf = yield from new_leaf(director, job, group=GROUP)
    for step in range(3):
        current = LeafRound(leaf, 0, step, choose)
        yield from current.fill(director)
        current.check_up((yield from director.each(current.frames[:1])))
        type_, verdict = [(RESULT, "RESULT"), (CONFLICT, "CONFLICT")][step % 2]
        results = yield from director.each([current.frame_down(type=verdict)])
        assert_for_group(results, GROUP)
        current.check_down(results, [EVERYONE], type_)
        last = leaf.workers - 1
        late = yield from director.each([current.frames[last]])
        current.check_down(late, [last], type_)


def two_leaves_in_one_engine(director: Director, job: Job, choose: random.Random) -> Actions[None]:
    """Jobs with different parents, one without, side by side: each has its own parent port."""
    number = (job.number + 1) % len(director.golden.jobs)
    if number == job.number or job.slot_base + 2 * job.slots > director.golden.slots:
        return
    one = yield from new_leaf(director, job)
    parent = ParentJob(mac="02:af:fa:00:00:fd", address="10.0.9.7", number=0, worker=0, key=99)
    base = job.slot_base + job.slots
    two = yield from new_leaf(director, job, number=number, slot_base=base, parent=parent)
    for step in range(2):
        rounds = [LeafRound(leaf, 0, step, choose) for leaf in (one, two)]
        for current in rounds:
            yield from current.fill(director)
        # Each other's result at its own port.
        for current, other in zip(rounds, reversed(rounds), strict=True):
            packet = Ether(current.down)
            packet[UDP].dport = other.job.parent_port
            del packet[UDP].chksum
            assert (yield from director.each([bytes(packet)])) == []
        for current in reversed(rounds):
            current.check_down((yield from director.each([current.down])), everyone(current.job))
    yield from director.destroy(two)
    assert (yield from director.each([rounds[1].down])) == []


TREE_CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        leaf_rounds,
        leaf_of_one_worker,
        retransmit_while_waiting,
        probe_while_waiting,
        result_of_the_parent_twice,
        wrong_results_of_the_parent,
        what_routers_change,
        joining_the_parent,
        conflict_goes_up_and_down,
        conflict_of_a_child,
        results_to_a_group,
        leaf_with_a_group,
        two_leaves_in_one_engine,
    )
}
