"""Tables of figures say when and of what they were measured; which are older than that code."""

import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.report import stamp
from benchmarks.report.age import Change, Measured, measured_tables, report
from benchmarks.report.stamp import Stamp
from tests.support.checkout import ROOT

HISTORY = stamp.git("rev-parse", "--is-shallow-repository") == "false"
"""Whether git has the commits of this checkout: an archive and a shallow clone have not."""

PAGE = "<!-- host figures: speed -->\n| a |\n|---|\n| 1 |\n{line}\n<!-- end figures -->\n"

Git = Callable[..., str]


def faults(tables: list[Measured], history: bool) -> list[str]:
    """Return the tables without a date, of paths that do not exist, or of an unknown commit."""
    found = []
    for each in tables:
        if each.stamp is None:
            found.append(f"{each.name} has no line that says when it was measured")
        elif missing := [path for path in each.stamp.paths if not (stamp.ROOT / path).exists()]:
            found.append(f"{each.name} measures {missing}, which are gone")
        elif history and each.change is None:
            found.append(f"{each.name} was measured at {each.commit}, which is not in the history")
    return found


def test_every_table_says_when_and_of_what_it_was_measured():
    tables = list(measured_tables(ROOT / "docs"))
    assert len(tables) > 30
    assert faults(tables, HISTORY) == []
    older = [each for each in tables if each.is_older]
    if HISTORY and older:
        names = ", ".join(each.name.replace("figures: ", "") for each in older)
        about = f"{len(older)} of {len(tables)} tables of figures are older than their code"
        warnings.warn(f"{about} (make benchmarks-age): {names}", stacklevel=1)


@pytest.fixture
def git(tmp_path, monkeypatch) -> Git:
    """Make a checkout whose only commit has a measured file and a test; return git in it."""
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    for name in ("hdl/engine.py", "hdl/tests/engine.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\ntwo\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "-m", "first")
    return run


def the_table(folder: Path, line: str) -> Measured:
    """Return the table of a page with this line below it."""
    (folder / "docs" / "page.md").write_text(PAGE.format(line=line))
    (found,) = measured_tables(folder / "docs")
    return found


def test_a_table_is_older_once_its_code_has_changed(tmp_path, git):
    first = git("rev-parse", "--short=8", "HEAD")
    line = f"\n{Stamp('2026-11-28', first, ('hdl',))}"
    assert the_table(tmp_path, line).change == Change(0, 0)
    # Documents and tests are not what is measured.
    (tmp_path / "hdl/tests/engine.py").write_text("three\n")
    git("commit", "--quiet", "-am", "documents and tests")
    assert not the_table(tmp_path, line).is_older
    (tmp_path / "hdl/engine.py").write_text("one\nthree\n")
    assert the_table(tmp_path, line).change == Change(0, 2)
    git("commit", "--quiet", "-am", "engine")
    table = the_table(tmp_path, line)
    assert table.change == Change(1, 2)
    assert table.is_older
    assert faults([table], history=True) == []
    shown = report([table])
    assert "1 tables of figures, 1 of them older" in shown
    assert [word in shown.splitlines()[-1] for word in ("older", first, "2026-11-28")] == [True] * 3


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "no line"),
        ("Measured 2026-11-28, code of `hdl`.", "no line"),
        ("Measured 2026-11-28 at `0123abcd`, code of `hdl`.", "is not in the history"),
        ("Measured 2026-11-28 at `0123abcd`, code of `hdl`, `gone`.", "['gone'], which are gone"),
    ],
)
def test_a_table_that_cannot_be_dated_is_found(tmp_path, git, line, fault):
    table = the_table(tmp_path, line)
    assert table.is_older
    (found,) = faults([table], history=True)
    assert fault in found


def test_a_commit_of_another_branch_is_not_in_the_history(tmp_path, git):
    git("checkout", "--quiet", "-b", "other")
    (tmp_path / "hdl/engine.py").write_text("three\n")
    git("commit", "--quiet", "-am", "elsewhere")
    line = f"\n{Stamp('2026-11-28', git('rev-parse', '--short=8', 'HEAD'), ('hdl',))}"
    git("checkout", "--quiet", "-")
    table = the_table(tmp_path, line)
    assert table.change is None
    (found,) = faults([table], history=True)
    assert "is not in the history" in found


def test_rows_have_the_commit_and_whether_sources_differ_from_it(tmp_path, git):
    first = git("rev-parse", "--short=8", "HEAD")
    (tmp_path / "docs/page.md").write_text("renewed\n")
    assert stamp.now.__wrapped__()["commit"] == first
    (tmp_path / "hdl/engine.py").write_text("three\n")
    row = stamp.now.__wrapped__()
    assert row["commit"] == f"{first}+"
    # What was measured is in no commit, so nobody can know what has changed since.
    found = Stamp.of([{"bench": "a", **row}], ["hdl"])
    git("checkout", "--quiet", ".")
    assert the_table(tmp_path, str(found)).is_older


def test_a_table_has_the_date_of_its_oldest_row():
    def row(at: str, commit: str) -> dict[str, str]:
        return {"bench": "host", "measured_at": f"2026-11-{at}:00:00+00:00", "commit": commit}

    rows = [row("28T10", "bb"), row("27T12", "aa"), row("28T09", "cc")]
    paths = [f"drivers/native/{name * 8}" for name in "abcdef"]
    made = Stamp.of(rows, paths)
    assert (made.date, made.commit) == ("2026-11-27", "aa")
    assert max(map(len, str(made).splitlines())) <= 120
    assert Stamp.found_in(f"| 1 |\n\n{made}\n") == made
    with pytest.raises(ValueError, match="measure it again"):
        Stamp.of([*rows, {"bench": "host"}], paths)
