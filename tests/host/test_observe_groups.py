"""Observers of real groups: from the script's call to the dump, the line and the hook."""

import json
import os
import pickle
import subprocess
import sys
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import afflux
from tests.support.host.ranks import caught, run_ranks, values

ANALYSER = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]


def analyse(folder, *options):
    """Run torch's own program on a folder of dumps, as users do; return all that it prints."""
    done = subprocess.run(
        [*ANALYSER, str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def everything(rank, size, folder):
    """Call many things, by every way; then rank 2 stays away from one call."""
    seen = []
    handle = afflux.register_hook(
        before=lambda call: seen.append(("before", call.name)),
        after=lambda call: seen.append(("after", call.name)),
        abort=lambda error: seen.append(("abort", type(error).__name__)),
    )
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True).wait()
    dist.broadcast(tensor, 1)
    dist.all_gather_into_tensor(torch.empty(size * 1000), tensor)
    dist.all_gather([torch.empty(1000) for _ in range(size)], tensor)
    dist.reduce_scatter_tensor(torch.empty(10), torch.ones(size * 10))
    dist.reduce(tensor, 2)
    dist.all_reduce(torch.ones(5), op=dist.ReduceOp.PRODUCT)
    dist.all_to_all_single(torch.empty(size), torch.ones(size))
    gathered = [torch.empty(1000) for _ in range(size)] if rank == 0 else None
    dist.gather(tensor, gathered, 0)
    dist.scatter(torch.empty(1000), [tensor] * size if rank == 0 else None, 0)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    if rank == 0:
        dist.send(tensor, 1)
        dist.isend(tensor, 2).wait()
    elif rank == 1:
        dist.recv(tensor, 0)
    else:
        assert dist.recv(tensor) == 0
    dist.barrier()
    pair = dist.new_group([0, 2])
    if rank != 1:
        dist.all_reduce(torch.ones(3), group=pair)
    dist.barrier()
    calls = len(seen)
    handle.remove()
    check_counts(rank, afflux.statistics())
    (folder / "clean").mkdir(exist_ok=True)
    dumped = afflux.dump_flight_record(folder / "clean")
    missing = None
    if rank == 2:
        time.sleep(4)
    else:
        afflux.register_hook(abort=lambda error: seen.append(("abort", type(error).__name__)))
        missing = caught(lambda: dist.all_reduce(torch.ones(7)))
    return calls, seen, str(dumped), missing


def check_counts(rank, found):
    calls = found["calls"]
    reduced = [count for name, count in calls.items() if name.startswith("all_reduce ")]
    assert sum(count["calls"] for count in reduced) == 3
    assert sum(count["bytes"] for count in reduced) == 8020
    assert 0 < calls["all_reduce engine"]["seconds"] < 10
    assert calls["reduce gloo"]["calls"] == 1
    # A transfer is one call at each of its ends.
    sent = [count for name, count in calls.items() if name.startswith("send ")]
    assert [count["calls"] for count in sent] == ([2] if rank == 0 else [])
    received = [count["calls"] for name, count in calls.items() if name.startswith("recv")]
    assert received == ([] if rank == 0 else [1])
    transfers = {name: n for name, n in found["gloo"].items() if name.startswith(("send", "recv"))}
    assert list(transfers.values()) == ([2] if rank == 0 else [1])


def late(rank, size):
    """Rank 2 does not come to the barrier."""
    limit = timedelta(seconds=1)
    # Where all come, one of them may come later on a busy machine.
    patient = timedelta(seconds=15)
    afflux.monitored_barrier(timeout=patient)
    refused = caught(lambda: dist.monitored_barrier(timeout=patient))
    found = None
    if rank != 2:
        found = caught(lambda: afflux.monitored_barrier(timeout=limit, wait_all_ranks=True))
    dist.barrier()
    return refused, found


def test_a_barrier_names_who_does_not_come():
    outcomes = values(run_ranks(late, 3, environment={"AFFLUX_AGGREGATOR": "shm://"}, timeout_s=20))
    for refused, _ in outcomes:
        # Before 2.14 torch lets only groups of Gloo call its own.
        assert refused[1] in ("ValueError", "nothing raised")
    message, kind, _ = outcomes[0][1]
    assert kind == "RanksMissing"
    assert "Ranks 2 failed to pass monitoredBarrier in 1000 ms" in message
    message, kind, _ = outcomes[1][1]
    assert "Rank 1 successfully reached monitoredBarrier" in message


def run_everything(folder, adapter):
    return values(
        run_ranks(
            everything,
            3,
            folder,
            environment={
                "AFFLUX_AGGREGATOR": "shm://",
                "AFFLUX_ADAPTER": adapter,
                "AFFLUX_TRACE": str(folder / "trace-%r.jsonl"),
                "TORCH_FR_DUMP_TEMP_FILE": str(folder / "failed" / "rank_"),
            },
            timeout_s=2,
        )
    )


@pytest.mark.parametrize("adapter", ["native", pytest.param("python", marks=pytest.mark.long)])
def test_what_is_seen_of_real_groups(tmp_path, adapter):
    outcomes = run_everything(tmp_path, adapter)
    check_hooks(outcomes)
    check_dumps(tmp_path)
    check_trace(tmp_path)


def check_hooks(outcomes):
    for rank, (calls, seen, dumped, missing) in enumerate(outcomes):
        assert dumped.endswith(f"clean/rank_{rank}")
        names = [name for when, name in seen[:calls] if when == "after"]
        assert names.count("all_reduce") == 3
        assert {"broadcast", "reduce", "gather", "scatter", "barrier"} <= set(names)
        assert {"send", "recv", "recv_anysource"} & set(names)
        assert [when for when, _ in seen[:calls]].count("before") == len(names)
        # One of the two waits to the end, and the other may hear of it first.
        assert seen[calls:] == ([] if rank == 2 else [("abort", missing[1])])
    assert "RanksMissing" in (outcomes[0][3][1], outcomes[1][3][1])


def check_dumps(folder):
    clean = analyse(folder / "clean")
    assert not any(word in clean for word in ("Not all ranks", "Culprit", "mismatch")), clean
    failed = analyse(folder / "failed")
    assert "Not all ranks joining collective" in failed
    assert "missing ranks: {2}" in failed
    assert "everything at " in failed
    dumps = [pickle.loads((folder / "failed" / f"rank_{n}").read_bytes()) for n in range(3)]
    for rank, dump in enumerate(dumps):
        group = next(iter(dump["afflux"]["groups"].values()))
        assert group["engine"] == "shm"
        assert group["failure_kind"] in ("RanksMissing", "GroupFailed")
        assert group["missing_ranks"] == [2], rank
        assert "rank 2: nothing since barrier" in group["doing"][2]
    sizes = {len(each["pg_config"]["0"]["ranks"]) for each in dumps}
    assert sizes == {len("[0, 1, 2]")}


def check_trace(folder):
    lines = [
        [json.loads(line) for line in (folder / f"trace-{rank}.jsonl").read_text().splitlines()]
        for rank in range(3)
    ]
    for rank, found in enumerate(lines):
        whole = [each for each in found if each["group"] == "0" and "peer" not in each]
        assert [each["sequence"] for each in whole] == list(range(1, len(whole) + 1))
        assert {each["rank"] for each in found} == {rank}
        first = whole[0]
        assert (first["collective"], first["way"], first["bytes"]) == ("all_reduce", "engine", 4000)
        assert first["blocks_total"] == 16
        assert first["blocks_present"] == 16
        assert first["queued_ns"] <= first["started_ns"] < first["ended_ns"]
        ways = {each["collective"]: each["way"] for each in whole}
        assert ways["all_to_all_single"] == "gloo"
        last = whole[-1]
        if rank != 2:
            assert "timed out" in last["error"].lower()
    sent = [each for each in lines[0] if each["collective"] == "send"]
    assert [each["peer"] for each in sent] == [1, 2]
    (received,) = [each for each in lines[2] if each["collective"] == "recv_anysource"]
    assert received["peer"] == 0


def nobody_asks(rank, _size, folder):
    dist.all_reduce(torch.ones(4))
    found = caught(lambda: afflux.dump_flight_record(folder / "rank"))
    if rank == 1:
        os._exit(1)
    failed = caught(lambda: dist.all_reduce(torch.ones(4)))
    return found, failed


def test_without_a_variable_nothing_is_recorded_or_written(tmp_path):
    outcomes = run_ranks(
        nobody_asks, 2, tmp_path, environment={"AFFLUX_AGGREGATOR": "shm://"}, timeout_s=5
    )
    (message, kind, _), failed = outcomes[0].value
    assert kind == "RuntimeError"
    assert "TORCH_FR_BUFFER_SIZE" in message
    assert failed[1] == "RanksEnded"
    assert list(tmp_path.iterdir()) == []


def misspelt(_rank, _size):
    return None


def test_a_value_that_cannot_be_is_an_error_at_every_rank():
    outcomes = run_ranks(
        misspelt,
        2,
        environment={
            "AFFLUX_AGGREGATOR": "shm://",
            "BAD_RANK": "1",
            "BAD": "TORCH_FR_BUFFER_SIZE=many",
        },
        timeout_s=5,
    )
    for outcome in outcomes:
        assert outcome.failed
        assert "rank 1: TORCH_FR_BUFFER_SIZE='many': must be an integer" in outcome.message
