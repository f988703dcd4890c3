"""Samples a running engine, frame by frame, for the functional-coverage model.

The samples are the engine's, not the stimulus': the verdict is the frame counter that has grown;
the state of the slot and how far it has come are its debug registers before and after; the blocks
are those that it has counted; the level of its queue is a register; opcode, dtype and kind of a
result are those of frames that have left; the phase is that of the cycle in which the frame's last
beat was taken. Only whether an earlier copy of a contribution was lost is known to the sender
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from afflux_hdl.contract.registers import FRAME_COUNTERS, address_of, counter_address
from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.coverage.bins import Model
from tests.coverage.engine_bins import KINDS, opcode_name
from tests.scenarios.job_frames import Job

__all__ = ["Observer", "SentFrame"]

SETTLE_CYCLES = 24
"""More than a frame takes from its last beat to its verdict, and the write of its slot's state."""

RESULT, CONFLICT, PROBE = 8, 9, 1
_ROUND, _SEEN_LOW, _SEEN_HIGH, _STATE = (
    address_of(name) for name in ("debug_round", "debug_seen_low", "debug_seen_high", "debug_phase")
)
_VERDICTS = {each.name: counter_address(each.name) for each in FRAME_COUNTERS}
_KINDS = {
    "accepted": "contribution",
    "duplicates": "duplicate",
    "probes": "probe",
    "joins": "join",
    **dict.fromkeys(("bad_job", "bad_key", "bad_worker", "bad_version"), "refusal"),
    **dict.fromkeys(("mac_error", "not_ours", "bad_ip", "bad_length", "bad_checksum"), "foreign"),
}


@dataclass(frozen=True)
class SentFrame:
    """A frame, and of which job and slot it says that it is; None where it is of none.

    Attributes:
        frame: Its bytes.
        job: The job.
        slot: Slot of the job.
        again: An earlier copy of this contribution was lost on its way.
        mac_error: The MAC marks it as bad.
    """

    frame: bytes
    job: Job | None = None
    slot: int = 0
    again: bool = False
    mac_error: bool = False


class Observer:
    """Plays frames and adds samples to a model.

    Args:
        engine: The engine.
        model: The model.
        bus_bits: Width of the engine's bus.
        slots: Slots of the engine: three quarters of what the queue of deliveries holds for them
            is near full.
    """

    def __init__(self, engine: VerilatedEngine, model: Model, *, bus_bits: int, slots: int) -> None:
        self._engine = engine
        self._beat_bytes = bus_bits // 8
        self._model = model
        self._near_full = 3 * 2 * slots // 4
        self._verdicts = self._read_verdicts()
        self._blocks = self._low("blocks_accepted")
        self._jobs: dict[int, Job] = {}
        self.verdict_names = frozenset(_VERDICTS)

    def know(self, jobs: Sequence[Job]) -> None:
        """Say which jobs there are."""
        self._jobs = {job.number: job for job in jobs}

    def restart(self) -> None:
        """Forget what the counters were: they have been cleared."""
        self._verdicts = self._read_verdicts()
        self._blocks = self._low("blocks_accepted")

    def queue(self) -> str:
        """Level of the queue of deliveries."""
        level = self._engine.read(address_of("delivery_level"))
        return "empty" if not level else "near full" if level >= self._near_full else "some"

    def link(self) -> str:
        """State of the link."""
        engine = self._engine
        if not engine.read(address_of("transmit_state")):
            return "up"
        commanded = engine.read(address_of("transmit_control"))
        return "down by command" if commanded else "down by itself"

    def discard(self, discard: bool) -> None:
        """Have all output discarded, or not, on the operator's command."""
        self._engine.write(address_of("transmit_control"), discard)

    def wait_until_down(self) -> None:
        """Let cycles pass until the link is down by itself, or it is clear that nothing waits."""
        for _ in range(Parameters.link_timeout + SETTLE_CYCLES):
            if self._engine.read(address_of("transmit_state")):
                return

    def play(self, sent: SentFrame, ready_share: float, gap_share: float, seed: int) -> str:
        """Play one frame; return the name of the counter that has grown.

        Raises:
            AssertionError: If not exactly one has.
        """
        engine, job = self._engine, sent.job
        sample = {"queue": self.queue(), "link": self.link()}
        before = self._state(sent)
        stimulus = Stimulus(ready_share=ready_share, gap_share=gap_share, seed=seed, drain=False)
        out = engine.play([sent.frame], stimulus, [sent.mac_error])
        sample["phase"] = ("even", "odd")[engine.cycles % 2]
        verdict = self._settled()
        after = self._state(sent)
        sample |= {"verdict": verdict} | self._network(ready_share)
        self._model.add(sample | self._shape(sent.frame, gap_share))
        blocks = self._low("blocks_accepted")
        added, self._blocks = blocks - self._blocks, blocks
        if job is not None and verdict in _OF_ROUNDS:
            sample |= _of_job(job) | {"opcode": opcode_name(sent.frame[43])}
            sample |= _of_round(verdict, sent, before, after)
            if verdict == "accepted":
                sample["present"] = _present(added, job)
            self._model.add(sample)
        elif job is not None:
            self._model.add(sample | _of_job(job))
        self._see(out)
        return verdict

    def play_pair(self, frames: Sequence[SentFrame], ready_share: float, seed: int) -> list[str]:
        """Play two frames back to back; return the counters that have grown."""
        stimulus = Stimulus(ready_share=ready_share, seed=seed, drain=False)
        before, link = self._verdicts, self.link()
        errors = [each.mac_error for each in frames]
        out = self._engine.play([each.frame for each in frames], stimulus, errors)
        for _ in range(2 * SETTLE_CYCLES):
            self._engine.read(_ROUND)
        self._verdicts = self._read_verdicts()
        grown = [name for name in before for _ in range(self._verdicts[name] - before[name])]
        assert len(grown) == 2, f"two frames, counted as {grown}"
        self._blocks = self._low("blocks_accepted")
        kinds = [_KINDS.get(name) for name in grown]
        if None not in kinds:
            first, second = sorted(map(str, kinds), key=KINDS.index)
            pair = {"pair": f"{first} + {second}", "link": link}
            self._model.add(pair | self._network(ready_share))
        self._see(out)
        return grown

    def drain(self) -> None:
        """Let everything leave."""
        self._see(self._engine.play([]))

    def end(self, how: str) -> None:
        """Say that all jobs are about to end."""
        where = {"queue": self.queue(), "link": self.link()}
        # Frames that left while registers were read are still to be collected; the network is as it
        # was.
        self._see(self._engine.play([], Stimulus(ready_share=0.0, drain=False)))
        for job in self._jobs.values():
            self._model.add({"ends": how} | where | _of_job(job))

    def reset(self, frames: Sequence[bytes], at: int, stimulus: Stimulus) -> None:
        """Play frames and reset the engine meanwhile; its registers then say what was cut off.

        Args:
            frames: The incoming frames.
            at: In which of them the reset ends.
            stimulus: Pace, and when.
        """
        where = {"queue": self.queue(), "link": self.link()}
        cut = self._engine.statistics().frames_cut
        self._engine.play(frames, stimulus)
        # The end of a frame that was leaving leaves first.
        self._engine.run(SETTLE_CYCLES)
        amid_out = self._engine.statistics().frames_cut != cut
        amid_in = bool(self._low("mac_error"))
        names = {
            (False, False): "between frames",
            (True, False): "amid one in",
            (False, True): "amid one out",
            (True, True): "amid both",
        }
        shape = self._shape(frames[at], stimulus.gap_share)
        self._model.add(where | shape | {"reset": names[amid_in, amid_out]})

    def _see(self, frames: Sequence[bytes]) -> None:
        """Sample what has left."""
        for frame in frames:
            kind = frame[42] & 15
            job = self._jobs.get(frame[44])
            if kind not in (RESULT, CONFLICT) or job is None:
                continue
            sample = {"opcode": opcode_name(frame[43]), "dtype": str(frame[43] & 15)}
            self._model.add(sample)
            result = {"result": "RESULT" if kind == RESULT else "CONFLICT"}
            self._model.add(result | _of_job(job))

    def _network(self, ready_share: float) -> dict[str, str]:
        names = {1.0: "takes all", 0.0: "takes nothing"}
        return {"network": names.get(ready_share, "takes some")}

    def _shape(self, frame: bytes, gap_share: float) -> dict[str, str]:
        beats = -(-len(frame) // self._beat_bytes)
        named = str(beats) if beats < 4 else "4–9" if beats < 10 else "10–"
        return {"beats": named, "gaps": "gaps" if gap_share else "back to back"}

    def _settled(self) -> str:
        for _ in range(SETTLE_CYCLES):
            self._engine.read(_ROUND)
        now = self._read_verdicts()
        grown = [name for name in now if now[name] != self._verdicts[name]]
        self._verdicts = now
        assert len(grown) == 1, f"one frame, counted as {grown}"
        return grown[0]

    def _state(self, sent: SentFrame) -> tuple[int, bool]:
        """Return the round of the frame's slot, and whether all contributions to it are in."""
        job = sent.job
        if job is None or sent.slot >= job.slots:
            return 0, False
        self._engine.write(address_of("debug_slot"), job.slot_base + sent.slot)
        # The registers' values are read a few cycles after the slot is chosen.
        for _ in range(6):
            self._engine.read(_STATE)
        return self._engine.read(_ROUND), bool(self._engine.read(_STATE) & 1)

    def _read_verdicts(self) -> dict[str, int]:
        return {name: self._engine.read(address) for name, address in _VERDICTS.items()}

    def _low(self, name: str) -> int:
        return self._engine.read(counter_address(name))


_OF_ROUNDS = ("accepted", "duplicates", "probes", "premature", "stale")


def _of_job(job: Job) -> dict[str, str]:
    count = job.workers
    sizes = {1: "1", 2: "2", 64: "64"}
    return {
        "workers": sizes.get(count, "3–7" if count < 8 else "8–63"),
        "way": "parent" if job.parent else "group" if job.group else "unicast",
    }


def _of_round(
    verdict: str, sent: SentFrame, before: tuple[int, bool], after: tuple[int, bool]
) -> dict[str, str]:
    probe = sent.frame[42] & 15 == PROBE
    distance = (int.from_bytes(sent.frame[50:54], "little") - before[0]) % 2**32
    if verdict == "accepted":
        complete = after[1]
        opens = after[0] != before[0]
        state = "completes" if complete else "opens" if opens else "joins"
    elif verdict in ("premature", "stale"):
        state = verdict
    else:
        state = "duplicate" if distance == 0 else "previous"
    if probe:
        loss = "probe"
    elif state in ("duplicate", "previous"):
        loss = "result lost"
    else:
        loss = "contribution lost" if sent.again and verdict == "accepted" else "none"
    return {"round": state, "loss": loss}


def _present(blocks: int, job: Job) -> str:
    return {0: "none", job.lanes: "all", 1: "one"}.get(blocks, "some")
