"""A complete simulated board, from RGMII pins to RGMII pins, sums for ranks as software does."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.commands import serve
from afflux.group.forming import launched_aggregator
from afflux_drivers.control.client import read_counters
from afflux_drivers.device.description import jobs
from afflux_drivers.device.device import open_device
from afflux_drivers.device.key import key_of_file
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, registers_of
from afflux_drivers.errors import AggregatorRefused
from afflux_sim.board import __main__ as board_command
from afflux_sim.board.simulated_appliance import SIZES
from tests.support.host import serving
from tests.support.host.ranks import caught, run_ranks, values

# The model may have to be built first; every wait of these tests is bounded below.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BOARD = {"AFFLUX_AGGREGATOR": "board://"}


def test_the_command_has_the_sizes_of_the_simulated_board():
    """It cannot import them, as the simulation may not be installed."""
    assert serve.SIZES["board"] == SIZES


SEVERAL_ROUNDS = 7_000
"""Elements. To simulate them takes most of the time, hence few of such tensors in most runs."""
FEW_LARGE = (
    (torch.float32, dist.ReduceOp.SUM),
    (torch.bfloat16, dist.ReduceOp.MAX),
    (torch.int32, dist.ReduceOp.SUM),
)


def reduce_some(rank, _size, every=False):
    """Return the bits of sums and maxima of all kinds, and what was counted on the way."""
    results = {}
    for seed, dtype in enumerate((torch.float32, torch.bfloat16, torch.int32)):
        # A tensor of nothing, one exact sum, a block, a slot and one element, several rounds.
        for count in (0, 20, 74, 5 * 64 + 1, SEVERAL_ROUNDS):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                if count == SEVERAL_ROUNDS and not every and (dtype, op) not in FEW_LARGE:
                    continue
                generator = torch.Generator().manual_seed(10 * rank + seed)
                tensor = (100 * torch.randn(count, generator=generator)).to(dtype)
                if dtype != torch.int32 and count > 1000:
                    tensor[7] = float("nan") if rank == 0 else 1.0
                    tensor[70 + rank] = float("inf")
                    tensor[640:1920] = 0
                dist.all_reduce(tensor, op=op)
                results[dtype, count, str(op)] = tensor.view(torch.uint8).numpy().tobytes()
    dist.barrier()
    counted = afflux.statistics()
    asked = (afflux.engine_counters(), afflux.engine_description()) if rank == 0 else ({}, {})
    return results, counted, *asked


@pytest.fixture(scope="module")
def of_software():
    """Return the bits of the software engine."""
    environment = {"AFFLUX_AGGREGATOR": "soft://"}
    (first, *_), *_ = values(run_ranks(reduce_some, 3, True, environment=environment))
    return first


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_board_that_the_ranks_start_gives_the_bits_of_software_whatever_is_lost(
    of_software, every
):
    environment = {**BOARD, "AFFLUX_TEST_LOSS": "0.03"}
    # A build of the model takes longer than all sums.
    found = values(
        run_ranks(reduce_some, 3, every, environment=environment, timeout_s=200.0, limit_s=250.0)
    )
    for results, counted, _, _ in found:
        assert len(results) == (30 if every else 27)
        assert results == {case: of_software[case] for case in results}
        assert counted["engine"] == "board"
        assert counted["lanes"] == 5
    _, _, counters, description = found[0]
    assert counters["blocks_accepted"] == sum(counted["blocks_sent"] for _, counted, _, _ in found)
    assert description["cycles"] > 0
    assert sum(counted["dropped_sent"] for _, counted, _, _ in found) > 0


def lose_the_engine(rank, _size):
    dist.all_reduce(torch.ones(10))
    # The others may still need their result sent again.
    time.sleep(0.5)
    if rank == 0:
        (aggregator,) = launched_aggregator._launched.values()
        os.kill(aggregator.process.pid, signal.SIGKILL)
    return caught(lambda: dist.all_reduce(torch.ones(20_000)))


@pytest.mark.long
def test_a_board_that_ends_with_its_process_is_named_at_every_rank():
    environment = {**BOARD, "AFFLUX_PEER_TIMEOUT": "1", "AFFLUX_REQUIRE": "1"}
    for message, kind, seconds in values(run_ranks(lose_the_engine, 2, environment=environment)):
        assert kind in ("AggregatorUnreachable", "GroupFailed")
        assert "aggregator at 127.0.0.2:" in message
        assert seconds < 7


# A board on a table: it runs alone, and `afflux serve device` is its controller.


@pytest.fixture
def board(tmp_path):
    """Yield a board's process, the URL of its registers, and the file with its key."""
    key = tmp_path / "board.key"
    command = ["-m", "afflux_sim.board", "--port", "0", "--engine-port", "0"]
    process = subprocess.Popen(
        [sys.executable, *command, "--key-file", str(key)], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("afflux: simulated board at udp://127.0.0.2:"), line
        yield process, line.split()[4].rstrip(","), key
    finally:
        process.terminate()
        process.communicate(timeout=20)


@contextlib.contextmanager
def controlled(device, key):
    """Yield a controller's process, its first line, and its port if it serves."""
    # As a script it does not load torch.
    words = ("--key-file", str(key), "--port", "0")
    process, line = serving.start(*words, engine=["device", device], program=(serve.__file__,))
    try:
        yield process, line, int(line.rpartition(":")[2]) if " engine on " in line else 0
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def jobs_on(device, key):
    with open_device(DeviceUrl.parse(device), key=key_of_file(str(key))) as opened:
        return jobs(opened)


def test_the_controller_with_the_key_gives_ranks_their_job_and_takes_it_back(
    board, of_software, tmp_path
):
    _, device, key = board
    other = tmp_path / "other.key"
    other.touch(mode=0o600)
    other.write_text("00" * 16)
    began = time.monotonic()
    with controlled(device, other) as (process, line, _):
        assert process.wait(20) == 1
        assert time.monotonic() - began < 20
        assert line.startswith(f"afflux: cannot serve: {device}: open: "), line
        assert "none under this key: it is not the key of this board's settings" in line
    with controlled(device, key) as (process, line, port):
        assert line.startswith("afflux: board engine on udp://127.0.0.1:"), line
        environment = {"AFFLUX_AGGREGATOR": f"udp://127.0.0.1:{port}"}
        for results, counted, _, _ in values(run_ranks(reduce_some, 3, environment=environment)):
            assert results == {case: of_software[case] for case in results}
            assert len(results) == 27
            assert counted["engine"] == "board"
        # It has no time to tidy up: what is gone, the ranks have given back.
        process.send_signal(signal.SIGKILL)
        process.wait()
    with open_device(DeviceUrl.parse(device), key=key_of_file(str(key))) as opened:
        assert jobs(opened) == []


def lose_the_board(rank, _size, board_pid):
    dist.all_reduce(torch.ones(10))
    # The others may still need their result sent again.
    time.sleep(0.5)
    if rank == 0:
        os.kill(board_pid, signal.SIGKILL)
    return caught(lambda: dist.all_reduce(torch.ones(20_000)))


def test_a_board_that_dies_is_named_at_every_rank_and_by_its_controller(board):
    process, device, key = board
    with controlled(device, key) as (controller, _, port):
        environment = {
            "AFFLUX_AGGREGATOR": f"udp://127.0.0.1:{port}",
            "AFFLUX_PEER_TIMEOUT": "1",
            "AFFLUX_CLOSE_TIMEOUT": "1",
            "AFFLUX_REQUIRE": "1",
        }
        outcomes = run_ranks(lose_the_board, 2, process.pid, environment=environment)
        for message, kind, seconds in values(outcomes):
            assert kind in ("AggregatorUnreachable", "GroupFailed")
            assert "aggregator at 127.0.0.2:" in message
            assert seconds < 7
        # A later client is told the error, and not left waiting.
        began = time.monotonic()
        with pytest.raises(AggregatorRefused, match=rf"{device}: .*no answer within .* s"):
            read_counters(("127.0.0.1", port), 10.0)
        assert time.monotonic() - began < 15
        # It would try to end the job.
        controller.kill()
    # A killed process leaves the file of its lock, which goes with its next holder.
    DeviceLock(registers_of(DeviceUrl.parse(device))).close()


@pytest.mark.parametrize("option", ["--port", "--engine-port"])
@pytest.mark.parametrize("port", ["70000", "-1", "x"])
def test_a_port_that_there_is_not_is_said(tmp_path, capsys, option, port):
    with pytest.raises(SystemExit) as ended:
        board_command.main(["--key-file", str(tmp_path / "key"), f"{option}={port}"])
    assert ended.value.code == 2
    assert f"argument {option}: '{port}' is not a port, 0 to 65535" in capsys.readouterr().err


def test_what_keeps_a_board_from_starting_is_said(tmp_path):
    command = [sys.executable, "-m", "afflux_sim.board", "--key-file", str(tmp_path / "key")]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", 0))
        port = other.getsockname()[1]
        result = subprocess.run(
            [*command, "--port", "0", "--engine-port", str(port)],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        f"afflux: cannot simulate a board: 127.0.0.2:{port}: Address already in use"
    )
    assert not result.stdout
