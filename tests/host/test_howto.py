"""The how-tos do what they say: their scripts are run as a reader would run them."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from textwrap import dedent

import pytest
import torch
import torch.distributed as dist

from docs.generate.source_tree import ROOT
from tests.support.host.network import network
from tests.support.host.scripts import run_script

FOLDER = ROOT / "docs" / "howto"


def blocks(page: str, language: str) -> list[str]:
    """Return the listings of a page in a language; "" are those of output."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    return [dedent(each) for each in re.findall(rf"^ *```{language}\n(.*?)```", text, re.M | re.S)]


def output_of(page: str) -> str:
    text = (FOLDER / page).read_text(encoding="utf-8")
    (shown,) = re.findall(r"prints\n\n```\n(.*?)```", text, re.S)
    return shown


def test_the_first_sum(tmp_path) -> None:
    (script,) = blocks("first_sum.md", "python")
    done = run_script(script, tmp_path, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output_of("first_sum.md")


def test_two_hosts_and_a_secret(tmp_path) -> None:
    """Run the page's commands, each on its host, with the addresses and a home of the test."""
    (script,) = blocks("first_sum.md", "python")
    (tmp_path / "first_sum.py").write_text(script, encoding="utf-8")
    first, rank_0, rank_1 = blocks("two_hosts.md", "sh")
    secret, serve = first.strip().split("\n")
    with network(hosts=2) as made:
        one, other = made.hosts

        def start(host, command: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                # `exec`, so that a signal reaches the program itself.
                host.command(
                    "bash", "-c", f"cd && exec {command.replace('10.0.0.1', one.address)}"
                ),
                env={
                    **os.environ,
                    "HOME": str(tmp_path),
                    "OMP_NUM_THREADS": "1",
                    "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        subprocess.run(
            ["bash", "-c", secret], env={**os.environ, "HOME": str(tmp_path)}, check=True
        )
        aggregator = start(one, serve)
        ranks: list[subprocess.Popen[str]] = []
        try:
            assert aggregator.stdout is not None
            assert "soft engine on udp://" in aggregator.stdout.readline()
            ranks = [start(one, f"env {rank_0}"), start(other, f"env {rank_1}")]
            printed = [each.communicate(timeout=60) for each in ranks]
        finally:
            for each in [*ranks, aggregator]:
                each.terminate()
                each.communicate(timeout=10)
    assert [each.returncode for each in ranks] == [0, 0], "\n".join(err for _, err in printed)
    assert [out for out, _ in printed] == [output_of("two_hosts.md"), ""]


def test_a_scheme_of_ones_own_loses_nothing() -> None:
    (text,) = blocks("add_a_scheme.md", "python")
    names: dict[str, type] = {}
    exec(compile(text, "add_a_scheme.md", "exec"), names)
    scheme = names["Steps"](step=0.25)
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=10))
    tensor = torch.randn(100, generator=torch.Generator().manual_seed(1))
    before, average = tensor.clone(), torch.empty(100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", lambda tensor, op, _: group.allreduce([tensor]).wait())
        scheme.take(tensor, average, None)
    assert torch.equal(average, (before / 0.25).round() * 0.25)
    assert torch.allclose(tensor + average, before)
    assert tensor.abs().max() <= 0.125
