"""Plays random traffic into an engine, batch by batch, and checks all that comes out."""

import random
import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address

from afflux_hdl.contract.registers import (
    COUNTERS,
    FRAME_COUNTERS,
    Command,
    address_of,
    counter_address,
)
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Endpoint, GroupAddress
from afflux_sim.golden.state import Parent
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.fuzz.answers import compare, read_answer
from tests.fuzz.traffic import JOIN, Blocks, Jobs, OrderlyJob, Traffic, UnrulyJob, Work
from tests.scenarios.director import PARTIAL_DTYPES, WINDOWS, Build
from tests.scenarios.packing import HEADER, Peer, pack_frame

__all__ = ["BUILD", "Fuzzer", "FuzzerReport", "parameters_of"]

BUILD: Build = {"workers": 8, "lanes": 4, "jobs": 4, "slots": 64}
"""The sizes of the fuzzed engine."""

LIFE = 16
"""Batches after which the unruly jobs are created anew, one of them only destroyed."""


@dataclass
class FuzzerReport:
    """The events of a run.

    Attributes:
        frames: Frames in.
        batches: Plays.
        answers: Frames out.
        results: Results that the orderly job got.
        left_out: Frames that the golden model would have sent and the engine dropped.
        counters: All counters of the engine at the end.
    """

    frames: int
    batches: int
    answers: int
    results: int
    left_out: int
    counters: dict[str, int]


class Fuzzer:
    """One engine under fire, its golden twin, and a second twin that sees the orderly job alone.

    Args:
        engine: Fresh.
        seed: Determines every byte and every cycle, and all addresses.
        batch: Frames that are played at once.
        build: The engine's sizes.
        here: Where the engine is; None: drawn.
        partials: Dtypes of the partial sums that it takes.
    """

    def __init__(
        self,
        engine: VerilatedEngine,
        seed: int,
        batch: int = 1000,
        build: Build = BUILD,
        here: Peer | None = None,
        partials: Collection[int] = PARTIAL_DTYPES,
    ) -> None:
        self._engine = engine
        self._partials = partials
        self._choose = random.Random(seed)
        self._batch = batch
        self._build = build
        # Its parents' ports follow its own, perhaps beyond the last one.
        first_port = 65_530 if self._choose.random() < 0.2 else 1
        self._here = here or self._draw_peer(first_port=first_port)
        self._blocks = Blocks(self._choose)
        self._left_out = self._left_out_bytes = 0
        self._frames = self._batches = self._answers = self._results = 0
        self._last: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        """Set up an engine that has just been reset, and its twins, with new jobs."""
        address = str(IPv4Address(self._here.address))
        twin = partial(
            GoldenEngine,
            **self._build,
            mac=self._here.mac,
            address=address,
            port=self._here.port,
            partials=self._partials,
            windows=WINDOWS,
        )
        self._golden, self._alone = twin(), twin()
        self._configure()
        works = [self._draw_work(number) for number in range(self._build["jobs"])]
        for work in works:
            self._create(work)
        self._jobs = Jobs(
            OrderlyJob(works[0], self._here, self._choose, self._blocks),
            [UnrulyJob(work) for work in works[1:]],
        )
        self._traffic = self._new_traffic()

    def run(self, frames: int) -> FuzzerReport:
        """Play on until `frames` frames have been played in all, then check the counters.

        Raises:
            AssertionError: If the engine does what it must not.
            SimulationError: If it hangs.
        """
        pending: tuple[bytes, bool, bool] | None = None
        while self._frames < frames:
            pending = self._play_batch(min(self._batch, frames - self._frames), pending)
            if self._batches % LIFE == 0:
                pending = None
                self._check_counters()
                self._renew()
        counters = self._check_counters()
        return FuzzerReport(
            self._frames, self._batches, self._answers, self._results, self._left_out, counters
        )

    def _play_batch(
        self, count: int, first: tuple[bytes, bool, bool] | None
    ) -> tuple[bytes, bool, bool] | None:
        """Play a batch. Return a frame that would have moved a worker: it must come first in one.

        Results that are queued go where the worker is by then.
        """
        frames: list[bytes] = []
        errors: list[bool] = []
        required: Counter[bytes] = Counter()
        droppable: Counter[bytes] = Counter()
        of_orderly: Counter[bytes] = Counter()
        self._jobs.orderly.rest()
        for job in self._jobs.unruly:
            job.rest(self._golden)
        moving = None
        # Slots and versions whose result, or partial sum, this batch has caused. A second one may
        # come too early: nobody can know of it who has waited for the first.
        caused_before: set[tuple[int, int, int]] = set()

        def may_drop(answer: bytes) -> bool:
            read = read_answer(answer, self._here, self._build["lanes"])
            if read.short:
                return True
            up = read.source_port != self._here.port
            job = (read.source_port - self._here.port - 1) % 2**16 if up else read.job
            place = (job, read.slot, read.round & 1)
            again = place in caused_before
            caused_before.add(place)
            return again

        while len(frames) < count:
            frame, own, error = first or self._draw()
            if frames and not own and self._moves(frame, error):
                moving = (frame, own, error)
                break
            first = None
            frames.append(frame)
            errors.append(error)
            replays = self._golden.counters["replays"]
            caused = self._golden.receive(frame, error)
            if caused:
                replayed = self._golden.counters["replays"] != replays
                (droppable if replayed or may_drop(caused[0]) else required).update(caused)
            if own:
                of_orderly.update(self._alone.receive(frame))
        self._last = frames
        got = self._engine.play(frames, self._pace(), errors)
        self._frames += len(frames)
        self._batches += 1
        self._answers += len(got)
        self._check_answers(got)
        left_out = compare(self._golden, self._here, self._build["lanes"], got, required, droppable)
        self._left_out += left_out[0]
        self._left_out_bytes += left_out[1]
        self._check_orderly(got, of_orderly)
        return moving

    def _draw(self) -> tuple[bytes, bool, bool]:
        frame, own = self._traffic.frame()
        return frame, own, not own and self._choose.random() < 0.01

    def _moves(self, frame: bytes, error: bool) -> bool:
        """Return whether this is a JOIN from elsewhere, which redirects results that are queued."""
        if error or len(frame) < 128 or frame[42] & 15 != JOIN:
            return False
        job = self._golden.jobs[frame[44]] if frame[44] < self._build["jobs"] else None
        key = frame[54:62]
        if job is None or key != job.key.to_bytes(8, "little") or frame[45] >= job.workers:
            return False
        peer = job.joined.get(frame[45])
        known = (frame[6:12], frame[26:30], int.from_bytes(frame[34:36], "big"))
        return peer is None or known != (peer.mac, peer.packed_address, peer.port)

    def _pace(self) -> Stimulus:
        choose = self._choose
        return Stimulus(
            ready_share=choose.choice((1.0, 1.0, 0.7, 0.3)),
            gap_share=choose.choice((0.0, 0.0, 0.2)),
            seed=choose.getrandbits(64),
        )

    def _check_answers(self, got: list[bytes]) -> None:
        """Well-formed, and to nobody but groups, parents, who has joined and who has just asked."""
        known = set()
        for job in self._golden.jobs:
            if job is None:
                continue
            known |= {(peer.mac, peer.packed_address, peer.port) for peer in job.joined.values()}
            if job.group:
                group = job.group.endpoint
                known.add((group.mac, group.packed_address, group.port))
            if job.parent:
                parent = job.parent.endpoint
                known.add((parent.mac, parent.packed_address, parent.port))
        asking: set[tuple[bytes, bytes, int]] | None = None
        for frame in got:
            answer = read_answer(frame, self._here, self._build["lanes"])
            peer = answer.destination
            where = (peer.mac, peer.address, peer.port)
            if where in known:
                continue
            if asking is None:
                asking = {
                    (each[6:12], each[26:30], int.from_bytes(each[34:36], "big"))
                    for each in self._last
                }
            # A router's MAC address may differ from the one that a worker has joined from.
            assert answer.short and where in asking, f"to a stranger: {frame[:64].hex(' ', 4)}"

    def _check_orderly(self, got: list[bytes], expected: Counter[bytes]) -> None:
        """Check that the orderly job gets exactly what it would get alone in the world."""
        work = self._jobs.orderly.work
        addresses = {peer.address for peer in work.workers}
        results = Counter(
            frame for frame in got if frame[30:34] in addresses and frame[42] & 15 in (8, 9)
        )
        assert results == expected, (
            f"the orderly job has {(results - expected).total()} results that are not its own, "
            f"and is missing {(expected - results).total()}"
        )
        self._results += results.total()

    def _check_counters(self) -> dict[str, int]:
        """Return the golden model's counters, but for what was left out; check that they add up."""
        got = {}
        for counter in COUNTERS:
            low = self._engine.read(counter_address(counter.name))
            got[counter.name] = self._engine.read(counter_address(counter.name) + 4) << 32 | low
        whole = sum(got[counter.name] for counter in FRAME_COUNTERS)
        assert got["frames_in"] == whole == self._golden.counters["frames_in"], got
        assert got["receive_overflow"] == 0, got
        drops = [f"{name}_dropped" for name in ("replays", "replies", "refusals", "results")]
        dropped = sum(got[name] for name in drops)
        assert dropped <= self._left_out, f"{dropped} dropped, {self._left_out} left out"
        expected = dict(self._golden.counters)
        expected["replays"] -= got["replays_dropped"]
        # Results that are queued when their slot goes on without them are discarded, too.
        expected |= {name: got[name] for name in (*drops, "results_discarded")}
        expected["frames_out"] -= self._left_out
        expected["bytes_out"] -= self._left_out_bytes
        expected |= {name: got[name] for name in self._golden.undefined}
        different = {
            name: (got[name], expected[name]) for name in got if got[name] != expected[name]
        }
        assert not different, f"counters, the engine's and the golden model's: {different}"
        assert self._engine.statistics().receive_stalls == 0
        return got

    # The operator's part.

    def _configure(self) -> None:
        mac = int.from_bytes(self._here.mac, "big")
        self._write(local_mac_low=mac % 2**32, local_mac_high=mac >> 32)
        self._write(local_port=self._here.port)
        self._write(local_address=int.from_bytes(self._here.address, "big"))

    def _new_traffic(self) -> Traffic:
        return Traffic(self._choose, self._golden, self._here, self._jobs, self._blocks)

    def _renew(self) -> None:
        """Other unruly jobs in the same slots, while the orderly one goes on."""
        works = [self._draw_work(job.work.number) for job in self._jobs.unruly]
        for work in works:
            self._write(job_index=work.number)
            self._command(Command.DESTROY)
            self._golden.destroy_job(work.number)
        gone = self._choose.choice(works)
        for work in works:
            if work is not gone:
                self._create(work)
        self._jobs = Jobs(self._jobs.orderly, [UnrulyJob(work) for work in works])
        self._traffic = self._new_traffic()

    def _draw_peer(self, first_port: int = 1, last_port: int = 65_535) -> Peer:
        choose = self._choose
        mac = bytes((choose.getrandbits(8) & 0xFE,)) + choose.randbytes(5)
        # No group, and not the network of strangers.
        first = choose.choice([n for n in range(1, 224) if n != 10])
        address = bytes((first,)) + choose.randbytes(3)
        return Peer(mac, address, choose.randint(first_port, last_port))

    def _draw_work(self, number: int) -> Work:
        choose = self._choose
        share = self._build["slots"] // self._build["jobs"]
        orderly = number == 0
        slots = share if orderly else choose.randint(1, share)
        most = self._build["workers"]
        count = min(5, most) if orderly else min(choose.choice((1, 2, 3, 8)), most)
        workers = tuple(self._draw_peer() for _ in range(count))
        tail = choose.randbytes(3)
        group = Peer(
            b"\x01\x00\x5e" + bytes((tail[0] & 0x7F,)) + tail[1:],
            bytes((choose.randrange(224, 240),)) + tail,
            choose.randrange(1, 2**16),
        )
        parent = self._draw_peer()
        return Work(
            number=number,
            key=choose.getrandbits(64),
            lanes=min(3, self._build["lanes"])
            if orderly
            else choose.randint(1, self._build["lanes"]),
            slot_base=share * number + (0 if orderly else choose.randint(0, share - slots)),
            slots=slots,
            first_round=choose.choice((0, 1, 2**31 - 1, 2**32 - 1, choose.getrandbits(32))),
            workers=workers,
            group=group if not orderly and choose.random() < 0.4 else None,
            group_key=choose.getrandbits(64),
            parent=parent if not orderly and choose.random() < 0.5 else None,
            parent_job=choose.getrandbits(8),
            parent_worker=choose.randrange(64),
            parent_key=choose.getrandbits(64),
        )

    def _create(self, work: Work) -> None:
        self._write(**parameters_of(work))
        self._command(Command.CREATE)
        twins = self._create_in_twins(work)
        for number, join in enumerate(self._joins(work)):
            answers = [twin.receive(join) for twin in twins]
            got = self._engine.play([join])
            assert got == answers[0], f"JOIN of worker {number} of job {work.number}: {got}"
        if work.parent:
            self._command(Command.JOIN_PARENT)
            assert self._engine.play([]) == [self._golden.join_parent(work.number)]

    def _create_in_twins(self, work: Work) -> list[GoldenEngine]:
        """Create the job in the twins that have it, and return these."""
        twins = [self._golden, self._alone] if work.number == 0 else [self._golden]
        group, parent = work.group, work.parent
        for twin in twins:
            twin.create_job(
                work.number,
                key=work.key,
                workers=len(work.workers),
                lanes=work.lanes,
                slot_base=work.slot_base,
                slot_count=work.slots,
                round=work.first_round,
                credit=16,
                group=GroupAddress(str(IPv4Address(group.address)), group.port) if group else None,
                group_key=work.group_key,
                parent=Parent(
                    Endpoint(parent.mac, str(IPv4Address(parent.address)), parent.port),
                    work.parent_job,
                    work.parent_worker,
                    work.parent_key,
                )
                if parent
                else None,
            )
        return twins

    def _joins(self, work: Work) -> list[bytes]:
        """Return JOINs of all workers of a job."""
        words = struct.pack("<16I", *(0,) * 16)
        return [
            pack_frame(
                worker,
                self._here,
                HEADER.pack(2 << 4 | JOIN, 0, work.number, number, 0, 0, 0, work.key, 0) + words,
            )
            for number, worker in enumerate(work.workers)
        ]

    def _write(self, **values: int) -> None:
        for name, value in values.items():
            self._engine.write(address_of(name), value)

    def _command(self, command: Command) -> None:
        self._write(job_command=command)
        for _ in range(100_000):
            if not self._engine.read(address_of("job_busy")):
                return
        raise AssertionError("the engine stays busy with a job command")


def parameters_of(work: Work) -> dict[str, int]:
    """Return what an operator writes to the registers to create a job, by their names."""
    group, parent = work.group, work.parent
    parent_mac = int.from_bytes(parent.mac, "big") if parent else 0
    return {
        "job_index": work.number,
        "job_key_low": work.key % 2**32,
        "job_key_high": work.key >> 32,
        "job_workers": len(work.workers),
        "job_lanes": work.lanes,
        "job_slot_base": work.slot_base,
        "job_slot_count": work.slots,
        "job_round": work.first_round,
        "job_credit": 16,
        "job_group_address": int.from_bytes(group.address, "big") if group else 0,
        "job_group_port": group.port if group else 0,
        "job_group_key_low": work.group_key % 2**32,
        "job_group_key_high": work.group_key >> 32,
        "job_parent_mac_low": parent_mac % 2**32,
        "job_parent_mac_high": parent_mac >> 32,
        "job_parent_address": int.from_bytes(parent.address, "big") if parent else 0,
        "job_parent_port": parent.port if parent else 0,
        "job_parent_job": work.parent_job,
        "job_parent_worker": work.parent_worker,
        "job_parent_key_low": work.parent_key % 2**32,
        "job_parent_key_high": work.parent_key >> 32,
    }
