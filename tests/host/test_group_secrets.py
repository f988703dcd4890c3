"""Secrets of control channels where users meet them: variables, commands, groups."""

import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from afflux.commands import cli, serve
from afflux.commands.info import aggregators
from afflux.group.forming import launched_aggregator
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings, SettingsError
from afflux_drivers.control.client import create_job, describe
from afflux_drivers.control.secret import new_secret, secret_of_text
from afflux_drivers.errors import NotAuthenticated
from tests.support.host.ranks import run_ranks, values
from tests.support.host.serving import finish, start

Said = Callable[..., str]

# As a script it does not load torch.
SERVE = ("-P", serve.__file__)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.write_text(new_secret())
    made.chmod(0o600)
    return made


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run `afflux serve` here, which is to fail, and return what it prints."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(*options: str) -> str:
        assert serve.main(["soft", "--port", "0", *options]) == 1
        return capsys.readouterr().err

    return run


def test_other_hosts_are_let_in_only_if_the_command_says_how(said):
    line = said("--host", "0.0.0.0")
    assert line.startswith("afflux: cannot serve: other hosts reach 0.0.0.0, and there is no ")
    assert "--secret-file" in line
    assert "--no-secret" in line


@pytest.mark.parametrize("insists", [True, False])
def test_a_file_that_others_may_read_is_named_with_its_mode(file, insists, said, monkeypatch):
    file.chmod(0o644)
    monkeypatch.setenv("AFFLUX_SECRET_FILE", str(file))
    line = said(*(["--secret-file", str(file)] if insists else []))
    assert line.startswith(f"afflux: cannot serve: {file} has mode 0644, ")
    with pytest.raises(SettingsError, match=f"AFFLUX_SECRET_FILE: {file} has mode 0644"):
        Settings.from_environment({"AFFLUX_SECRET_FILE": str(file)}).control_secret()


def test_numbers_that_make_no_sense_are_refused(said):
    assert "the share of a peer must be more than 0" in said("--peer-share", "0")
    assert "requests a second must be above 0, not 0" in said("--requests-per-second", "0")


def test_a_secret_in_the_environment_is_shown_nowhere():
    settings = Settings.from_environment({"AFFLUX_SECRET": "hunter2"})
    assert "hunter2" not in repr(settings)
    with pytest.raises(SettingsError, match="AFFLUX_SECRET: a secret must have 16") as caught:
        settings.control_secret()
    assert "hunter2" not in str(caught.value)
    assert Settings.from_environment({}).control_secret() is None


def test_commands_know_the_secret_by_the_same_variable(file, monkeypatch, capsys):
    process, line = start("--port", "0", "--secret-file", str(file), program=SERVE)
    try:
        url = re.search(r"udp://\S+", line)[0]
        assert cli.main(["counters", url]) == 1
        assert "it asks for a secret, and none is set here" in capsys.readouterr().err
        assert "asks for a secret" in aggregators.ask(url, 5.0)["error"]
        monkeypatch.setenv("AFFLUX_SECRET_FILE", str(file))
        assert cli.main(["counters", url]) == 0
        assert "frames_in" in capsys.readouterr().out
        assert aggregators.ask(url, 5.0)["engine"] == "soft"
    finally:
        process.terminate()
        finish(process)


def test_an_aggregator_that_ranks_start_has_a_secret_of_its_own(file, monkeypatch):
    """Whatever is set for others, and where nobody sees it."""
    monkeypatch.setenv("AFFLUX_SECRET_FILE", str(file))
    started = launched_aggregator.acquire(AggregatorUrl("soft"), "127.0.0.1", 60.0)
    try:
        secret = secret_of_text(started.secret)
        assert secret != secret_of_text(file.read_text())
        with pytest.raises(NotAuthenticated):
            describe(started.address, 5.0)
        leases = [create_job(started.address, 1, 1, 1, 5.0, secret=secret) for _ in range(9)]
        for lease in leases:
            with closing(lease):
                pass
        arguments = Path(f"/proc/{started.process.pid}/cmdline").read_bytes()
        assert b"serve.py" in arguments
        assert secret not in arguments
        assert started.secret not in repr(started)
    finally:
        launched_aggregator.release(started)


def sum_and_count(rank, size):
    import torch
    import torch.distributed as dist

    import afflux

    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    return tensor[0].item(), afflux.engine_counters()["joins"] >= 2


def test_every_rank_of_a_group_knows_the_secret_of_its_engine():
    outcomes = run_ranks(sum_and_count, 2, environment={"AFFLUX_AGGREGATOR": "soft://"})
    assert values(outcomes) == [(2, True)] * 2


def test_a_group_at_an_aggregator_with_a_secret(file):
    process, line = start("--port", "0", "--secret-file", str(file), program=SERVE)
    try:
        environment = {"AFFLUX_AGGREGATOR": re.search(r"udp://\S+", line)[0]}
        named = {**environment, "AFFLUX_SECRET_FILE": str(file)}
        assert values(run_ranks(sum_and_count, 2, environment=named)) == [(2, True)] * 2
        # Both ranks get rank 0's error, without waiting for a timeout.
        for outcome in run_ranks(sum_and_count, 2, environment=environment):
            assert outcome.kind == ("RendezvousError" if outcome.rank else "NotAuthenticated")
            assert "it asks for a secret, and none is set here" in outcome.message
    finally:
        process.terminate()
        finish(process)
