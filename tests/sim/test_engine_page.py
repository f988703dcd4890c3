"""The page that replays the engine: what it shows has happened, in the RTL, and all of it.

Each of its runs takes half a minute in Amaranth's simulator, so all of this is long. `make test`
has another drawing of what that simulator shows (`test_closed_loop.py`).
"""

import copy
import json
import re
from collections import Counter

import numpy as np
import pytest

from afflux_hdl.contract.registers import Command, address_of
from afflux_hdl.contract.wire import Type
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.network import make_workers, run_in_order
from afflux_sim.rtl.stimulus import NOT_DRAINED
from afflux_sim.rtl.verilated import VerilatedEngine
from docs.generate.engine_page.__main__ import render
from docs.generate.engine_page.captions import captions
from docs.generate.engine_page.network import ENGINE, KEY, record, registers_of
from docs.generate.engine_page.scenarios import LANES, SCENARIOS, SLOTS, VALUES, WORKERS, tensors
from tests.scenarios.director import LARGE

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def runs():
    return {run.scenario.name: run for run in record(SCENARIOS)}


@pytest.fixture(scope="module")
def page(runs):
    return render(list(runs.values()))


def contributions(run):
    return [packet for packet in run.packets if packet.kind == "data" and packet.round]


def new_workers(first_round):
    return make_workers(
        WORKERS, engine=ENGINE, job=0, key=KEY, round=first_round, lanes=LANES, slots=SLOTS
    )


def of_type(frames, kind):
    return [frame for frame in frames if frame[42] & 15 == kind]


def golden_sums():
    engine = GoldenEngine(mac=ENGINE.mac, address=ENGINE.address, port=ENGINE.port)
    engine.create_job(
        0, key=KEY, workers=WORKERS, lanes=LANES, slot_base=0, slot_count=SLOTS, round=5, credit=2
    )
    workers = new_workers(5)
    for worker in workers:
        engine.receive(worker.join())
    return run_in_order(engine.receive, workers, tensors(), "int32", "sum")


def test_every_worker_gets_the_golden_sums(runs):
    wanted = golden_sums()
    for run in runs.values():
        assert [each.tobytes() for each in run.results] == [each.tobytes() for each in wanted]


def test_sums_in_the_slots_are_those_that_leave(runs):
    """The memory's words, as they are written, are what a result says later."""
    for run in runs.values():
        for packet in run.packets:
            if packet.kind != "result":
                continue
            for lane, _, value in packet.blocks:
                written = [
                    change[6]
                    for change in run.changes
                    if change[0] == "sum"
                    and change[1] < packet.first + 8
                    and change[2:6] == (packet.slot, packet.round & 1, lane, 0)
                ]
                assert written[-1] == value


def test_a_recorded_sum_that_is_wrong_is_seen(runs):
    run = copy.copy(runs["clean"])
    last = max(n for n, change in enumerate(run.changes) if change[0] == "sum" and not change[5])
    wrong = (*run.changes[last][:6], run.changes[last][6] ^ 1)
    run.changes = [*run.changes[:last], wrong, *run.changes[last + 1 :]]
    with pytest.raises(AssertionError):
        test_sums_in_the_slots_are_those_that_leave({"clean": run})


def test_blocks_that_are_not_zero_are_sent_and_no_others(runs):
    values = np.array(VALUES).reshape(WORKERS, -1)
    present = {(int(w), int(block)) for w, block in np.argwhere(values)}
    for run in runs.values():
        sent = [
            (each.worker, number) for each in contributions(run) for _, number, _ in each.blocks
        ]
        assert set(sent) == present
        for each in contributions(run):
            assert [value for *_, value in each.blocks] == [
                values[each.worker, number] for _, number, _ in each.blocks
            ]


def test_a_clean_run_has_each_packet_once(runs):
    run = runs["clean"]
    places = Counter((each.worker, each.slot, each.round, each.kind) for each in run.packets)
    assert set(places.values()) == {1}
    assert {each.cause for each in run.packets if each.up} == {"accepted"}
    assert not [text for _, kind, text in captions(run) if kind == "trouble"]


def test_a_loss_brings_one_repetition(runs):
    run = runs["loss"]
    (lost,) = [each for each in run.packets if each.up and each.first < 0]
    (again,) = [each for each in run.packets if each.up and each.copy]
    assert (again.worker, again.slot, again.round) == (lost.worker, lost.slot, lost.round)
    assert (again.cause, again.blocks) == ("accepted", lost.blocks)
    # It was asked for: the answer to its probe named the worker.
    asked = [each for each in run.packets if each.kind == "missing" and each.arrives < again.sent]
    assert asked[-1].missing == [lost.worker]
    # The result that is lost comes from the version that the slot keeps while the next is open.
    (vanished,) = [each for each in run.packets if not each.up and each.arrives < 0]
    place = (vanished.worker, vanished.slot, vanished.round)
    repeated = [
        each
        for each in run.packets
        if each.kind == "result" and each.copy and (each.worker, each.slot, each.round) == place
    ]
    assert len(repeated) == 1
    assert repeated[0].blocks == vanished.blocks
    opened = [change for change in run.changes if change[0] == "state" and change[2] == place[1]]
    rounds = [change[3] for change in opened if change[1] < repeated[0].first]
    assert rounds[-1] == place[2] + 1
    # The other slot has gone on meanwhile.
    others = [each for each in contributions(run) if each.slot != lost.slot]
    assert any(lost.sent < each.judged < again.judged and each.round > 1 for each in others)


def test_a_late_worker_holds_both_slots_up(runs):
    run = runs["late"]
    worker, begin, end = run.scenario.stalled
    assert not [
        each
        for each in run.packets
        if each.up and each.worker == worker and begin < each.sent < end
    ]
    states = [change for change in run.changes if change[0] == "state" and change[1] < end]
    for slot in range(SLOTS):
        *_, seen, missing, _, _ = [change for change in states if change[2] == slot][-1]
        assert (seen, missing) == (0b111 & ~(1 << worker), 1)
    answers = [each.missing for each in run.packets if each.kind == "missing"]
    assert answers
    assert all(missing == [worker] for missing in answers)


def test_a_duplicate_counts_once(runs):
    run = runs["duplicate"]
    copies = [each for each in run.packets if each.copy == "network"]
    assert [each.cause for each in copies] == ["duplicates", "duplicates"]
    early, late = copies
    answered = [
        each.first
        for each in run.packets
        if each.kind == "result" and each.copy and each.worker == early.worker
    ]
    # Only the copy that finds the round complete gets the sums again.
    assert len(answered) == 1
    assert answered[0] > late.judged


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_the_verilated_engine_does_the_same(runs, name):
    """The same frames to the model that Verilator makes: the same frames come out.

    Results in order, and short answers too; whose turn it is depends on the lanes that are built.
    """
    run = runs[name]
    with VerilatedEngine(bus_bits=512, **LARGE) as engine:
        for register, value in {**registers_of(), "job_command": Command.CREATE}.items():
            engine.write(address_of(register), value)
        while engine.read(address_of("job_busy")):
            pass
        engine.play([worker.join() for worker in new_workers(0)])
        origin, left = engine.cycles, []
        for cycle, frame in run.arrived:
            left += engine.run(max(0, cycle - (engine.cycles - origin)))
            left += engine.play([frame], NOT_DRAINED)
        left += engine.play([])
    recorded = [frame for _, frame in run.left]
    assert of_type(left, Type.RESULT) == of_type(recorded, Type.RESULT)
    assert of_type(left, Type.MISSING) == of_type(recorded, Type.MISSING)
    assert len(left) == len(recorded)


def test_captions_tell_what_is_skipped(runs):
    zero = {
        block for block in range(20) if not np.array(VALUES).reshape(WORKERS, -1)[:, block].any()
    }
    for run in runs.values():
        told = " ".join(text for _, kind, text in captions(run) if kind == "skip")
        assert {int(number) for number in re.findall(r"\d+", told)} == zero


def test_captions_say_what_a_slot_has(runs):
    texts = [text for _, _, text in captions(runs["clean"])]
    assert "Worker 1's blocks 0 and 5 arrive: slot 0 has 2 of 3." in texts
    assert texts[-1].endswith("20 blocks had to travel for it, of 60.")


def test_the_page_holds_the_recording(runs, page):
    assert list(runs) == [each.name for each in SCENARIOS]
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    read = json.loads(data)
    assert [each["name"] for each in read["scenarios"]] == list(runs)
    for each in read["scenarios"]:
        run = runs[each["name"]]
        assert [list(change) for change in run.changes] == each["changes"]
        assert len(run.packets) == len(each["packets"])
    assert len(page.encode()) < 300_000


def test_the_page_needs_nothing_else(page):
    text = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
    assert not re.findall(r"https?:|//cdn|@import|url\(|\bimport\s*[({\"']|fetch\(", text)
    sources = re.findall(r"\b(?:src|href)=\"([^\"]*)\"", text)
    assert set(sources) == {"data:,"}
