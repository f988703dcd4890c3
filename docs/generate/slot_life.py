"""Draw the life of one slot for a round, from the engine itself: `docs/plots/slot_life.svg`.

`python -m docs.generate.slot_life docs/plots/slot_life.svg` runs the engine's RTL, 512 bits
wide, in Amaranth's own simulator, with two workers that contribute one block each, and draws what
was on the ports and between the stages. A test does the same and compares.
"""

import sys
from pathlib import Path
from typing import Any

from amaranth.sim import Simulator

from afflux_hdl.contract import wire
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.layouts import Cause
from afflux_hdl.engine.parameters import Parameters
from benchmarks.gateware.loop_job import FIRST_ROUND, LoopJob
from benchmarks.gateware.traffic import DenseTraffic
from docs.generate.simulated_engine import create_job
from docs.generate.wave_svg import Track, render

__all__ = ["draw", "record"]

WORKERS, SLOT = 2, 1
_PAUSE = 5
"""Cycles between the two contributions, so that one sees them apart."""

Row = dict[str, bool | str]

_NAMES = (
    "rx",
    "receive: frame is good",
    "admit: decision",
    "slot state: round R",
    "slot state: seen",
    "merge: words written",
    "merge: block written",
    "merge: delivery",
    "delivery queue",
    "replicate: frame order",
    "tx",
)


class _Recorder:
    """Drives the ports and records, for each cycle, what is on the ports and between stages."""

    def __init__(self) -> None:
        self.parameters = Parameters(bus_bits=512, workers=WORKERS, lanes=2, jobs=1, slots=2)
        self.engine = Engine(self.parameters)
        self.job = LoopJob(WORKERS, 2, 2)
        self.rows: list[Row] = []
        self.state = {"round": f"r{_turn(FIRST_ROUND - 1)}", "seen": "0 1 (full)"}
        self.recording = False
        self._driven = ""
        self._sent = 0
        self._to = ""

    async def tick(self, ctx: Any) -> None:
        if self.recording:
            self._look(ctx)
        await ctx.tick()

    def _look(self, ctx: Any) -> None:
        stages = self.engine.stages
        admit, merge = stages["admit"], stages["merge"]
        replicate = stages["replicate"]
        row: Row = dict.fromkeys(_NAMES, "")
        row["rx"] = self._driven
        if ctx.get(stages["receive"].o.valid):
            worker = ctx.get(stages["receive"].o.payload.header.worker)
            row["receive: frame is good"] = f"of {worker}"
        if ctx.get(admit.judged):
            # The values identify the causes, not their order.
            row["admit: decision"] = Cause(ctx.get(admit.cause)).name.lower()
        row["slot state: round R"], row["slot state: seen"] = self.state.values()
        write = admit.write_state
        if ctx.get(write.enable) and ctx.get(write.address) == SLOT:
            state = ctx.get(write.data)
            seen = [str(worker) for worker in range(WORKERS) if state.seen >> worker & 1]
            full = " (full)" if state.left == 0 else ""
            self.state = {"round": f"r{_turn(state.round)}", "seen": " ".join(seen) + full}
        row["merge: words written"] = bool(ctx.get(merge.write_words.enable))
        row["merge: block written"] = bool(ctx.get(merge.write_block.enable))
        row["merge: delivery"] = bool(ctx.get(merge.o.valid))
        row["delivery queue"] = bool(ctx.get(stages["delivery_queue"].o.valid))
        if ctx.get(replicate.o.valid):
            row["replicate: frame order"] = f"to {ctx.get(replicate.o.payload.header.worker)}"
        row["tx"] = self._departing(ctx)
        self.rows.append(row)

    def _departing(self, ctx: Any) -> str:
        tx = self.engine.tx
        if not ctx.get(tx.valid):
            return ""
        if self._sent == 0:
            header = ctx.get(tx.payload.data) >> 8 * wire.AFFLUX_OFFSET
            self._to = str(header >> 24 & 0xFF)
        label = _beat(self._sent, f"to {self._to}")
        self._sent = 0 if ctx.get(tx.payload.last) else self._sent + 1
        return label

    async def send(self, ctx: Any, frame: bytes, name: str) -> None:
        beat = self.engine.rx.payload
        size = self.parameters.bus_bytes
        for number, at in enumerate(range(0, len(frame), size)):
            ctx.set(beat.data, int.from_bytes(frame[at : at + size], "little"))
            ctx.set(beat.keep, (1 << size) - 1)
            ctx.set(beat.last, at + size == len(frame))
            ctx.set(self.engine.rx.valid, 1)
            self._driven = _beat(number, f"of {name}")
            await self.tick(ctx)
        ctx.set(self.engine.rx.valid, 0)
        self._driven = ""

    async def settle(self, ctx: Any) -> None:
        for _ in range(2000):
            await self.tick(ctx)
            if ctx.get(self.engine.idle):
                return
        raise RuntimeError("not idle after 2000 cycles")


def _turn(number: int) -> str:
    """Return a round number relative to the job's first."""
    turn = (number - FIRST_ROUND + 2**31) % 2**32 - 2**31
    return f"₀ {turn:+d}".replace("-", "− ").replace("+", "+ ") if turn else "₀"


def _beat(number: int, whose: str) -> str:
    """Return a beat's text; the number keeps beats of the headers and of the words apart."""
    kind = "headers " if number == 0 else "words " if number == 1 else ""
    return f"{kind}{whose}|{min(number, 2)}"


def record() -> list[Row]:
    """Return a row for each cycle, from the first contribution's first beat to the last result."""
    recorder = _Recorder()
    traffic = DenseTraffic(WORKERS, [1])
    job = recorder.job

    async def run(ctx: Any) -> None:
        ctx.set(recorder.engine.tx.ready, 1)
        await create_job(ctx, recorder.engine, job.register_values())
        for worker in range(WORKERS):
            await recorder.send(ctx, job.join(worker), "")
            await recorder.settle(ctx)
        recorder.recording = True
        await recorder.tick(ctx)
        for worker in range(WORKERS):
            part = traffic.contribution(worker, SLOT, 0)
            await recorder.send(ctx, job.data(worker, SLOT, 0, part), str(worker))
            for _ in range(_PAUSE):
                await recorder.tick(ctx)
        await recorder.settle(ctx)
        await recorder.tick(ctx)

    simulator = Simulator(recorder.engine)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    return recorder.rows


def draw(rows: list[Row]) -> str:
    """Return the diagram of what was recorded."""
    colours = {str(worker): worker for worker in range(WORKERS)} | {"accepted": 2}
    tracks = [
        Track(name, [row[name] for row in rows], {} if name.startswith("slot state") else colours)
        for name in _NAMES
    ]
    last_in = max(cycle for cycle, row in enumerate(rows) if row["rx"])
    first_out = min(cycle for cycle, row in enumerate(rows) if row["tx"])
    return render(
        (
            f"Slot {SLOT}, round r₀: two blocks in, their sum out",
            "Workers 0 and 1 contribute a block each, and both get the sum:",
            f"{first_out - last_in} cycles from the last beat in to the first beat out.",
            "h: headers, w: look-ahead words, then the block.",
        ),
        -1,
        tracks,
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the diagram to the file that the first argument names."""
    path = Path((sys.argv[1:] if arguments is None else arguments)[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(record()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
