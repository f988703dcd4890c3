"""`make nightly`, with targets that take no time: it goes on after failures, and tells of all."""

import re
import subprocess
import sys

import pytest

from docs.generate.source_tree import ROOT
from tests.nightly.__main__ import TARGETS

MAKEFILE = """
.PHONY: quick broken last
quick: ; @echo quick was here
broken: ; @echo the cause of it; exit 3
last: ; @echo last was here
"""


@pytest.fixture
def nightly(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    logs = tmp_path / "logs"

    def run(*targets: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.nightly", *targets, "--directory", str(tmp_path)]
        done = subprocess.run(
            [*command, "--logs", str(logs)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run, logs


def test_it_goes_on_after_a_failure_and_ends_with_a_table(nightly):
    run, logs = nightly
    status, told = run("quick", "broken", "last")
    assert status == 1
    assert "    the cause of it" in told
    table = told.partition("\ntarget")[2].splitlines()
    rows = [re.fullmatch(r"([\w-]+) +\d+ +(\w+) +(\S+)", line) for line in table[1:4]]
    assert [row.groups() for row in rows] == [
        ("quick", "passed", str(logs / "quick.log")),
        ("broken", "FAILED", str(logs / "broken.log")),
        ("last", "passed", str(logs / "last.log")),
    ]
    assert table[4] == "2 passed, 1 failed"
    assert (logs / "last.log").read_text() == "last was here\n"


def test_all_that_pass_are_a_success(nightly):
    status, told = nightly[0]("quick")
    assert status == 0
    assert told.endswith("1 passed, 0 failed\n")


def test_a_target_that_does_not_exist_has_failed(nightly):
    status, told = nightly[0]("nothing")
    assert status == 1
    assert "No rule to make target" in told


def test_every_target_is_one_of_the_makefile():
    known = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(TARGETS) - set(known) == set()
