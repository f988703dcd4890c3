"""The binding of the Verilated model: frames, registers, errors, threads."""

import random
import threading

import pytest

from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.support.loopback import broken_keep, loopback, never_idle

WIDTHS = [512, 32]


def random_frames(seed: int, count: int) -> list[bytes]:
    choose = random.Random(seed)
    # Lengths around a beat of either width, and any other.
    return [
        choose.randbytes(choose.choice([1, 3, 4, 5, 63, 64, 65, 128, choose.randrange(1, 4300)]))
        for _ in range(count)
    ]


@pytest.fixture(params=WIDTHS)
def bus_bits(request):
    return request.param


@pytest.fixture
def engine(bus_bits):
    with VerilatedEngine.from_verilog(loopback(bus_bits), bus_bits) as engine:
        yield engine


def test_frames_come_back_in_order(engine):
    frames = random_frames(1, 300)
    assert engine.play(frames) == frames
    assert engine.play([]) == []


def test_a_beat_in_every_cycle(engine, bus_bits):
    frames = random_frames(2, 100)
    beats = sum(-(-len(frame) // (bus_bits // 8)) for frame in frames)
    engine.play(frames)
    statistics = engine.statistics()
    assert (statistics.beats_in, statistics.beats_out) == (beats, beats)
    assert (statistics.frames_in, statistics.frames_out) == (100, 100)
    assert statistics.receive_stalls == 0
    # One more, to see that nothing is left inside.
    assert statistics.cycles == engine.cycles == beats + 1


def test_gaps_and_back_pressure_lose_nothing(engine):
    frames = random_frames(3, 100)
    assert engine.play(frames, Stimulus(ready_share=0.3, gap_share=0.6, seed=5)) == frames
    statistics = engine.statistics()
    assert statistics.receive_stalls > statistics.beats_in
    # 0.3 of the cycles in which a beat is offered, 0.4 of the others.
    assert statistics.cycles == pytest.approx(statistics.beats_in * (1 / 0.3 + 0.6 / 0.4), rel=0.1)


def test_a_seed_determines_every_cycle(engine):
    frames = random_frames(4, 50)
    cycles = []
    for seed in (7, 7, 8):
        before = engine.cycles
        engine.play(frames, Stimulus(ready_share=0.5, gap_share=0.5, seed=seed))
        cycles.append(engine.cycles - before)
    assert cycles[0] == cycles[1] != cycles[2]


def test_mac_error_comes_with_the_last_beat_only(engine):
    frames = [bytes(1000)] * 5
    engine.play(frames, mac_errors=[True, False, True, True, False])
    assert engine.read(8) == 3


def test_registers(engine):
    engine.write(4, 0xDEADBEEF)
    assert (engine.read(0), engine.read(4), engine.read(12)) == (0x4146, 0xDEADBEEF, 0)


def test_without_draining_the_output_comes_later(engine):
    frames = random_frames(5, 10)
    got = engine.play(frames, Stimulus(drain=False))
    assert got + engine.run(10) == frames


def test_an_engine_that_hangs_is_an_error():
    with VerilatedEngine.from_verilog(never_idle(512), 512) as engine:
        with pytest.raises(SimulationError, match="not idle after 1000 cycles"):
            engine.play([bytes(64)], Stimulus(max_cycles=1000))
        with pytest.raises(SimulationError, match="not idle after"):
            engine.play([bytes(64)])


def test_a_keep_with_holes_is_an_error():
    with (
        VerilatedEngine.from_verilog(broken_keep(32), 32) as engine,
        pytest.raises(SimulationError, match="tx_keep is not contiguous"),
    ):
        engine.play([bytes(64)])


def test_refuses_what_it_cannot_drive(engine):
    with pytest.raises(ValueError, match="an empty frame"):
        engine.play([b"x", b""])
    with pytest.raises(ValueError, match="2 mac_errors for 1 frames"):
        engine.play([b"x"], mac_errors=[True, False])
    with pytest.raises(ValueError, match="ready_share"):
        Stimulus(ready_share=1.1)
    with pytest.raises(ValueError, match="gap_share"):
        Stimulus(gap_share=1.0)


def test_a_closed_engine_says_so():
    engine = VerilatedEngine.from_verilog(loopback(32), 32)
    engine.close()
    engine.close()
    for use in (lambda: engine.play([b"x"]), lambda: engine.read(0), lambda: engine.cycles):
        with pytest.raises(ValueError, match="the engine is closed"):
            use()


def test_the_interpreter_runs_on_while_the_model_does():
    with VerilatedEngine.from_verilog(loopback(512), 512) as engine:
        started = threading.Event()

        def simulate() -> None:
            started.set()
            engine.run(4_000_000)

        thread = threading.Thread(target=simulate)
        thread.start()
        started.wait()
        turns = 0
        while thread.is_alive():
            turns += 1
    # If the call held the interpreter's lock, this thread would get a few turns before and after.
    assert turns > 10_000


def test_instances_in_threads_are_independent():
    """Four engines at once, each driven by a thread of its own."""
    results: dict[int, list[bytes]] = {}

    def simulate(seed: int) -> None:
        with VerilatedEngine.from_verilog(loopback(512), 512) as engine:
            engine.write(4, seed)
            results[seed] = engine.play(random_frames(seed, 500), Stimulus(ready_share=0.5))
            assert engine.read(4) == seed

    threads = [threading.Thread(target=simulate, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {seed: random_frames(seed, 500) for seed in range(4)}


def test_threads_take_turns_on_one_instance():
    """No thread gets another's frames, and none is lost."""
    results: dict[int, list[list[bytes]]] = {n: [] for n in range(4)}
    with VerilatedEngine.from_verilog(loopback(32), 32) as engine:

        def simulate(number: int) -> None:
            for turn in range(50):
                results[number].append(engine.play([bytes([number, turn])] * 20))

        threads = [threading.Thread(target=simulate, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: [[bytes([n, turn])] * 20 for turn in range(50)] for n in range(4)}
