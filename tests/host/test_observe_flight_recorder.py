"""The flight recorder: what torch's `fr_trace` makes of its dumps."""

import gc
import logging
import pickle
import re
import threading

import pytest
import torch
from torch.distributed.flight_recorder import fr_trace

from afflux.observe import observers as observers_module
from afflux.observe.dump_file import write_dump
from afflux.observe.flight_recorder import FlightRecorder
from afflux.observe.observers import Observers
from afflux_drivers.errors import RanksMissing

VARIABLES = [
    "TORCH_FR_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_FR_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_FR_CPP_STACK",
    "TORCH_NCCL_TRACE_CPP_STACK",
    "TORCH_INCLUDE_STACK_TRACE",
    "TORCH_INCLUDE_ONLY_ACTIVE",
]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


class Ranks:
    """Ranks of one group in this process, each with a recorder of its own, as processes have."""

    def __init__(self, monkeypatch, size, kept=100, name="0", global_ranks=None):
        self.size = size
        self.recorders = []
        self.observers = []
        self.sequences = [0] * size
        for rank in range(size):
            recorder = FlightRecorder(kept)
            monkeypatch.setattr(
                observers_module, "process_recorder", lambda recorder=recorder: recorder
            )
            self.recorders.append(recorder)
            self.observers.append(
                Observers(name, "default_pg", rank, size, global_ranks or range(size), "shm")
            )

    def call(self, rank, name, inputs, outputs=None, *, over=True, way="engine", **transfer):
        observers = self.observers[rank]
        if not transfer:
            self.sequences[rank] += 1
        observation = observers.begin(
            self.sequences[rank],
            name,
            f"{name} float32",
            way,
            inputs,
            inputs if outputs is None else outputs,
            5.0,
            **transfer,
        )
        observers.started(observation)
        if over:
            observers.end(observation)
        return observation

    def everywhere(self, name, inputs, outputs=None, **more):
        for rank in range(self.size):
            self.call(rank, name, inputs, outputs, **more)

    def write(self, folder):
        for rank, recorder in enumerate(self.recorders):
            write_dump(recorder, folder / f"rank_{self.observers[rank].global_rank}")


class Received:
    """The Work of a receive from anybody."""

    over = False

    def is_completed(self):
        return self.over

    def _source_rank(self):
        return 0


def analyse(folder, caplog, *options):
    """Run torch's program on the dumps; return what it prints and its collectives."""
    result = folder / "result"
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "Flight Recorder"):
        try:
            fr_trace.main([str(folder), "-p", "rank_", "-o", str(result), *options])
        finally:
            # It switches the collector off.
            gc.enable()
    text = "\n".join(record.getMessage() for record in caplog.records)
    with result.open("rb") as file:
        _, database = pickle.load(file)
    result.unlink()
    return text, database


def floats(*shape):
    return [torch.zeros(shape)]


def test_a_clean_run_of_every_collective_has_no_error(monkeypatch, tmp_path, caplog):
    ranks = Ranks(monkeypatch, 3)
    own, every = floats(4), [torch.zeros(4) for _ in range(3)]
    whole = floats(12)
    calls = {
        "all_reduce": (own, own),
        "allreduce_coalesced": (every, every),
        "broadcast": (own, own),
        "reduce": (own, own),
        "allgather": (own, every),
        "allgather_coalesced": (own, every),
        "all_gather_single": (own, whole),
        "all_gather_single_coalesced": (own, whole),
        "reduce_scatter": (every, own),
        "reduce_scatter_single": (whole, own),
        "reduce_scatter_single_coalesced": (whole, own),
        "gather": (own, every),
        "scatter": (every, own),
        "alltoall": (every, every),
        "all_to_all_single": (whole, whole),
        "barrier": ([], []),
        "monitored_barrier": ([], []),
        "empty": ([], []),
        "a collective of next year": (own, own),
    }
    for name, (inputs, outputs) in calls.items():
        ranks.everywhere(name, inputs, outputs)
    # In a group of three, to both neighbours, in both directions and out of order.
    ranks.call(0, "send", own, [], peer=1)
    ranks.call(0, "send", own, [], peer=1, tag=7)
    ranks.call(0, "recv", [], own, peer=2)
    ranks.call(1, "recv", [], own, peer=0, tag=7)
    ranks.call(1, "recv", [], own, peer=0)
    ranks.call(2, "send", own, [], peer=0)
    # A receive that learns its source at its end, and one that waits for anybody still.
    found = ranks.call(2, "recv_anysource", [], own, over=False, peer=None)
    ranks.call(0, "send", own, [], peer=2)
    received = Received()
    ranks.observers[2].end_later(found, received)
    waiting = ranks.call(2, "recv_anysource", [], own, over=False, peer=None)
    assert not found.ended_ns
    ranks.observers[2].end_later(waiting, Received())
    received.over = True
    ranks.everywhere("all_reduce", own)
    ranks.write(tmp_path)
    text, database = analyse(tmp_path, caplog)
    assert not re.search("mismatch|error|Not all|missing|cannot", text, re.IGNORECASE), text
    assert len(database.collectives) == len(calls) + 1 + 4
    assert all(each.pass_check for each in database.collectives)


def test_ranks_that_wait_for_one_name_it(monkeypatch, tmp_path, caplog):
    ranks = Ranks(monkeypatch, 3, global_ranks=(4, 5, 6))
    ranks.everywhere("all_reduce", floats(4))
    for rank in (0, 1):
        observation = ranks.call(rank, "all_reduce", floats(4), over=False)
        error = RanksMissing("timed out", (2,))
        ranks.observers[rank].failed(error, doing={0: "all_reduce (operation 2)"})
        ranks.observers[rank].end(observation, error)
    ranks.observers[2].failed(RuntimeError("rank 0 failed"), missing=[2])
    ranks.write(tmp_path)
    text, _ = analyse(tmp_path, caplog)
    assert "Not all ranks joining collective, sequence number: 2" in text
    assert "missing ranks: {6}" in text
    assert "collective state: started" in text
    stack = text.partition("collective stack trace: \n")[2]
    assert stack.lstrip().startswith(f"call at {__file__}:")
    dump = pickle.loads((tmp_path / "rank_4").read_bytes())
    group = dump["afflux"]["groups"]["0"]
    assert group["missing_ranks"] == [2]
    assert group["missing_global_ranks"] == [6]
    assert group["failure"] == "timed out"
    assert group["failure_kind"] == "RanksMissing"
    assert group["doing"] == {0: "all_reduce (operation 2)"}
    assert dump["entries"][-1]["retired"]
    assert dump["entries"][-1]["afflux"]["error"] == "timed out"
    assert dump["pg_status"]["0"] == {
        "last_enqueued_collective": 2,
        "last_started_collective": 2,
        "last_completed_collective": 1,
    }


def test_a_rank_that_is_dead_is_the_one_without_a_dump(monkeypatch, tmp_path, caplog):
    ranks = Ranks(monkeypatch, 3)
    ranks.everywhere("all_reduce", floats(4))
    for rank in (0, 1):
        ranks.call(rank, "all_reduce", floats(4), over=False)
    ranks.write(tmp_path)
    (tmp_path / "rank_2").unlink()
    text, _ = analyse(tmp_path, caplog, "--allow-incomplete-ranks")
    assert "we missed FR dumps from ranks ({2})" in text


@pytest.mark.parametrize(
    ("name", "tensors", "expected"),
    [
        ("all_reduce", floats(5), "SIZE_OR_SYNTAX_MISMATCH"),
        ("broadcast", floats(4), "COLLECTIVE_TYPE_MISMATCH"),
        ("all_reduce", [torch.zeros(4, dtype=torch.int32)], "COLLECTIVE_DTYPE_MISMATCH"),
    ],
)
def test_ranks_that_call_different_things_are_told_apart(
    monkeypatch, tmp_path, caplog, name, tensors, expected
):
    ranks = Ranks(monkeypatch, 3)
    ranks.call(0, "all_reduce", floats(4), over=False)
    ranks.call(1, "all_reduce", floats(4), over=False)
    ranks.call(2, name, tensors, over=False)
    ranks.write(tmp_path)
    text, _ = analyse(tmp_path, caplog)
    assert expected in text
    # fr_trace compares all with the rank whose file it has found first.
    culprits = set(re.findall(r"Culprit rank (\d)", text))
    assert culprits in ({"2"}, {"0", "1"})


def test_a_receive_without_its_send(monkeypatch, tmp_path, caplog):
    ranks = Ranks(monkeypatch, 3)
    ranks.everywhere("all_reduce", floats(4))
    ranks.call(2, "recv", [], floats(4), peer=1, over=False)
    ranks.write(tmp_path)
    text, _ = analyse(tmp_path, caplog)
    assert "missing ranks: {1}" in text
    assert "0:1->2" in text


def test_the_latest_calls_are_kept_in_the_order_they_were_asked_for(monkeypatch):
    ranks = Ranks(monkeypatch, 1, kept=5)
    for _ in range(8):
        ranks.everywhere("all_reduce", floats(4))
    ranks.call(0, "all_reduce", floats(4), over=False)
    dump = ranks.recorders[0].dump()
    assert [entry["collective_seq_id"] for entry in dump["entries"]] == [5, 6, 7, 8, 9]
    assert [entry["record_id"] for entry in dump["entries"]] == [4, 5, 6, 7, 8]
    active = ranks.recorders[0].dump(only_active=True, include_stacks=False)
    assert [entry["collective_seq_id"] for entry in active["entries"]] == [9]
    assert "frames" not in active["entries"][0]


def test_an_entry_has_what_torch_has_in_it(monkeypatch):
    """Compare with the entries that torch records for Gloo, field by field."""
    ranks = Ranks(monkeypatch, 2)
    counts = {"blocks_present": 3, "blocks_total": 10, "operations": 1}
    ranks.observers[0].measure(lambda: counts)
    observation = ranks.observers[0].begin(
        1, "all_reduce", "all_reduce sum bfloat16 (4,)", "engine",
        [torch.zeros(4, dtype=torch.bfloat16)], [torch.zeros(4, dtype=torch.bfloat16)], 2.5,
    )  # fmt: skip
    scheduled = ranks.recorders[0].dump()["entries"][0]["state"]
    ranks.observers[0].started(observation)
    started = ranks.recorders[0].dump()["entries"][0]["state"]
    counts = {"blocks_present": 5, "blocks_total": 14, "operations": 2}
    ranks.observers[0].end(observation)
    dump = ranks.recorders[0].dump()
    (entry,) = dump["entries"]
    assert (scheduled, started, entry["state"]) == ("scheduled", "started", "completed")
    assert entry["input_dtypes"] == entry["output_dtypes"] == ["BFloat16"]
    assert entry["input_sizes"] == [[4]]
    assert entry["timeout_ms"] == 2500
    assert entry["thread_name"] == threading.current_thread().name
    assert entry["process_group"] == ("0", "default_pg")
    assert entry["afflux"]["way"] == "engine"
    assert entry["afflux"]["blocks"] == {"blocks_present": 2, "blocks_total": 4}
    created, begun, ended = (
        entry[name]
        for name in (
            "time_created_ns",
            "time_discovered_started_ns",
            "time_discovered_completed_ns",
        )
    )
    assert created <= begun <= ended
    assert entry["duration_ms"] == (ended - begun) / 1e6
    assert dump["afflux"]["groups"]["0"]["statistics"] == counts
    assert torch_fields() <= set(entry)
    assert dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def torch_fields():
    """Return the fields of an entry in torch's own dump of Gloo."""
    return {
        "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id",
        "p2p_seq_id", "op_id", "profiling_name", "time_created_ns", "input_sizes", "input_dtypes",
        "output_sizes", "output_dtypes", "state", "time_discovered_started_ns",
        "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p", "frames",
    }  # fmt: skip


def test_a_new_group_with_an_old_name_starts_anew(monkeypatch):
    ranks = Ranks(monkeypatch, 1)
    ranks.everywhere("all_reduce", floats(4))
    again = Observers("0", "default_pg", 0, 1, (0,), "shm")
    again.end(again.begin(1, "barrier", "barrier", "engine", [], [], 1.0))
    (entry,) = ranks.recorders[0].dump()["entries"]
    assert entry["profiling_name"].endswith(":barrier")


def test_a_dump_is_written_where_torch_says_if_it_is_asked_for(monkeypatch, tmp_path):
    for asked, written in [
        ({}, False),
        ({"TORCH_FR_DUMP_TEMP_FILE": "new/a_"}, True),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "old/a_"}, True),
        ({"TORCH_FR_DUMP_TEMP_FILE": "no/a_", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, False),
        ({"XDG_CACHE_HOME": "cache", "TORCH_FR_DUMP_ON_TIMEOUT": "1"}, True),
    ]:
        with monkeypatch.context() as patch:
            for name, value in asked.items():
                flag = value in ("0", "1")
                patch.setenv(name, value if flag else str(tmp_path / value))
            ranks = Ranks(patch, 2, global_ranks=(8, 9))
            ranks.call(1, "all_reduce", floats(4), over=False)
            ranks.observers[1].failed(RanksMissing("timed out", (0,)))
            found = [each for each in tmp_path.rglob("*") if each.is_file()]
            assert [each.name[-2:] for each in found] == (["_9"] if written else []), asked
            for each in found:
                assert pickle.loads(each.read_bytes())["entries"][0]["state"] == "started"
                each.unlink()


def test_a_dump_that_cannot_be_written_is_a_line_in_the_log(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "file" / "a_"))
    ranks = Ranks(monkeypatch, 1)
    ranks.observers[0].failed(RuntimeError("an error"))
    assert "the flight record could not be written" in caplog.text


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, 0),
        ({"TORCH_FR_BUFFER_SIZE": "7"}, 7),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, 0),
        ({"TORCH_FR_BUFFER_SIZE": "7", "TORCH_NCCL_TRACE_BUFFER_SIZE": "8"}, 7),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "8"}, 8),
        ({"TORCH_FR_DUMP_TEMP_FILE": "a"}, 2000),
        ({"TORCH_FR_DUMP_TEMP_FILE": "a", "TORCH_FR_BUFFER_SIZE": "0"}, 0),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "true"}, 2000),
    ],
)
def test_torch_s_variables_size_the_recorder(monkeypatch, variables, size):
    from afflux.observe import flight_recorder

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(flight_recorder, "_of_process", [])
    recorder = flight_recorder.process_recorder()
    assert (recorder.size if recorder else 0) == size
    assert Observers("0", "", 0, 1, (0,), "shm").active == (size > 0)


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_ON_TIMEOUT"])
def test_a_bad_value_is_named(monkeypatch, name):
    from afflux.observe import flight_recorder

    monkeypatch.setenv(name, "many")
    monkeypatch.setattr(flight_recorder, "_of_process", [])
    with pytest.raises(ValueError, match=f"{name}='many': must be "):
        flight_recorder.process_recorder()


def test_threads_may_record_while_another_dumps(monkeypatch):
    ranks = Ranks(monkeypatch, 1, kept=50)
    stop = threading.Event()

    def record():
        while not stop.is_set():
            ranks.everywhere("all_reduce", floats(4))

    threads = [threading.Thread(target=record) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            ranks.recorders[0].dump()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
