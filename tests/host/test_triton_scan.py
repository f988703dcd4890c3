"""The scan in Triton, by its interpreter, beside the scan in C++; without a GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from afflux.group.staging import blocks
from afflux.group.staging.blocks import Blocks, agrees, scan_by_torch

ROOT = Path(__file__).resolve().parents[2]
MODULE = "afflux.group.staging.triton_scan"
CPU = torch.device("cpu")


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="the package triton is not installed"
)
def test_it_finds_the_blocks_that_the_scan_in_cpp_finds():
    command = [sys.executable, "-m", "tests.scenarios.interpreted_scan"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "wrong: []\n"), done.stderr


def test_the_scan_by_torch_agrees_with_itself():
    assert agrees(scan_by_torch, CPU)


def _forgets_the_last_word(rows, flags):
    torch.any(rows[:, :-1], 1, out=flags)


def _takes_the_sign_for_zero(rows, flags):
    torch.any(rows & torch.iinfo(rows.dtype).max, 1, out=flags)


def _sees_only_whole_programs(rows, flags):
    flags.fill_(True)
    scan_by_torch(rows[: len(rows) // 64 * 64], flags[: len(rows) // 64 * 64])


@pytest.mark.parametrize(
    "scan", [_forgets_the_last_word, _takes_the_sign_for_zero, _sees_only_whole_programs]
)
def test_a_scan_that_is_wrong_is_not_used(scan):
    assert not agrees(scan, CPU)


class _Stream:
    def __init__(self, device):
        raise AssertionError("nothing is tried without Triton")


def test_a_device_without_triton_scans_by_torch(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.setattr(torch, "Stream", _Stream)
    blocks._scan_on.cache_clear()
    device = torch.device("cuda", 0)
    assert blocks._scan_on(device) is scan_by_torch
    assert blocks._scan_on(device) is scan_by_torch
    blocks._scan_on.cache_clear()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "cuda:0: blocks are found by torch's kernels, not by Triton's: ModuleNotFoundError"
    )


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize("count", [1, 63, 64, 5000, 5001])
def test_blocks_are_put_where_they_were_taken(dtype, count):
    source = torch.Generator().manual_seed(count)
    tensor = torch.zeros(count + 1, dtype=dtype)[1:]
    places = torch.randint(count, (5,), generator=source)
    tensor[places] = torch.tensor([1, 2, 3, -4, 5], dtype=dtype)
    of_tensor = Blocks(tensor)
    numbers = of_tensor.present().nonzero().view(-1)
    last = of_tensor.ends_short(int(numbers[-1]))
    room = torch.full((len(numbers) * of_tensor.width + 70,), 9).to(dtype)
    of_tensor.take(numbers, last, room)
    taken = room.view(torch.uint8).numpy()[: 256 * len(numbers)].copy()
    assert taken.reshape(-1, 256).any(axis=1).all()
    assert not room[len(numbers) * of_tensor.width :].any()
    whole = np.zeros(-(-tensor.nbytes // 256) * 256, np.uint8).reshape(-1, 256)
    whole[numbers.numpy()] = taken.reshape(-1, 256)
    expected = tensor.contiguous().view(torch.uint8).numpy()
    assert (whole.reshape(-1)[: tensor.nbytes] == expected).all()
    room.mul_(2)
    doubled = tensor * 2
    of_tensor.put(numbers, last, room)
    assert torch.equal(tensor, doubled)
