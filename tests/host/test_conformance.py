"""The list of scripts that people run: Gloo is better in none. `make conformance` has all."""

import subprocess
import sys

import pytest
import torch

from tests.conformance import planted
from tests.conformance.catalogue import THEMES, scripts
from tests.conformance.comparison import difference
from tests.conformance.run import rows
from tests.conformance.script import collected
from tests.support.checkout import ROOT

BACKENDS = ("gloo", "afflux")


@pytest.mark.slow
@pytest.mark.parametrize(
    "themes",
    [
        THEMES[1:2],
        pytest.param(THEMES[9:10], marks=pytest.mark.long),
        pytest.param(THEMES[5::8], marks=pytest.mark.long),
        pytest.param(THEMES[3::4], marks=pytest.mark.long),
        pytest.param(THEMES[::2], marks=pytest.mark.long),
    ],
    ids=["one", "another", "more", "many", "the others"],
)
def test_no_script_is_better_with_gloo(themes):
    # In a process of its own, whose ranks are forked from one that has imported the scripts.
    command = [sys.executable, "-m", "tests.conformance", "--quick", "--only", *themes]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_is_long_and_each_says_what_it_does():
    assert len(scripts()) >= 80
    assert [each.name for each in scripts() if not each.about] == []


@pytest.mark.slow
@pytest.mark.long
def test_sees_what_goes_wrong_and_goes_on(tmp_path):
    wanted = [each for each in collected() if each.module == planted.__name__]
    done = {each.script.name: each for each in rows(wanted, BACKENDS, 2, tmp_path)}
    verdicts = {name: row.verdict for name, row in done.items()}
    assert verdicts == {
        "returns_another_sum": "DIFFERS",
        "raises_at_one_rank": "FAILS",
        "dies": "FAILS",
        "hangs": "FAILS",
        "fails_with_gloo": "GLOO FAILS",
        "passes": "ok",
    }
    assert "KeyError: 'planted'" in done["raises_at_one_rank"].why
    assert "SIGSEGV" in done["dies"].why and done["dies"].plays["afflux"].mark == "died"
    assert done["hangs"].plays["afflux"].mark == "hung"


@pytest.mark.parametrize(
    ("expected", "found", "bound", "word"),
    [
        (torch.ones(3), torch.ones(3), 0.0, ""),
        (torch.ones(3), torch.ones(3) * 1.001, 0.0, "differs"),
        (torch.ones(3), torch.ones(3) * 1.001, 0.01, ""),
        (torch.ones(3), torch.ones(4), 0.0, "(4,)"),
        (torch.ones(3), torch.ones(3).double(), 0.0, "float64"),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), 0.0, ""),
        (torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 1.0]), 0.0, "number"),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")]), 0.0, "number"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), 1.0, "1 elements"),
        ([1, {"a": 2.0}], [1, {"a": 2.5}], 0.0, "[1]['a']"),
        ([1, 2], [1, 2, 3], 0.0, "3 items"),
        ({"a": 1}, {"b": 1}, 0.0, "keys"),
        ("refused", "taken", 0.0, "'taken'"),
        (1, 1.0, 0.0, "float"),
    ],
)
def test_compares(expected, found, bound, word):
    text = difference(expected, found, bound)
    assert (word in text) if word else not text
