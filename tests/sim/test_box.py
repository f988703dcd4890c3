"""The box at the port list of the OpenNIC shell, with the traps of the shell as tests.

All tests share one model. Sums and other frames are compared with the golden node.
"""

import random
from dataclasses import replace

import pytest

from afflux_hdl.contract.box_registers import BOX_BASE, BOX_IDENTITY, BOX_REGISTERS
from afflux_hdl.contract.registers import NODE_IDENTITY, address_of, node_address_of
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic import box as box_module
from afflux_hdl.opennic import outlet, verilog
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.plugin import instance
from afflux_hdl.opennic.verilog import generate_box
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import NodePace
from tests.checks.node_checks import NodePair, build_of, read_counter
from tests.scenarios.director import Director
from tests.scenarios.job_frames import Job
from tests.scenarios.node_cases import every_case
from tests.scenarios.node_frames import draw_question, random_host_frame
from tests.scenarios.performer import paces, perform
from tests.support.box.box_as_node import BoxAsNode
from tests.support.box.simulated_box import OKAY, SLVERR, Beat, BoxBeats, SimulatedBox, beats_of
from tests.support.planting import names_with

ENGINE = Parameters(workers=4, lanes=16, jobs=2, slots=16)
NODE = NodeParameters(engine=ENGINE)
BOX = BoxParameters(node=NODE)
REGISTERED = BoxParameters(node=replace(NODE, engine=replace(ENGINE, ram_output_register=1)))

SIZES = (*range(59, 68), 127, 128, 129, 1514, 1518, 4096, 9000, 9596)


@pytest.fixture
def box():
    with SimulatedBox(BOX) as box:
        yield box


def frames_of_all_sizes(choose: random.Random) -> list[bytes]:
    sizes = [*SIZES, *(choose.randrange(60, 1515) for _ in range(30))]
    # Not for the node: that address belongs to nobody.
    return [b"\x06\xff" + choose.randbytes(size - 2) for size in sizes]


def test_nothing_is_done_until_the_shell_asks_and_then_everything():
    with SimulatedBox(BOX, powered=False) as box:
        box.run(600)
        # Bits without a module behind them are 1 at all times.
        assert box.done == 0xFFFE
        box.reset(0xFFFF, whole=True)
        assert box.done == 0x1FFFF


def test_a_request_of_a_single_cycle_resets_the_node_and_nothing_else(box):
    box.write(node_address_of("host_path"), 0)
    box.pulse(1)
    box.run(6)
    assert box.done == 0x1FFFE
    box.run(260)
    assert box.done == 0x1FFFF
    assert box.read(node_address_of("host_path")) == 1


def check_host_traffic(box: SimulatedBox) -> None:
    """Frames of all sizes, both ways at once, as the neighbours have them."""
    choose = random.Random(1)
    up, down = frames_of_all_sizes(choose), frames_of_all_sizes(choose)
    box.from_network(down)
    box.from_host(up)
    box.settle()
    to_network, to_host = box.to_network(), box.to_host()
    assert [each.frame for each in to_network] == up
    assert [each.frame for each in to_host] == down
    assert {(each.src, each.dst) for each in to_network} == {(1, 1 << 6)}
    assert {(each.src, each.dst) for each in to_host} == {(1 << 6, 1)}
    assert box.stalls(box.rx()) == 0
    assert box.counter("tx_frames") == len(up)
    assert box.counter("c2h_frames") == len(down)
    for name in ("rx_size_mismatch", "h2c_size_mismatch", "rx_malformed", "tx_refused"):
        assert box.counter(name) == 0


def test_frames_of_the_host_pass_both_ways_with_size_and_destination(box):
    check_host_traffic(box)


@pytest.mark.parametrize("size", [64, 65, 1514, 9596])
def test_frames_of_the_host_pass_both_ways_at_the_full_rate(box, size):
    frames = [bytes([6, n]) * (size // 2) + bytes(size % 2) for n in range(20)]
    box.from_network(frames)
    box.from_host(frames)
    box.settle()
    for received in (box.to_network(), box.to_host()):
        assert [each.frame for each in received] == frames
        beats = len(frames) * -(-size // 64)
        assert received[-1].end - received[0].first == beats - 1
    assert box.stalls(box.rx()) == 0


def test_a_frame_of_the_host_that_is_larger_than_a_buffer_is_dropped_alone(box):
    small, large = b"\x06" * 700, b"\x06" * (NODE.host_buffer_bytes + 1)
    box.from_host([small, large, small])
    box.settle()
    assert [each.frame for each in box.to_network()] == [small, small]
    assert read_counter(BoxAsNode(box), "from_host_oversize") == 1


def check_sums(box: SimulatedBox, step: int = 1) -> None:
    """Every case, or one in `step` of them, beside the golden engine."""
    job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)
    director = Director(**build_of(NODE))
    # There are no marks in a shell.
    scenario = every_case(director, job, uncounted=frozenset({"mac_error"}), step=step)
    perform(box, scenario, paces(0.9, 0.1, 1))


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_sums_are_those_of_the_golden_engine(box, step):
    check_sums(box, step)


def test_the_largest_frames_and_those_of_the_host_share_the_port(box):
    choose = random.Random(3)
    job = Job(workers=4, lanes=16, slots=8, slot_base=4)
    director = Director(**build_of(NODE))
    perform(box, director.configure())
    perform(box, director.create(job))
    data = [
        job.data(worker, slot, 0, {lane: choose.choices(range(2**32), k=64) for lane in range(16)})
        for slot in range(8)
        for worker in range(4)
    ]
    assert max(map(len, data)) == 4228 - 4
    strangers = [b"\x06\xff" + choose.randbytes(900) for _ in range(40)]
    ours = [b"\x06\xfe" + choose.randbytes(1300) for _ in range(40)]
    # In the buffer that the adapter has by default none of them has room.
    box.pace(box.rx(), depth=64)
    box.from_network(data)
    box.settle()
    assert box.dropped(box.rx()) == 32 and not box.to_network()
    box.pace(box.rx(), depth=256)
    box.from_host(ours)
    box.from_network([each for pair in zip(data, strangers, strict=False) for each in pair])
    box.settle()
    expected = [frame for one in data for frame in director.golden.receive(one)]
    got = [each.frame for each in box.to_network()]
    assert len(expected) == 32 and {len(frame) for frame in expected} == {4228}
    assert [frame for frame in got if frame not in ours] == expected
    assert [frame for frame in got if frame in ours] == ours
    assert [each.frame for each in box.to_host()] == strangers[:32]
    assert box.dropped(box.rx()) == 32


def check_beside(box: SimulatedBox) -> None:
    """Traffic beside the golden node, at every pace; requests by ARP and echo among it."""
    choose = random.Random(4)
    pair = NodePair(BoxAsNode(box), NODE)
    pair.configure()
    for play in range(24):
        if play % 8 == 7:
            pair.check_counters()
            pair.start_again()
        down = [
            draw_question(choose) if choose.random() < 0.4 else random_host_frame(choose, 900)
            for _ in range(choose.randrange(14))
        ]
        sizes = (60, 64, 65, 300, 1514, NODE.host_buffer_bytes, NODE.host_buffer_bytes + 1)
        up = [choose.randbytes(choose.choice(sizes)) for _ in range(choose.randrange(6))]
        pace = NodePace(
            seed=choose.getrandbits(32),
            network_gaps=choose.choice((0.0, 0.3, 0.8)),
            host_gaps=choose.choice((0.0, 0.3)),
            network_ready=choose.choice((1.0, 0.6, 0.15)),
            host_ready=choose.choice((1.0, 0.6, 0.1)),
        )
        pair.play(down, up, pace=pace)
    pair.check_counters()
    assert box.counter("rx_size_mismatch") == box.counter("h2c_size_mismatch") == 0


def test_traffic_beside_the_golden_node_at_every_pace(box):
    check_beside(box)


def test_the_receive_buffer_of_the_adapter_never_fills(box):
    # 64 beats, as the shell has them for frames of 1,518 bytes; nobody takes anything behind it.
    box.pace(box.rx(), depth=64)
    box.take(box.tx(), 0.0)
    box.take(box.c2h(), 0.0)
    frames = [bytes([6, n]) * 757 for n in range(200)]
    box.from_network(frames)
    box.run(200 * 24 + 300)
    assert box.dropped(box.rx()) == box.stalls(box.rx()) == 0
    box.take(box.c2h(), 1.0)
    box.settle()
    received = [each.frame for each in box.to_host()]
    # Two buffers full, and the adapter has got rid of all others.
    assert received == frames[: len(received)]
    assert len(received) >= 2 * NODE.host_buffer_bytes // 1536
    node = BoxAsNode(box)
    assert read_counter(node, "host_overflow") == len(frames) - len(received)
    assert read_counter(node, "network_frames_in") == len(frames)


def holed(frame: bytes, beat: int, keep: int) -> list[BoxBeats]:
    beats = beats_of(frame, src=1 << 6)
    beats[beat].keep = keep
    return beats


@pytest.mark.parametrize("way", ["rx", "h2c"])
def test_null_bytes_before_the_end_of_a_frame_drop_it(box, way):
    stream = getattr(box, way)()
    good = [bytes([6, n]) * 100 for n in range(9)]
    bad = [
        holed(good[0], 0, 2**63 - 1),
        holed(good[0], 1, 2**64 - 2),
        holed(good[0], 3, 0b1011),
        holed(good[0], 0, 0),
        # A last beat without any byte.
        holed(good[0], 3, 0),
    ]
    for n, frame in enumerate(good):
        box.feed(stream, beats_of(frame))
        if n < len(bad):
            box.feed(stream, bad[n])
    box.settle()
    received = box.to_host() if way == "rx" else box.to_network()
    assert [each.frame for each in received] == good
    assert box.counter(f"{way}_malformed") == 5
    name = "bad_frames" if way == "rx" else "from_host_bad"
    assert read_counter(BoxAsNode(box), name) == 5


@pytest.mark.parametrize("way", ["rx", "h2c"])
def test_sizes_that_are_those_of_other_frames_are_counted_and_put_right(box, way):
    stream = getattr(box, way)()
    frames = [bytes([6]) * size for size in (60, 61, 64, 65, 128, 1514, 129, 64)]
    # As in a receive buffer that has dropped a frame at its last beat: all are one late.
    for before, frame in zip([b"\0" * 90, *frames], frames, strict=False):
        box.feed(stream, beats_of(frame, size=len(before)))
    box.settle()
    received = box.to_host() if way == "rx" else box.to_network()
    assert [each.frame for each in received] == frames
    assert box.counter(f"{way}_size_mismatch") == len(frames)


def test_the_hosts_frames_go_to_the_port_that_is_there(box):
    frames = [bytes([6, n]) * 50 for n in range(4)]
    for frame, dst in zip(frames, (0, 1 << 6, 1 << 7, 1), strict=True):
        box.from_host([frame], dst=dst)
    box.settle()
    assert [each.frame for each in box.to_network()] == [frames[0], frames[1], frames[3]]
    assert box.counter("h2c_no_destination") == 1


def check_resets(box: SimulatedBox) -> None:
    """Reset amid traffic: what leaves are whole frames, and later all pass."""
    choose = random.Random(5)
    whole = 0
    for _ in range(30):
        up, down = ([bytes([6, n]) * choose.randrange(30, 700) for n in range(12)] for _ in "ud")
        pace = NodePace(
            seed=choose.getrandbits(32), network_ready=choose.choice((1, 0.5)), host_ready=0.7
        )
        BoxAsNode(box).pace(pace)
        box.from_network(down)
        box.from_host(up)
        box.run(choose.randrange(20, 250))
        box.pulse(1)
        box.settle()
        assert box.done == 0x1FFFF
        # Frames without an end, or with a wrong size, fail here.
        for received, sent in ((box.to_network(), up), (box.to_host(), down)):
            frames = [each.frame for each in received]
            assert all(frame in sent for frame in frames)
            assert frames == sorted(frames, key=sent.index)
            whole += len(frames)
        # From the next frame on everything passes.
        box.from_network(down)
        box.from_host(up)
        box.settle()
        assert [each.frame for each in box.to_network()] == up
        assert [each.frame for each in box.to_host()] == down
    assert 100 < whole < 700
    assert box.counter("tx_refused") + box.counter("c2h_refused") > 3
    assert box.counter("rx_size_mismatch") == box.counter("h2c_size_mismatch") == 0


def test_a_reset_amid_traffic_leaves_no_part_of_a_frame(box):
    check_resets(box)


BUGS = {
    "no destination": (
        *(check_host_traffic, outlet, "Mux(beat.error, 0, self._dst)"),
        "Mux(sizes.level[0], 0, self._dst)",
    ),
    "the size of the frame before": (
        *(check_host_traffic, outlet, "sizes.i.payload.eq(counted.size)"),
        "sizes.i.payload.eq(counted.size + 1)",
    ),
    "half a frame is as good as a whole one": (
        *(check_resets, outlet, "wiring.connect(m, skid.o, frames.i)"),
        """wiring.connect(m, skid.o, frames.i)
        m.d.comb += frames.i.payload.error.eq(0)""",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_caught(bug, monkeypatch):
    check, module, right, wrong = BUGS[bug]
    monkeypatch.setattr(box_module, "Outlet", names_with(module, right, wrong)["Outlet"])
    planted = generate_box(BOX)
    caught = pytest.raises((AssertionError, SimulationError))
    with SimulatedBox(BOX, planted=planted) as box, caught:
        check(box)


@pytest.mark.long
def test_a_plugin_that_never_ends_its_reset_is_caught():
    plugin = instance(BOX)
    wrong = plugin.replace("{15{1'b1}}", "{15{1'b0}}")
    assert wrong != plugin
    with pytest.raises(SimulationError, match="0xfffe is not done"):
        SimulatedBox(BOX, plugin=wrong)


def test_a_reset_of_the_whole_shell_amid_traffic(box):
    frames = [bytes([6, n]) * 600 for n in range(20)]
    for cycles in (40, 77, 130, 211):
        box.from_network(frames)
        box.from_host(frames)
        box.run(cycles)
        box.reset(0xFFFF, whole=True)
        box.settle()
        box.beats(box.tx())
        box.beats(box.c2h())
        box.from_network(frames)
        box.from_host(frames)
        box.settle()
        assert [each.frame for each in box.to_network()] == frames
        assert [each.frame for each in box.to_host()] == frames


def test_every_access_is_answered_in_a_reset_too(box):
    base = BOX_BASE
    assert box.read(node_address_of("node_identity")) == NODE_IDENTITY
    shown = {}
    for name, offset in BOX_REGISTERS.items():
        box.ask(base + offset)
        shown[name] = box.answer()
    assert shown == {
        "box_identity": (OKAY, BOX_IDENTITY),
        "box_ports": (OKAY, 1),
        "box_nodes": (OKAY, 1),
        "box_functions": (OKAY, 1),
    }
    for address in (0xFFC, base + 0x10, base + 0xFFC, 0x2000, 0xFF000, 0xFFFFFFFC):
        box.ask(address)
        assert box.answer() == (SLVERR, 0)
        box.ask(address, 1)
        assert box.answer() == (SLVERR, 0)
    box.ask(base, 1)
    assert box.answer() == (SLVERR, 0)

    # A reset overtakes an access at each of its cycles.
    answers = set()
    for delay in range(0, 50, 2):
        for value in (None, 0x1234):
            box.ask(address_of("local_port"), value)
            box.run(delay)
            box.pulse(1)
            answers.add(box.answer()[0])
            box.ask(address_of("local_port"), value)
            assert box.answer() == (SLVERR, 0)
            box.run(260)
            assert box.read(node_address_of("node_identity")) == NODE_IDENTITY
            box.write(address_of("local_port"), 77)
            assert box.read(address_of("local_port")) == 77
    assert answers == {OKAY, SLVERR}


def check_accesses(box: SimulatedBox) -> None:
    """Ask all the time: before a reset, in it and after it each access is answered, and rightly."""
    for pause in range(8):
        box.run(pause)
        box.pulse(1)
        answers = []
        for n in range(150):
            box.ask(node_address_of("node_identity"))
            box.run(n % 3)
            answers.append(box.answer())
        assert set(answers) == {(SLVERR, 0), (OKAY, NODE_IDENTITY)}
        assert answers[-30:] == [(OKAY, NODE_IDENTITY)] * 30


def test_accesses_all_through_a_reset(box):
    check_accesses(box)


@pytest.mark.long
def test_a_reset_that_comes_and_goes_later_does_no_harm(monkeypatch):
    # With the crossing's three it is five cycles late, the most that a register port allows for.
    monkeypatch.setattr(verilog, "RESET_STAGES", verilog.RESET_STAGES + 1)
    with SimulatedBox(BOX, planted=generate_box(BOX)) as box:
        check_accesses(box)
        check_resets(box)


@pytest.mark.long
def test_a_reset_that_is_too_late_is_caught(monkeypatch):
    # It begins when the register port takes it to be over.
    monkeypatch.setattr(verilog, "RESET_STAGES", 250)
    caught = pytest.raises((AssertionError, SimulationError))
    with SimulatedBox(BOX, planted=generate_box(BOX)) as box, caught:
        check_accesses(box)


@pytest.mark.long
@pytest.mark.parametrize("check", [check_sums, check_beside, check_resets, check_accesses])
def test_what_alveo_cards_are_given_has_output_registers(check):
    with SimulatedBox(REGISTERED) as box:
        check(box)


def test_the_models_see_what_they_are_there_for(box):
    frame = b"\x06" * 130
    box.from_host([frame])
    box.settle()
    (beat, *rest) = box.beats(box.tx())

    class Replayed(SimulatedBox):
        def __init__(self, beats: list[Beat]) -> None:
            self.parameters, self._beats = BOX, beats

        def beats(self, stream: int) -> list[Beat]:
            return self._beats

    def sent(**changes):
        beats = [Beat(**(vars(each) | changes)) for each in (beat, *rest)]
        return [each.frame for each in Replayed(beats).to_network()]

    assert sent() == [frame]
    assert sent(dst=0) == sent(dst=1 << 7) == []
    with pytest.raises(AssertionError):
        sent(size=131)
    with pytest.raises(AssertionError, match="length mismatch"):
        Replayed([Beat(**(vars(beat) | {"last": True}))]).to_host()


def test_too_long_a_wait_for_a_reset_is_an_error(box):
    with pytest.raises(SimulationError, match="0x1 is not done"):
        box.reset(1, limit=20)
