"""Plays whole frames through one part of the node in Amaranth's simulator."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.sim import Simulator

__all__ = ["Played", "at_once", "play"]


@dataclass
class Played:
    """The outcome.

    Attributes:
        frames: Whole frames that came out, with the name of the output's mark, if there is one.
        marks: How often each of the marks was set.
        cycles: Cycle of each beat that came out.
        arrived: Cycle of the last beat that went in.
        errors: Of each frame that came out, its error mark.
    """

    frames: list[tuple[bytes, int]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    cycles: list[int] = field(default_factory=list)
    arrived: int = 0
    errors: list[bool] = field(default_factory=list)

    @property
    def plain(self) -> list[bytes]:
        """The frames alone."""
        return [frame for frame, _ in self.frames]


def at_once(_: int) -> bool:
    """Set the pace: in every cycle."""
    return True


def pace(share: float, seed: int) -> Callable[[int], bool]:
    choose = random.Random(seed)
    return lambda _: choose.random() < share


def play(
    part: Any,
    *sources: Sequence[tuple[bytes, bool]],
    inputs: Mapping[str, int] | None = None,
    marks: Sequence[str] = (),
    mark_of: str = "",
    offers: Callable[[int], bool] = at_once,
    takes: Callable[[int], bool] = at_once,
    cycles_after: int = 200,
) -> Played:
    """Drive each source's frames, with their error marks, into `part.i` or `part.i[n]`.

    Args:
        part: The component; its output is `part.o`.
        sources: Frames and error marks.
        inputs: Other inputs, set once; names may have dots.
        marks: Outputs to be counted.
        mark_of: Output that is looked at with each frame's first beat.
        offers: In which cycles a beat is offered.
        takes: In which cycles one is taken.
        cycles_after: For how long to go on after the last beat.
    """
    ins = [part.i] if len(sources) == 1 else list(part.i)
    size, size_out = len(ins[0].payload.keep), len(part.o.payload.keep)
    played = Played(marks=dict.fromkeys(marks, 0))
    beats = [[beat for frame in source for beat in as_beats(size, *frame)] for source in sources]

    async def run(ctx: Any) -> None:
        for name, value in (inputs or {}).items():
            target = part
            for step in name.split("."):
                target = getattr(target, step)
            ctx.set(target, value)
        partial, mark, cycle, left = b"", 0, 0, cycles_after
        waiting = [False] * len(ins)
        while left:
            for n, i in enumerate(ins):
                waiting[n] = bool(beats[n]) and (waiting[n] or offers(cycle))
                ctx.set(i.valid, waiting[n])
                if waiting[n]:
                    data, keep, last, error = beats[n][0]
                    for name, value in (("data", data), ("keep", keep), ("last", last)):
                        ctx.set(getattr(i.payload, name), value)
                    ctx.set(i.payload.error, error)
            ready = takes(cycle)
            if part.o.signature.always_ready:
                ready = True
            else:
                ctx.set(part.o.ready, ready)
            for name in marks:
                played.marks[name] += ctx.get(getattr(part, name))
            for n, i in enumerate(ins):
                if waiting[n] and (i.signature.always_ready or ctx.get(i.ready)):
                    beats[n].pop(0)
                    waiting[n] = False
                    played.arrived = cycle
            if ready and ctx.get(part.o.valid):
                played.cycles.append(cycle)
                if not partial and mark_of:
                    mark = ctx.get(getattr(part, mark_of)).value
                count = ctx.get(part.o.payload.keep).bit_count()
                partial += ctx.get(part.o.payload.data).to_bytes(size_out, "little")[:count]
                if ctx.get(part.o.payload.last):
                    played.frames.append((partial, mark))
                    # A stream of a shell has no marks.
                    marked = getattr(part.o.payload, "error", None)
                    played.errors.append(marked is not None and bool(ctx.get(marked)))
                    partial = b""
            await ctx.tick()
            cycle += 1
            if not any(beats):
                left -= 1
        assert not partial, "stopped within a frame"

    simulator = Simulator(part)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    return played


def as_beats(size: int, frame: bytes, error: bool) -> list[tuple[int, int, bool, bool]]:
    """Return data, keep, last and error of each beat."""
    pieces = [frame[at : at + size] for at in range(0, len(frame), size)]
    return [
        (
            int.from_bytes(piece, "little"),
            (1 << len(piece)) - 1,
            n == len(pieces) - 1,
            error and n == len(pieces) - 1,
        )
        for n, piece in enumerate(pieces)
    ]
