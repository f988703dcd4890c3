"""`make compat`: how PyTorch's own tests of fault tolerance are run, with a file like theirs."""

import sys
from pathlib import Path

import pytest

from tests.compat.__main__ import FAULT_TOLERANCE, Row, has_fault_tolerance, run_fault_tolerance

TESTS = """
import unittest

def _make_fault_tolerance_test_class(backend, device):
    class Tests(unittest.TestCase):
        def test_who(self):
            self.assertEqual((backend, device), ("afflux", "cpu"))

        @unittest.skip("for NCCL alone")
        def test_other(self):
            pass
{more}
    return Tests
"""

FAILING = """
        def test_wrong(self):
            self.fail()

        def test_broken(self):
            raise OSError
"""


@pytest.fixture
def row_of(tmp_path, monkeypatch):
    def run(text):
        path = tmp_path / "test_c10d_fault_tolerance.py"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("TORCH_FAULT_TOLERANCE", str(path))
        return run_fault_tolerance(Path(sys.executable), "2.14", tmp_path)

    return run


def test_a_row_counts_what_came_of_them(row_of, tmp_path):
    assert row_of(TESTS.format(more="")) == Row("2.14", FAULT_TOLERANCE, 1, 1)
    assert "test_who" in (tmp_path / "2.14-fault-tolerance.log").read_text(encoding="utf-8")
    row = row_of(TESTS.format(more=FAILING))
    assert (row.passed, row.skipped, sorted(row.failed)) == (1, 1, ["test_broken", "test_wrong"])


def test_a_file_that_runs_nothing_is_an_error(row_of):
    assert "no test was run" in row_of("").error
    assert "no test was run" in row_of(TESTS.replace("def test_", "def ").format(more="")).error


@pytest.mark.parametrize(
    ("version", "has"), [("2.13.0", False), ("2.14", True), ("2.15.0", True), ("3.0", True)]
)
def test_only_newer_versions_have_it(version, has):
    assert has_fault_tolerance(version) is has
