"""The measuring loop sees what goes wrong: its figures are of right results only."""

import numpy as np
import pytest

from afflux_drivers.aggregator.jobs import read_counters
from afflux_hdl.contract import wire
from afflux_sim.rtl.verilated import VerilatedEngine
from benchmarks.gateware.closed_loop import ClosedLoop, LoopError, Order
from benchmarks.gateware.traffic import ColumnTraffic, DenseTraffic, Overlap, presence
from tests.checks.engine_checks import open_engine
from tests.support.checkout import ROOT


@pytest.fixture(scope="module")
def engine():
    with open_engine(512) as opened:
        yield opened


class Tampered:
    """An engine whose answers are changed on the way."""

    def __init__(self, engine: VerilatedEngine, change) -> None:
        self._engine, self._change = engine, change

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def play(self, frames, *arguments):
        return self._change(self._engine.play(frames, *arguments))

    def run(self, cycles: int):
        return self._change(self._engine.run(cycles))


def new_loop(engine, traffic=None, workers: int = 3, **more) -> ClosedLoop:
    return ClosedLoop(
        engine,
        bus_bits=512,
        clock_hz=250e6,
        workers=workers,
        lanes=16,
        slots=more.pop("slots", 16),
        traffic=traffic or DenseTraffic(workers, [0, 2, 5]),
        **more,
    )


@pytest.mark.parametrize("order", list(Order))
def test_dense_rounds_at_line_rate(engine, order):
    loop = new_loop(engine, workers=8, order=order)
    loop.run(400)
    start = loop.passed()
    loop.run(400)
    passed = loop.passed(start)
    assert passed.receive_stalls == 0
    # Results have a beat more than contributions, so it is the way out that is full, and the way
    # in all but that beat of each frame.
    assert max(passed.beats_in, passed.beats_out) == passed.cycles
    assert passed.beats_in >= passed.cycles - passed.frames_out
    assert passed.rounds > 40


def test_a_port_sets_the_pace(engine):
    loop = new_loop(engine, DenseTraffic(3, [16]), port_bits_per_s=100e9)
    loop.run(60)
    start = loop.passed()
    loop.run(96)
    passed = loop.passed(start)
    share = passed.blocks_in * wire.BLOCK_BYTES * 8 / (passed.cycles / 250e6) / 100e9
    assert share == pytest.approx(4096 / 4248, abs=0.002)


def test_duplicates_are_dropped_and_change_no_sum(engine):
    before = read_counters(engine)
    loop = new_loop(engine, copies=2)
    loop.run(600)
    engine.play([])
    after = read_counters(engine)
    assert after["duplicates"] - before["duplicates"] > 250
    assert loop.passed().receive_stalls == 0


def flip_a_sum(frames):
    return [
        frame[: -1 - wire.SEAL_BYTES]
        + bytes([frame[-1 - wire.SEAL_BYTES] ^ 1])
        + frame[-wire.SEAL_BYTES :]
        if len(frame) > wire.FRAME_BYTES_MIN + wire.SEAL_BYTES
        else frame
        for frame in frames
    ]


def change_a_word(frames):
    at = wire.LOOKAHEAD_OFFSET
    return [
        frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        if frame[wire.AFFLUX_OFFSET] & 15 == wire.Type.RESULT
        else frame
        for frame in frames
    ]


def twice(frames):
    return [
        each
        for frame in frames
        for each in [frame] * (2 if frame[wire.AFFLUX_OFFSET] & 15 == wire.Type.RESULT else 1)
    ]


def never(frames):
    return [f for f in frames if f[wire.AFFLUX_OFFSET] & 15 != wire.Type.RESULT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_a_sum, "wrong sums"),
        (change_a_word, "wrong sums"),
        (twice, "came twice"),
        (never, "no result"),
    ],
)
def test_sees_a_wrong_result(engine, change, message):
    loop = new_loop(Tampered(engine, change))
    with pytest.raises(LoopError, match=message):
        loop.run(2000)


@pytest.mark.parametrize("overlap", [Overlap.RANDOM, Overlap.FULL, Overlap.NONE])
@pytest.mark.parametrize("multicast", [False, True])
def test_columns_are_walked_to_their_end(engine, overlap, multicast):
    traffic = ColumnTraffic(presence(3, 4, 20, 0.2, overlap))
    loop = new_loop(engine, traffic, slots=4, multicast=multicast)
    loop.finish()
    assert traffic.complete
    assert loop.passed().blocks_in == presence(3, 4, 20, 0.2, overlap).sum()


def test_sees_a_block_that_is_missing(engine):
    present = presence(3, 4, 20, 0.2, Overlap.RANDOM)
    traffic = ColumnTraffic(present)
    lanes = np.argwhere(present.any(0))
    slot, lane, row = lanes[0]
    traffic._expected[slot, lane, row] ^= 1
    with pytest.raises(LoopError, match="wrong blocks or sums"):
        new_loop(engine, traffic, slots=4).finish()


def test_presence_is_what_it_says():
    full = presence(4, 2, 500, 0.1, Overlap.FULL)
    none = presence(4, 2, 500, 0.1, Overlap.NONE)
    some = presence(4, 2, 500, 0.1, Overlap.RANDOM)
    for each in (full, none, some):
        assert each.mean() == pytest.approx(0.1, abs=0.01)
    assert full.any(0).mean() == full[0].mean()
    assert none.sum(0).max() == 1
    assert some.any(0).mean() == pytest.approx(1 - 0.9**4, abs=0.02)


def test_the_picture_of_a_slots_life_is_true():
    """The file in the documents is what the engine does. `make docs` draws it anew."""
    from docs.generate.slot_life import draw, record

    rows = record()
    path = ROOT / "docs/plots/slot_life.svg"
    assert path.read_text(encoding="utf-8") == draw(rows)
    # It can differ: one cycle earlier is another picture.
    assert draw(rows[1:]) != draw(rows)
    decisions = [row["admit: decision"] for row in rows if row["admit: decision"]]
    assert decisions == ["accepted", "accepted"]
    seen = [row["slot state: seen"] for row in rows]
    assert list(dict.fromkeys(seen)) == ["0 1 (full)", "0"]
    assert seen[-1] == "0 1 (full)"
