"""Hooks and counts of one group, and what its observers do when it fails or ends."""

import os
import threading
from typing import Any

import pytest
import torch

from afflux.observe import flight_recorder
from afflux.observe import observers as observers_module
from afflux.observe.call_counts import CallCount, CallCounts
from afflux.observe.observers import Observers
from afflux_drivers.errors import RanksMissing


@pytest.fixture
def observers(monkeypatch):
    monkeypatch.setattr(observers_module, "process_recorder", lambda: None)
    return Observers("0", "default_pg", 1, 2, (0, 1), "shm")


def call(observers, error=None, name="all_reduce"):
    tensors = [torch.zeros(4)]
    observation = observers.begin(1, name, f"{name} float32 (4,)", "gloo", tensors, tensors, 1.0)
    observers.started(observation)
    observers.end(observation, error)


def test_hooks_are_called_around_each_call_until_they_are_removed(observers):
    seen: list[tuple[Any, ...]] = []
    active: list[bool] = []
    assert not observers.active
    observers.tell(active.append)
    handle = observers.hooks.register(
        lambda found: seen.append(("before", found.text, found.started_ns > 0)),
        lambda found: seen.append(("after", found.error, found.ended_ns >= found.started_ns > 0)),
        lambda error: seen.append(("abort", str(error))),
    )
    assert observers.active
    call(observers)
    call(observers, RuntimeError("an error"))
    observers.failed(RuntimeError("the end"))
    observers.failed(RuntimeError("the end, once more"))
    before = ("before", "all_reduce float32 (4,)", False)
    assert seen == [
        before,
        ("after", "", True),
        before,
        ("after", "an error", True),
        ("abort", "the end"),
    ]
    handle.remove()
    handle.remove()
    assert not observers.active
    call(observers)
    assert len(seen) == 5
    assert active == [False, True, False]


def test_the_same_hook_may_be_there_twice(observers):
    seen: list[Any] = []
    with observers.hooks.register(seen.append, None, None):
        with observers.hooks.register(seen.append, None, None):
            call(observers)
        call(observers)
    call(observers)
    assert len(seen) == 3


def test_an_error_in_a_hook_is_logged_and_nothing_else(observers, caplog):
    seen: list[Any] = []
    observers.hooks.register(None, lambda found: 1 // 0, lambda error: 1 // 0)
    observers.hooks.register(None, seen.append, seen.append)
    call(observers)
    call(observers)
    observers.failed(RuntimeError("the end"))
    assert len(seen) == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "the after hook" in caplog.text
    assert "the abort hook" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_what_a_hook_calls_has_no_hooks(observers):
    seen: list[Any] = []

    def hook(found):
        seen.append(found.name)
        call(observers, name="barrier")

    observers.hooks.register(hook, None, None)
    call(observers)
    # Another thread's calls do.
    thread = threading.Thread(target=call, args=(observers,))
    thread.start()
    thread.join()
    assert seen == ["all_reduce", "all_reduce"]


def test_ctrl_c_passes_through_a_hook(observers):
    def interrupted(_):
        raise KeyboardInterrupt

    observers.hooks.register(interrupted, None, None)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            call(observers)


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ((None, None, None), "at least one of before, after and abort"),
        ((None, 7, None), "the hook after=7 cannot be called"),
    ],
)
def test_what_is_no_hook_is_refused(observers, hooks, message):
    with pytest.raises(TypeError, match=message):
        observers.hooks.register(*hooks)
    assert not observers.active


def test_calls_are_counted_by_name_and_way():
    counts = CallCounts()
    counts.include(
        lambda: [CallCount("barrier", "engine", 5, 0, 500), CallCount("b", "x", 1, 2, 3)]
    )

    def add() -> None:
        for _ in range(1000):
            counts.add("all_reduce", "engine", 10, 2_000)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts.add("all_reduce", "gloo", 8, 1)
    counts.add("barrier", "engine", 0, 500)
    assert counts.as_dict() == {
        "all_reduce engine": {"calls": 4000, "bytes": 40_000, "seconds": 0.008},
        "all_reduce gloo": {"calls": 1, "bytes": 8, "seconds": 1e-9},
        "b x": {"calls": 1, "bytes": 2, "seconds": 3e-9},
        "barrier engine": {"calls": 6, "bytes": 0, "seconds": 1e-6},
    }


def test_a_group_that_ended_keeps_its_last_counts(monkeypatch):
    recorder = flight_recorder.FlightRecorder(10)
    monkeypatch.setattr(observers_module, "process_recorder", lambda: recorder)
    observers = Observers("0", "default_pg", 1, 2, (0, 1), "shm")
    reducer = {"blocks_present": 7}
    observers.measure(reducer.copy)
    observers.close()
    reducer.clear()
    call(observers)
    observers.failed(RanksMissing("late", (0,)))
    group = recorder.dump()["afflux"]["groups"]["0"]
    assert group["statistics"] == {"blocks_present": 7}
    assert group["missing_ranks"] == [0]


def test_a_reducer_that_cannot_be_asked_is_no_obstacle(monkeypatch):
    recorder = flight_recorder.FlightRecorder(10)
    monkeypatch.setattr(observers_module, "process_recorder", lambda: recorder)
    observers = Observers("0", "default_pg", 1, 2, (0, 1), "shm")

    def closed():
        raise RuntimeError("it is closed")

    observers.measure(closed)
    tensors = [torch.zeros(4)]
    observation = observers.begin(1, "barrier", "barrier", "engine", tensors, tensors, 1.0)
    observers.started(observation)
    observers.end(observation)
    assert observation.blocks == {}
    group = recorder.dump()["afflux"]["groups"]["0"]
    assert group["statistics"] == {"unavailable": "it is closed"}


def test_a_forked_process_has_a_recorder_of_its_own(monkeypatch):
    monkeypatch.setattr(flight_recorder, "_of_process", [])
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "3")
    own = flight_recorder.process_recorder()
    assert own is flight_recorder.process_recorder()
    child = os.fork()
    if child == 0:
        os._exit(0 if flight_recorder.process_recorder() is not own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert own is flight_recorder.process_recorder()
