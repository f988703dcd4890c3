"""The management as gateware, Verilated, beside the golden model: every frame, at every pace."""

import random

import pytest

from afflux_hdl.management.management import Management
from afflux_sim.golden.management import GoldenManagement
from tests.support.management_bench import BenchTop, ManagementBench, build_bench
from tests.support.management_board import Registers, settings_for
from tests.support.management_frames import HELLO, WRITE, random_frames, request, request_frame
from tests.support.refusals import refused

SETTINGS = settings_for("10.0.0.9", controller="10.0.0.1")
CLOCK_HZ = 1e6
START_CYCLES = 20_000
ANSWER_CYCLES = 2_500
PERIOD = 4096


@pytest.fixture(scope="module")
def library():
    management = Management(
        settings=SETTINGS,
        clock_hz=CLOCK_HZ,
        entropy_blocks=8,
        entropy_spacing_bits=0,
    )
    return build_bench(BenchTop(management))


@pytest.fixture
def bench(library):
    with ManagementBench(library, Registers()) as made:
        yield made


def start(bench, seed=1):
    """Reset the bench, and return a golden board in the session that it has drawn."""
    registers = Registers()
    bench.set_entropy(0, seed)
    bench.reset()
    bench.run(after=START_CYCLES)
    golden = GoldenManagement(SETTINGS.to_bytes(), 0, registers)
    asked = request_frame(request(golden, HELLO))
    (answer,) = bench.run([asked], after=ANSWER_CYCLES)
    golden.session = int.from_bytes(answer[52:60], "little")
    assert golden.receive(asked) == answer
    return golden


@pytest.mark.parametrize(
    ("gaps", "stalls"),
    [(0, 0), (2, 2), *(pytest.param(*each, marks=pytest.mark.long) for each in ((0, 3), (5, 0)))],
)
def test_random_frames(library, gaps, stalls):
    registers = Registers()
    with ManagementBench(library, registers) as bench:
        bench.set_pace(3, gaps=gaps, stalls=stalls)
        golden = start(bench, seed=gaps)
        for seed in range(6):
            frames, marks, wanted = [], [], []
            choose = random.Random(f"{seed} {gaps} {stalls}")
            for frame, bad in random_frames(choose, golden, 50):
                frames.append(frame)
                marks.append(bad)
                answer = golden.receive(frame, bad)
                if answer is not None:
                    wanted.append(answer)
            # One right after the other, without waiting for answers.
            assert bench.run(frames, bad=marks, after=64 * PERIOD) == wanted
            golden.pass_time(64 * PERIOD)
        assert registers.writes == golden.node.writes
        assert bench.pins.accepted == golden.counters["management_executed"]
        assert golden.counters["management_executed"] > 50


def cycles_of(bench, frame, count=50):
    """Return how long the management takes for a frame while others wait behind it."""
    bench.run([frame], after=ANSWER_CYCLES)
    bench.run([frame] * 3)
    before = bench.pins.cycles
    bench.run([frame] * count)
    return (bench.pins.cycles - before) / count


def test_frames_take_as_long_as_the_page_says(bench):
    golden = start(bench)
    frame = request_frame(request(golden, WRITE, 0x40, 1))
    before = bench.pins.cycles
    answers = bench.run([frame])
    while not answers:
        answers = bench.run(after=1)
    assert answers == [golden.receive(frame)]
    assert 1_620 < bench.pins.cycles - before < 1_660
    forged = bytearray(request_frame(request(golden, WRITE, 0x40, 1), checksum=False))
    forged[-1] ^= 1
    assert golden.receive(bytes(forged)) is None and golden.counters["management_forged"] == 1
    assert 805 < cycles_of(bench, bytes(forged)) < 825
    assert 124 < cycles_of(bench, bytes(64)) < 126


def test_the_rate(bench):
    golden = start(bench)
    before = bench.pins.cycles
    answers = bench.run([request_frame(request(golden, HELLO))] * 150, after=ANSWER_CYCLES)
    passed = bench.pins.cycles - before
    assert 63 <= len(answers) <= 64 + 1 + passed // PERIOD
    assert len(answers) < 150


def test_an_answer_is_as_long_as_its_request(bench):
    golden = start(bench)
    (answer,) = bench.run([request_frame(request(golden, HELLO))], after=ANSWER_CYCLES)
    assert len(answer) == 84


def test_a_reset_at_any_time(library):
    """A frame that it cuts off gets an end, and those behind it are answered."""
    registers = Registers()
    with ManagementBench(library, registers) as bench:
        # While an answer leaves, which takes this long as nobody hurries to take it.
        bench.set_pace(5, stalls=2)
        cut = 0
        for after in range(500, 900, 9):
            golden = start(bench, seed=after)
            bench.run([request_frame(request(golden, HELLO))], after=after)
            cut += bench.partial > 0
        assert cut > 5
        # A session is never that of the one before.
        sessions = {start(bench, seed=seed).session for seed in range(5)}
        assert len(sessions) == 5


def test_a_reset_on_order(bench):
    golden = start(bench)
    ordered = request_frame(request(golden, WRITE, 0x103C, 0x52534554))
    assert bench.run([ordered], after=ANSWER_CYCLES) == [golden.receive(ordered)]
    assert bench.pins.resets == 0
    bench.run(after=5 * PERIOD)
    assert bench.pins.resets == 1


@pytest.mark.parametrize("kind", [1, 2])
def test_a_stuck_source(bench, kind):
    bench.set_entropy(kind)
    bench.reset()
    bench.run(after=3 * START_CYCLES)
    assert (bench.pins.configured, bench.pins.fault) == (0, 1)
    golden = start(bench)
    assert golden.session
    assert (bench.pins.configured, bench.pins.fault) == (1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clock_hz": 5.0}, "clock_hz must be 1 MHz to 1 GHz, not 5 Hz"),
        ({"entropy_blocks": 7}, "entropy_blocks must be 8 to 65535, not 7"),
        ({"entropy_spacing_bits": 17}, "entropy_spacing_bits must be 0 to 16, not 17"),
        ({"settings": settings_for(None)}, "have no address, and there is no DHCP client"),
    ],
)
def test_what_cannot_be_built(change, message):
    fields = {"settings": SETTINGS, "clock_hz": CLOCK_HZ, "dhcp": False} | change
    with refused(message):
        Management(**fields)
