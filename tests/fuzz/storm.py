"""A storm: everything that an engine may meet, drawn together.

The fuzzer plays batches of random frames into an engine that comes to rest in between. In a storm
an *episode* lies between two rests: several plays, with bursts of the smallest frames, gaps, marks
of the MAC, near misses and strangers among the jobs' frames; a network that takes all, some, or
nothing until the link is down by itself; an operator who discards output, destroys and creates
jobs, joins parents and looks at slots while frames arrive; and resets between any two beats.

Every frame and every counter is compared with the golden model at the end of an episode. Missing
frames are those that the engine counts as discarded or dropped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from afflux_hdl.contract.registers import COUNTERS, Command, address_of, counter_address
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.fuzz.answers import read_answer
from tests.fuzz.fuzzer import BUILD, Fuzzer, parameters_of
from tests.fuzz.scoreboard import Counts, Scoreboard
from tests.fuzz.small_frames import burst, near_miss
from tests.fuzz.traffic import UnrulyJob, Work
from tests.scenarios.director import Build
from tests.scenarios.packing import Peer

__all__ = ["LINK_TIMEOUT", "Storm", "StormReport"]

LINK_TIMEOUT = 300
"""Of the engines in a long storm: short, so that links are often down."""

LONG_WAIT = 256
"""Cycles of a beat's wait that the shims count."""

BUSY_READS = 30_000
"""More than a command takes, besides waiting for the link to be down. A read takes a cycle."""

SETTLE_READS = 40
"""More than the cycles from a frame's last beat to its verdict; a read takes one."""

Write = tuple[int, int, int]
"""Of a register amid frames: from which cycle of the play on, its address, the value."""


@dataclass
class StormReport:
    """The events of a storm.

    Attributes:
        frames: Frames in.
        answers: Frames out.
        events: How often each thing has happened, by name.
    """

    frames: int
    answers: int
    events: Counter[str]


class Storm(Fuzzer):
    """One engine, its golden twin, and all at once.

    Args:
        engine: Fresh.
        seed: Determines every byte and every cycle.
        build: The engine's sizes.
        link_timeout: Cycles after which its link is down, as it is built.
        here: Where the engine is; None: drawn.
    """

    def __init__(
        self,
        engine: VerilatedEngine,
        seed: int,
        build: Build = BUILD,
        link_timeout: int = LINK_TIMEOUT,
        here: Peer | None = None,
    ) -> None:
        self._link_timeout = link_timeout
        self.events: Counter[str] = Counter()
        self._waits = 0
        super().__init__(engine, seed, build=build, here=here)
        self._before = self._read_counters()

    def storm(self, frames: int) -> StormReport:
        """Play episodes until about so many frames have been played.

        Raises:
            AssertionError: If the engine does what it must not.
            SimulationError: If it hangs.
        """
        while self._frames < frames:
            self._episode()
        return StormReport(self._frames, self._answers, self.events)

    # An episode.

    def _episode(self) -> None:
        choose = self._choose
        self._jobs.orderly.rest()
        for job in self._jobs.unruly:
            job.rest(self._golden)
        self._scoreboard = Scoreboard(self._golden, self._here, self._build["lanes"])
        self._of_orderly: Counter[bytes] = Counter()
        self._got: list[bytes] = []
        self._last = []
        self._known = self._endpoints()
        self._caused_before: set[tuple[int, int, int]] = set()
        start = dict(self._golden.counters)
        for _ in range(choose.randint(1, 5)):
            event = choose.random()
            if event < 0.12:
                self._destroy_amid_frames()
            elif event < 0.3:
                self._create_amid_frames()
            elif event < 0.36:
                self._join_parent_amid_frames()
            else:
                self._play()
            self._known |= self._endpoints()
        if choose.random() < 0.15:
            self._reset_amid_frames()
            return
        self._rest(start)

    def _rest(self, start: Counts) -> None:
        """Let everything leave, and compare."""
        self._write(transmit_control=0)
        self._got += self._engine.play([])
        waits = self._engine.statistics().long_waits
        # Whether the link was up is seen at the pins, and frames must not be discarded then.
        self._scoreboard.lossy |= waits != self._waits
        self._waits = waits
        assert self._read("transmit_state") == 0
        # The registers show what was a cycle before.
        assert self._read("delivery_level") == 0 == self._read("receive_level")
        now = self._read_counters()
        grown = {name: now[name] - self._before[name] for name in now}
        self._before = now
        expected = {name: self._golden.counters[name] - start[name] for name in start}
        self._check_endpoints()
        self._scoreboard.settle(self._got, grown, expected)
        self._golden.undefined.clear()
        self._check_orderly_in_storm()
        self._answers += len(self._got)
        self.events["discarded"] += grown["frames_discarded"]
        self.events["episodes"] += 1

    def _play(
        self,
        writes: Sequence[Write] = (),
        contested: Work | None = None,
        avoided: Work | None = None,
        first: Sequence[bytes] = (),
    ) -> None:
        """Play some frames at some pace.

        Args:
            writes: Registers that are written meanwhile.
            contested: The job that a command destroys meanwhile.
            avoided: A job to which nothing is sent.
            first: Frames that come before those that are drawn.
        """
        choose = self._choose
        frames, errors = self._draw_frames(contested, avoided, first)
        ready = choose.choice((1.0, 1.0, 0.7, 0.3, 0.05, 0.0))
        gaps = choose.choice((0.0, 0.0, 0.0, 0.2, 0.6))
        pace = Stimulus(ready_share=ready, gap_share=gaps, seed=choose.getrandbits(64), drain=False)
        cycles = sum(-(-len(frame) // self._beat_bytes) for frame in frames)
        # Stable: a command's parameters come before it.
        meanwhile = sorted([*writes, *self._draw_writes(cycles)], key=itemgetter(0))
        self.events[f"takes {ready:.0%}"] += 1
        self._got += self._engine.play(frames, pace, errors, meanwhile)
        self._frames += len(frames)
        if ready == 0 and choose.random() < 0.3:
            self._wait_until_down()
        elif choose.random() < 0.2:
            # At rest for a moment, and the pace as it was.
            for _ in range(choose.randrange(60)):
                counter = choose.choice(COUNTERS).name
                self._engine.read(counter_address(counter) + choose.choice((0, 4)))

    def _wait_until_down(self) -> None:
        """Wait while the network takes nothing; if a beat waits, the link is down in the end."""
        before = self._engine.statistics()
        end = before.cycles + self._link_timeout + LONG_WAIT + 20
        while self._engine.statistics().cycles < end and not self._read("transmit_state"):
            for _ in range(20):
                self._read("identity")
        down = self._read("transmit_state")
        assert down or self._engine.statistics().long_waits == before.long_waits, "the link is up"
        self.events["link down by itself"] += down

    @cached_property
    def _beat_bytes(self) -> int:
        return self._engine.read(address_of("build_bus_bits")) // 8

    def _draw_writes(self, cycles: int) -> list[Write]:
        """Draw what an operator writes meanwhile, besides commands."""
        choose = self._choose
        writes: list[Write] = []
        if choose.random() < 0.3:
            for _ in range(3):
                name, bound = choose.choice(
                    (("debug_slot", self._build["slots"]), ("debug_worker", 1 << 9))
                )
                writes.append(
                    (choose.randrange(cycles + 1), address_of(name), choose.randrange(bound))
                )
        if choose.random() < 0.12:
            self._scoreboard.lossy = True
            self.events["link down by command"] += 1
            down = choose.randrange(cycles + 1)
            writes.append((down, address_of("transmit_control"), 1))
            if choose.random() < 0.6:
                up = down + choose.choice((1, 2, 9, choose.randrange(1, cycles + 2)))
                writes.append((up, address_of("transmit_control"), 0))
        return writes

    def _draw_frames(
        self, contested: Work | None, avoided: Work | None, first: Sequence[bytes]
    ) -> tuple[list[bytes], list[bool]]:
        choose = self._choose
        frames: list[bytes] = []
        errors: list[bool] = []
        for frame, own, error in self._draws(first, choose.choice((1, 4, 15, 40))):
            if not own and self._moves(frame, error) and frame not in first:
                continue
            if avoided is not None and self._concerns(frame, avoided.number):
                continue
            if contested is not None and self._concerns(frame, contested.number):
                self._receive_contested(frame, error, contested)
            else:
                self._receive(frame, own, error)
            frames.append(frame)
            errors.append(error)
        if not frames:
            frames, errors = [choose.randbytes(60)], [False]
            self._receive(frames[0], False, False)
        self._last += frames
        return frames, errors

    def _draws(self, first: Sequence[bytes], count: int) -> Iterator[tuple[bytes, bool, bool]]:
        """Draw each when the twin has taken those before: what is drawn depends on its rounds."""
        yield from ((frame, False, False) for frame in first)
        for _ in range(count):
            yield from self._draw_some()

    def _draw_some(self) -> list[tuple[bytes, bool, bool]]:
        choose = self._choose
        draw = choose.random()
        if draw < 0.85:
            return [self._draw()]
        sensible = self._traffic.sensible()
        if draw < 0.95:
            return [(near_miss(choose, sensible), False, choose.random() < 0.05)]
        self.events["bursts"] += 1
        stranger = self._draw_peer()
        key = choose.choice((self._jobs.orderly.work.key, choose.getrandbits(64)))
        frames = burst(choose, sensible, stranger, self._here, key)
        return [(frame, False, choose.random() < 0.05) for frame in frames]

    def _receive(self, frame: bytes, own: bool, error: bool) -> None:
        golden = self._golden
        if not self._reaches(frame):
            return
        replays = golden.counters["replays"]
        caused = golden.receive(frame, error)
        must = golden.counters["replays"] == replays
        if caused and must:
            must = not self._second_of_its_place(caused[0])
        self._scoreboard.owe(caused, must=must)
        if own:
            self._of_orderly.update(self._alone.receive(frame))

    def _second_of_its_place(self, frame: bytes) -> bool:
        """Return whether its slot and version had a result, or partial sum, in this episode."""
        answer = read_answer(frame, self._here, self._build["lanes"])
        if answer.short:
            return False
        # A parent that answers before it has been asked makes a result meet the partial sum.
        up = answer.source_port != self._here.port
        job = (answer.source_port - self._here.port - 1) % 2**16 if up else answer.job
        place = job, answer.slot, answer.round & 1
        again = place in self._caused_before
        self._caused_before.add(place)
        return again

    def _receive_contested(self, frame: bytes, error: bool, work: Work) -> None:
        """Let the twin judge it with the job and without: nobody knows which it is."""
        golden = self._golden
        if not self._reaches(frame):
            return
        before = dict(golden.counters)
        job, golden.jobs[work.number] = golden.jobs[work.number], None
        self._scoreboard.owe_perhaps(golden.receive(frame, error))
        without = _grown(before, golden.counters)
        golden.counters.update(before)
        golden.jobs[work.number] = job
        self._scoreboard.owe_perhaps(golden.receive(frame, error))
        self._scoreboard.contested[-1].append((_grown(before, golden.counters), without))

    def _reaches(self, frame: bytes) -> bool:
        """Return whether a frame is one for the engine to judge."""
        return True

    def _concerns(self, frame: bytes, number: int) -> bool:
        port = int.from_bytes(frame[36:38], "big")
        return len(frame) > 44 and (
            frame[44] == number or port == (self._here.port + 1 + number) % 2**16
        )

    # Commands amid frames.

    def _destroy_amid_frames(self) -> None:
        work = self._choose.choice(self._jobs.unruly).work
        if self._golden.jobs[work.number] is None:
            return
        # Of what came before, each frame has been judged: only those of this play are contested.
        for _ in range(SETTLE_READS):
            self._read("identity")
        self._scoreboard.contested.append([])
        self._play(self._command_writes({"job_index": work.number}, Command.DESTROY), work)
        self._wait(work)
        self._scoreboard.destroyed(work.number)
        self._golden.destroy_job(work.number)
        self.events["destroyed amid frames"] += 1

    def _create_amid_frames(self) -> None:
        gone = [n for n, each in enumerate(self._jobs.unruly) if each.work.number in self._free()]
        if not gone:
            return
        at = self._choose.choice(gone)
        work = self._draw_work(self._jobs.unruly[at].work.number)
        self._play(self._command_writes(parameters_of(work), Command.CREATE), avoided=work)
        self._wait(work)
        self._create_in_twins(work)
        unruly = UnrulyJob(work)
        # Its slots may go through as many rounds before the rest as those of the others.
        unruly.rest(self._golden)
        self._jobs.unruly[at] = unruly
        self._known |= self._endpoints()
        self._play(first=self._joins(work))
        self.events["created amid frames"] += 1

    def _join_parent_amid_frames(self) -> None:
        works = [each.work for each in self._jobs.unruly if each.work.parent]
        works = [work for work in works if self._golden.jobs[work.number]]
        if not works:
            return
        work = self._choose.choice(works)
        self._scoreboard.owe([self._golden.join_parent(work.number)], must=False)
        self._play(self._command_writes({"job_index": work.number}, Command.JOIN_PARENT))
        self._wait(None)
        self.events["parents joined amid frames"] += 1

    def _free(self) -> set[int]:
        return {number for number, job in enumerate(self._golden.jobs) if job is None}

    def _command_writes(self, parameters: Counts, command: Command) -> list[Write]:
        at = self._choose.choice((0, 1, 5, self._choose.randrange(200)))
        values = [*parameters.items(), ("job_command", int(command))]
        # All at or after one cycle: the order is kept.
        return [(at, address_of(name), value) for name, value in values]

    def _wait(self, work: Work | None) -> None:
        """Wait until the command has ended; frames go on, but to the job that it is about."""
        for _ in range(3):
            if not self._read("job_busy"):
                return
            if work is not None:
                self._play(avoided=work)
        for _ in range(self._link_timeout + BUSY_READS):
            if not self._read("job_busy"):
                return
        raise AssertionError("the engine stays busy with a job command")

    # A reset.

    def _reset_amid_frames(self) -> None:
        """Reset between any two beats: what leaves is right, and nothing of before is counted."""
        choose = self._choose
        frames, errors = self._draw_frames(None, None, ())
        beats = sum(-(-len(frame) // self._beat_bytes) for frame in frames)
        gaps = choose.choice((0.0, 0.0, 0.3))
        at = choose.randrange(1, max(2, beats))
        pace = Stimulus(
            ready_share=choose.choice((1.0, 0.5, 0.1)), gap_share=gaps,
            seed=choose.getrandbits(64), reset_at=at,
        )  # fmt: skip
        self._got += self._engine.play(frames, pace, errors)
        self._frames += len(frames)
        self._check_endpoints()
        self._scoreboard.lossy = True
        # Whole frames of before, and no others.
        self._scoreboard.compare_frames(self._got)
        self._check_behind_reset(frames, errors)
        self._answers += len(self._got)
        self.events["resets"] += 1
        self._begin()
        self._before = self._read_counters()

    def _check_behind_reset(self, frames: Sequence[bytes], errors: Sequence[bool]) -> None:
        """Check that of the frames the last ones are counted, and perhaps a tail: nobody's."""
        counts = self._read_counters()
        nothing = {"frames_in", "bytes_in", "mac_error", "not_ours", "frames_out", "bytes_out"}
        others = {name: count for name, count in counts.items() if count and name not in nothing}
        assert not others and counts["frames_out"] == 0, f"after a reset: {others}"
        for first in range(len(frames) + 1):
            behind, marked = len(frames) - first, sum(errors[first:])
            size = sum(map(len, frames[first:]))
            for tail in (0, 1) if first else (0,):
                if (
                    counts["frames_in"] == behind + tail
                    and counts["mac_error"] == marked + tail
                    and counts["not_ours"] == behind - marked
                    and 0 <= counts["bytes_in"] - size <= tail * self._beat_bytes
                ):
                    self.events["tails of frames"] += tail
                    return
        raise AssertionError(f"frames after a reset: {counts}")

    # The values to look at.

    def _endpoints(self) -> set[tuple[bytes, bytes, int]]:
        """Where results may go: workers that have joined, groups, parents."""
        known = set()
        for job in self._golden.jobs:
            if job is None:
                continue
            ends = [*job.joined.values()]
            ends += [each.endpoint for each in (job.group, job.parent) if each]
            known |= {(end.mac, end.packed_address, end.port) for end in ends}
        return known

    def _check_endpoints(self) -> None:
        asking = {
            (each[6:12], each[26:30], int.from_bytes(each[34:36], "big")) for each in self._last
        }
        for frame in self._got:
            where = frame[0:6], frame[30:34], int.from_bytes(frame[36:38], "big")
            assert where in self._known or where in asking, f"to a stranger: {frame[:64].hex()}"

    def _check_orderly_in_storm(self) -> None:
        addresses = {peer.address for peer in self._jobs.orderly.work.workers}
        results = Counter(
            frame for frame in self._got if frame[30:34] in addresses and frame[42] & 15 in (8, 9)
        )
        missing = self._of_orderly - results
        assert not results - self._of_orderly, "the orderly job has results that are not its own"
        assert self._scoreboard.lossy or not missing, f"{missing.total()} results are missing"
        self._results += results.total()

    def _read_counters(self) -> Counts:
        counts = {}
        for counter in COUNTERS:
            low = self._engine.read(counter_address(counter.name))
            counts[counter.name] = self._engine.read(counter_address(counter.name) + 4) << 32 | low
        return counts

    def _read(self, name: str) -> int:
        return self._engine.read(address_of(name))


def _grown(before: Counts, after: Counts) -> Counts:
    return {name: after[name] - before[name] for name in before if after[name] != before[name]}
