"""Some trials of the campaign, and that its judge can fail. `make chaos` has as many as wanted."""

import json
import random
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from benchmarks.network.namespaces import boards_missing
from tests.chaos import plan
from tests.chaos.data import FORMS, difference, total, units
from tests.chaos.plan import FAULTS, WAYS, drawn
from tests.chaos.record import Records
from tests.chaos.soak import Soak
from tests.support.checkout import ROOT

SEED, TRIALS = 32, 12

CAUGHT = {
    "doubled": ("WRONG", "contribution counts twice", ["--ways", "gloo", "--only", "leaves"]),
    "left out": ("WRONG", "contribution is missing", ["--ways", "shm", "--only", "leaves"]),
    "stale": ("WRONG", "elements are wrong", ["--ways", "streams", "--only", "leaves"]),
    "swallowed": ("WRONG", "elements are wrong", ["--ways", "shm", "--only", "two ranks"]),
    "hang": ("HUNG", "planted.py", ["--ways", "shm", "--only", "leaves"]),
    "segment": ("LEFT BEHIND", "segments", ["--ways", "shm", "--only", "leaves"]),
    "descriptor": ("LEFT BEHIND", "more descriptors", ["--ways", "shm", "--only", "full"]),
    "process": ("LEFT BEHIND", "children", ["--ways", "shm", "--only", "full"]),
}
"""How a bug is seen, and in which words, by its name; and in which trials."""


def campaign(*options: str) -> "subprocess.CompletedProcess[str]":
    if reason := boards_missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), *options]
    return subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=280
    )


@pytest.mark.slow
def test_no_trial_ends_badly_and_a_campaign_goes_on_where_it_was(tmp_path):
    record = tmp_path / "trials.jsonl"
    for trials in (TRIALS // 3, TRIALS):
        done = campaign("--trials", str(trials), "--record", str(record))
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["trial"] for line in lines] == [*range(TRIALS)]
    assert sum(line["killed"] for line in lines) > 0
    assert sum(line["judged"] for line in lines) > 100_000


@pytest.mark.parametrize(
    "bug",
    [pytest.param(name, marks=[] if name == "doubled" else pytest.mark.long) for name in CAUGHT],
)
def test_sees_what_is_wrong(bug):
    outcome, words, options = CAUGHT[bug]
    done = campaign("--trials", "20", "--plant", bug, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f'"outcome": "{outcome}"' in done.stdout
    assert words in done.stdout


@pytest.mark.parametrize("dtype", FORMS)
def test_exact_sums_are_rounded_once(dtype):
    form = FORMS[dtype]
    brought = [units(dtype, 200, "key", rank) for rank in range(7)]
    exact = total("sum", brought)
    values = [form.tensor(each).tolist() for each in brought]
    found = form.tensor(exact).tolist()
    for place, value in enumerate(found):
        # No rounding has happened on the way here: the elements are exact, too.
        exactly = sum(Fraction(each[place]) for each in values)
        assert exactly == Fraction(int(exact[place])) * Fraction(2) ** form.unit
        if not form.dtype.is_floating_point:
            assert value == exactly
            continue
        tensor = torch.tensor(value, dtype=form.dtype)
        other = [
            torch.nextafter(tensor, torch.tensor(end, dtype=form.dtype)) for end in (-1e4, 1e4)
        ]
        distance = abs(Fraction(value) - exactly)
        assert all(distance <= abs(Fraction(each.item()) - exactly) for each in other)


def test_the_judge_says_whose_contribution_is_wrong():
    form = FORMS["float32"]
    brought = [units("float32", 1000, rank) for rank in range(3)]
    exact = total("sum", brought)
    assert difference(form, form.tensor(exact), exact, brought) == ""
    for spoilt, word in (
        (exact - brought[1], "rank 1's contribution is missing"),
        (exact + brought[2], "rank 2's contribution counts twice"),
        (brought[0], "it is rank 0's own contribution"),
    ):
        assert word in difference(form, form.tensor(spoilt), exact, brought)
    almost = form.tensor(exact)
    almost[7] = torch.nextafter(almost[7], torch.tensor(np.inf))
    assert difference(form, almost, exact, brought).startswith("1 of 1000 elements are wrong")
    assert "not 1000 torch.float32" in difference(form, form.tensor(exact)[1:], exact)


def test_a_seed_determines_trials_and_every_fault_comes():
    assert [drawn(1, number) for number in range(20)] == [drawn(1, n) for n in range(20)]
    assert drawn(1, 5) != drawn(2, 5)
    met = {(each.way, each.fault) for each in (drawn(1, number) for number in range(6000))}
    assert met == {(way, fault) for way in WAYS for fault in FAULTS[way]}
    calm = {drawn(1, number, calm=True).fault for number in range(600)}
    assert not [fault for fault in calm if plan._ends_a_process(fault)]
    with pytest.raises(ValueError, match="none of shm has a fault 'aggregator'"):
        drawn(1, 1, ("shm",), "aggregator")


def test_somebody_survives_every_trial():
    for trial in (drawn(7, number) for number in range(2000)):
        victims = [victim for kill in trial.kills for victim in kill.victims]
        assert len(set(victims)) == len(victims) < len(trial.layout)
        if trial.fault.startswith("packets") or trial.beneath:
            assert trial.way != "shm"


def test_a_record_that_was_cut_short_goes_on(tmp_path):
    path = tmp_path / "trials.jsonl"
    trial = {"seed": 3, "trial": 4, "fault": "rank killed", "kills": [[[1], 2, 3]], "judged": 5}
    for number in (4, 5):
        Records(path, 3).add({**trial, "trial": number, "outcome": "went on"})
    with path.open("a") as file:
        file.write('{"seed": 3, "trial": 6, "fau')
    assert (Records(path, 3).next, Records(path, 9).next) == (6, 0)
    Records(path, 3).add({**trial, "trial": 6, "outcome": "went on"})
    assert Records(path, 3).next == 7


def test_a_soak_sees_what_grows():
    choose = random.Random(1)
    steady, growing = Soak(), Soak()
    for number in range(80):
        census = {"descriptors": 20 + choose.randrange(3), "threads": 3, "rss_kb": 400_000}
        steady.add({"census": census})
        growing.add({"census": {**census, "descriptors": 20 + number // 8}})
    assert steady.told()[1]
    text, flat = growing.told()
    assert not flat and "descriptors: " in text and "in the last: GROWS" in text
