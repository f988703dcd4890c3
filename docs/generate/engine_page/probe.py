"""Drives the engine's RTL, and records its pins and registers in each cycle."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.layouts import Cause
from afflux_hdl.engine.parameters import Parameters

__all__ = ["Change", "EngineProbe", "Judged"]

Change = tuple[str | int, ...]
"""A change inside the engine: its kind, its cycle, and what has changed:

    "state", cycle, slot, round, seen, missing, present of version 0, present of version 1
    "words", cycle, slot, version, a look-ahead word for each lane
    "sum",   cycle, slot, version, lane, beat, the beat's first element
    "queue", cycle, results and replays that wait
    "stage", cycle, name of the stage, whether it works
"""


@dataclass(frozen=True)
class Judged:
    """The verdict on a frame: the name of the counter that has grown, and in which cycle."""

    cycle: int
    cause: str


@dataclass
class EngineProbe:
    """An engine whose pins are driven by whole frames, and watched.

    Attributes:
        engine: The engine, which more than one recording may be of.
        parameters: Those that it was built with.
        lanes: Lanes of its job.
        recording: Whether cycles are recorded.
        cycle: Cycles since the recording began.
        changes: All changes inside, in order.
        judged: The verdicts on the frames, in order of arrival.
    """

    engine: Engine
    parameters: Parameters
    lanes: int
    recording: bool = False
    cycle: int = 0
    changes: list[Change] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._beats: deque[tuple[int, bool]] = deque()
        self._taken: list[int] = []
        self._last: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        """Whether a frame is driven in, so that no other can begin in this cycle."""
        return bool(self._beats)

    def drive(self, frame: bytes) -> int:
        """Begin to drive a frame in with this cycle; return how many cycles that takes."""
        size = self.parameters.bus_bytes
        starts = range(0, len(frame), size)
        for at in starts:
            beat = int.from_bytes(frame[at : at + size], "little")
            self._beats.append((beat, at + size >= len(frame)))
        return len(starts)

    async def tick(self, ctx: Any) -> bytes | None:
        """Let a cycle pass; return the frame whose last beat left in it, if one did."""
        rx = self.engine.rx
        ctx.set(rx.valid, self.busy)
        if self._beats:
            data, last = self._beats.popleft()
            ctx.set(rx.payload.data, data)
            ctx.set(rx.payload.keep, (1 << self.parameters.bus_bytes) - 1)
            ctx.set(rx.payload.last, last)
        if self.recording:
            self._look(ctx)
        frame = self._take(ctx)
        await ctx.tick()
        self.cycle += self.recording
        return frame

    @property
    def leaving(self) -> bool:
        """Whether a frame has begun to leave and has not ended."""
        return bool(self._taken)

    def _take(self, ctx: Any) -> bytes | None:
        tx = self.engine.tx
        if not ctx.get(tx.valid):
            return None
        self._taken.append(ctx.get(tx.payload.data))
        if not ctx.get(tx.payload.last):
            return None
        size = self.parameters.bus_bytes
        whole = b"".join(beat.to_bytes(size, "little") for beat in self._taken)
        self._taken.clear()
        # The last beat is as wide as the others; the IPv4 header says where the frame ends.
        return whole[: 14 + int.from_bytes(whole[16:18], "big")]

    def _look(self, ctx: Any) -> None:
        stages = self.engine.stages
        admit, merge = stages["admit"], stages["merge"]
        if ctx.get(admit.judged):
            self.judged.append(Judged(self.cycle, Cause(ctx.get(admit.cause)).name.lower()))
        write = admit.write_state
        if ctx.get(write.enable):
            state = ctx.get(write.data)
            present = [version.present for version in state.versions]
            slot = ctx.get(write.address)
            self._note("state", slot, state.round, state.seen, state.left, *present)
        slot_bits, lanes = self.parameters.slot_bits, self.parameters.lane_bits
        write = merge.write_words
        if ctx.get(write.enable):
            slot, version = divmod(ctx.get(write.address), 2)
            words = ctx.get(write.data)
            each = [words >> 32 * lane & 0xFFFFFFFF for lane in range(self.lanes)]
            self._note("words", slot, version, *each)
        write = merge.write_block
        if ctx.get(write.enable):
            address = ctx.get(write.address)
            beat_bits = (self.parameters.block_beats - 1).bit_length()
            beat = address & self.parameters.block_beats - 1
            lane = address >> beat_bits & (1 << lanes) - 1
            version = address >> beat_bits + lanes & 1
            slot = address >> beat_bits + lanes + 1 & (1 << slot_bits) - 1
            value = ctx.get(write.data) & 0xFFFFFFFF
            self._note("sum", slot, version, lane, beat, value - (value >> 31 << 32))
        self._note_new("queue", "", ctx.get(stages["delivery_queue"].level))
        works = {
            "receive": self.engine.rx.valid,
            "admit": stages["receive"].o.valid,
            "merge": merge.write_words.enable | merge.write_block.enable,
            "replicate": stages["replicate"].o.valid,
            "transmit": self.engine.tx.valid,
        }
        for name, signal in works.items():
            self._note_new("stage", name, int(ctx.get(signal)))

    def _note(self, kind: str, *what: int) -> None:
        self.changes.append((kind, self.cycle, *what))

    def _note_new(self, kind: str, name: str, value: int) -> None:
        if self._last.get(kind + name, 0) != value:
            self._last[kind + name] = value
            self.changes.append((kind, self.cycle, *([name] if name else []), value))
