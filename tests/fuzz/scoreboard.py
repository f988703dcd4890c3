"""An engine's debts between two rests, and its options: the storm's scoreboard."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from afflux_sim.golden.engine import GoldenEngine
from tests.fuzz.answers import compare, read_answer
from tests.scenarios.packing import Peer

__all__ = ["Counts", "Scoreboard"]

Counts = dict[str, int]
"""Counters by their names."""

EXACT_DROPS = ("frames_discarded", "replays_dropped", "replies_dropped", "refusals_dropped")
"""One for each frame that is left out."""

VAGUE_DROPS = ("results_dropped", "results_discarded")
"""One for each delivery, which is a frame for each worker or one for all."""

NOT_JUDGED = ("frames_out", "bytes_out", "replays", *EXACT_DROPS, *VAGUE_DROPS)
"""Counters of what leaves. All others depend on what has come alone."""


@dataclass
class Scoreboard:
    """Everything between two rests of the engine.

    Attributes:
        golden: Its twin.
        here: Where the engine is.
        lanes: Its number of lanes.
        lossy: Output was discarded, or may have been, so any frame may be missing.
        caused: Frames by whom they were caused: job number or None, and whether they must come.
        gone: The same of jobs that have been destroyed since: they may come.
        contested: For each command that has destroyed a job, of each frame to it meanwhile: what
            the frame counts as while the job is there, and what without it. All of a command's that
            came before some moment were the one, and all behind it the other.
        doubtful: Number of frames that contested ones cause in one of these cases.
    """

    golden: GoldenEngine
    here: Peer
    lanes: int
    lossy: bool = False
    caused: list[tuple[int | None, bytes, bool]] = field(default_factory=list)
    gone: list[bytes] = field(default_factory=list)
    contested: list[list[tuple[Counts, Counts]]] = field(default_factory=list)
    doubtful: int = 0

    def owe(self, frames: Sequence[bytes], *, must: bool) -> None:
        """Note what a frame, or a command, has caused."""
        for frame in frames:
            answer = read_answer(frame, self.here, self.lanes)
            up = answer.source_port != self.here.port
            job = (answer.source_port - self.here.port - 1) % 2**16 if up else answer.job
            # The other reasons for a short answer's absence are counted, too.
            self.caused.append((None if answer.short else job, frame, must and not answer.short))

    def owe_perhaps(self, frames: Sequence[bytes]) -> None:
        """Note what a contested frame causes in one of its two cases."""
        self.owe(frames, must=False)
        self.doubtful += len(frames)

    def destroyed(self, job: int) -> None:
        """Note that a job is no more: what it owed may or may not have left."""
        self.gone += [frame for number, frame, _ in self.caused if number == job]
        self.caused = [each for each in self.caused if each[0] != job]

    def settle(self, got: Sequence[bytes], grown: Counts, expected: Counts) -> None:
        """Compare what has left since the last rest, and the counters, with what was due.

        Args:
            got: All frames, in order.
            grown: By how much the engine's counters have grown.
            expected: The same of the twin's, as if contested frames had found their job.

        Raises:
            AssertionError: If anything differs that may not.
        """
        self.compare_frames(got)
        self._check_order(got)
        missing = len(self.caused) + len(self.gone) - len(got)
        counted = sum(grown[name] for name in EXACT_DROPS)
        vague = sum(grown[name] for name in VAGUE_DROPS) * 64 + self.doubtful
        assert counted - vague <= missing <= counted + vague, (
            f"{missing} frames are missing, {counted} are counted, {vague} may be: {grown}"
        )
        assert grown["frames_out"] == len(got), f"{grown['frames_out']} sent, {len(got)} came"
        size = sum(map(len, got))
        # Of a frame that was cut, what has left counts as bytes.
        assert grown["bytes_out"] == size or (self.lossy and grown["bytes_out"] > size)
        self._compare_counters(grown, expected)

    def compare_frames(self, got: Sequence[bytes]) -> None:
        """Check that nothing has left without cause, and that nothing is missing that must come."""
        gone = Counter(self.gone)
        of_gone = Counter(got) & gone
        rest = list((Counter(got) - of_gone).elements())
        headers: Counter[bytes] = Counter()
        for frame in (gone - of_gone).elements():
            headers[frame[:64]] += 1
        required: Counter[bytes] = Counter()
        droppable: Counter[bytes] = Counter()
        for _, frame, must in self.caused:
            (required if must and not self.lossy else droppable)[frame] += 1
        exact = []
        for frame in rest:
            # Its slot has gone on, or is another job's, while it was being sent.
            if frame not in required and frame not in droppable and headers[frame[:64]]:
                headers[frame[:64]] -= 1
            else:
                exact.append(frame)
        compare(self.golden, self.here, self.lanes, exact, required, droppable)

    def _check_order(self, got: Sequence[bytes]) -> None:
        """Check that a job's results come in their rounds' order: those that are sent once only."""
        counts = Counter(frame for _, frame, _ in self.caused)
        place: dict[bytes, tuple[int, int]] = {}
        for at, (job, frame, must) in enumerate(self.caused):
            if must and job is not None and counts[frame] == 1:
                place[frame] = job, at
        latest: dict[int, int] = {}
        for frame in got:
            if frame in place:
                job, at = place[frame]
                assert at > latest.get(job, -1), f"out of order: {frame[:64].hex(' ', 4)}"
                latest[job] = at

    def _compare_counters(self, grown: Counts, expected: Counts) -> None:
        judged = [name for name in grown if name not in {*NOT_JUDGED, *self.golden.undefined}]
        wanted = {name: expected[name] for name in judged}
        for choice in product(*(_changes(group) for group in self.contested)):
            other = dict(wanted)
            for change in choice:
                for name in wanted:
                    other[name] += change[name]
            different = _different(grown, other)
            if not different:
                return
        raise AssertionError(f"counters, the engine's and the twin's: {different}")


def _changes(group: Sequence[tuple[Counts, Counts]]) -> list[Counter[str]]:
    """Return by how much counters differ if none, the last, the last two … found no job."""
    change: Counter[str] = Counter()
    changes = [change]
    for with_job, without in reversed(group):
        change = Counter(change)
        change.update(without)
        change.subtract(with_job)
        changes.append(change)
    return changes


def _different(grown: Counts, wanted: Counts) -> dict[str, tuple[int, int]]:
    return {name: (grown[name], wanted[name]) for name in wanted if grown[name] != wanted[name]}
