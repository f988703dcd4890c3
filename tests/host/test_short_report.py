"""How a job looks whose aggregator is not there."""

import json
import sys
from typing import Any

import pytest

from afflux.short_report import report_shortly
from tests.support.host.aggregators import closed_port
from tests.support.host.scripts import run_script

SCRIPT = """
import afflux
import torch.distributed as dist

dist.init_process_group("afflux")
"""


class Refused(Exception):
    pass


@pytest.fixture
def hook(monkeypatch, tmp_path):
    """Return what the hook before got; torchrun's file for the rank's error is in `tmp_path`."""
    got: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _places: got.append(error))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    return got


def uncaught(error):
    """Let Python show an error that torch has raised, as at the end of a process."""
    inside: dict[str, Any] = {"__name__": "torch.distributed"}
    exec("def create(error): raise error", inside)
    try:
        inside["create"](error)
    except Refused as caught:
        sys.excepthook(type(caught), caught, caught.__traceback__)


def test_the_first_rank_of_a_host_shows_places_the_others_a_line(hook, capsys, monkeypatch):
    error = Refused("no aggregator")
    error.add_note("start one")
    report_shortly(error)
    uncaught(error)
    first = capsys.readouterr().err.splitlines()
    assert first[0] == "Traceback (most recent call last):"
    assert [line.rpartition(" ")[2] for line in first if line.startswith("  File")] == ["uncaught"]
    assert first[-2:] == [f"{__name__}.Refused: no aggregator", "start one"]
    monkeypatch.setenv("LOCAL_RANK", "1")
    uncaught(error)
    assert capsys.readouterr().err.splitlines() == first[-2:]
    assert not hook


def test_other_errors_are_shown_as_before(hook, tmp_path):
    report_shortly(Refused("caught by the script"))
    report_shortly(Refused("again"))
    other = Refused("of the script")
    uncaught(other)
    assert hook == [other]
    assert not (tmp_path / "error.json").exists()


def test_what_the_script_has_told_torchrun_stays(hook, tmp_path):
    (tmp_path / "error.json").write_text("of record")
    error = Refused("no aggregator")
    report_shortly(error)
    uncaught(error)
    assert (tmp_path / "error.json").read_text() == "of record"
    (tmp_path / "error.json").unlink()
    uncaught(error)
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (
        told["message"] == told["extraInfo"]["py_callstack"] == f"{__name__}.Refused: no aggregator"
    )


@pytest.mark.slow
def test_an_aggregator_that_is_not_there_is_the_first_and_the_last_that_torchrun_shows(tmp_path):
    url = f"udp://127.0.0.1:{closed_port()}"
    # The other adapter may be compiled first, and says so.
    variables = {"AFFLUX_AGGREGATOR": url, "AFFLUX_ADAPTER": "python"}
    done = run_script(SCRIPT, tmp_path, ranks=2, environment=variables)
    assert done.returncode == 1
    ours, torchrun = done.stderr.split("failed (exitcode:", 1)
    cause = "cannot reach the control channel of the aggregator at "
    # torchrun may end one rank before it has written, and has a line of its own about that.
    assert ours.count("Traceback") <= 1
    assert 1 <= ours.count(cause) <= 2
    assert len(ours.splitlines()) <= 8
    assert cause in torchrun[torchrun.index("Root Cause") :].splitlines()[-2]
