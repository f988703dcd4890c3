"""Text that no file of the repository may hold, whichever package it belongs to."""

import re
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

# Directories of one person's machine. The text before the slash keeps URLs and relative paths out.
MACHINE_PATH = re.compile(r"(?<![\w.~)}-])/(?:work|root|home|Users)/")

# Where packages come from is for pip's configuration to say, so that mirrors work.
PACKAGE_HOST = re.compile(r"\b(?:pypi\.org|pythonhosted\.org|download\.pytorch\.org)\b")

SOURCE_SUFFIXES = {".py", ".cpp", ".hpp"}
MAX_SOURCE_LINES = 600


def repository_files() -> list[Path]:
    """Tracked files, and new ones that git does not ignore: what the next commit would hold."""
    listing = subprocess.run(
        # CI may run as another user than the one who made the checkout.
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "-c", "-o", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (REPO / name for name in listing.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def lines_with(pattern: re.Pattern[str], path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    return [
        f"{path.relative_to(REPO)}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    found = repository_files()
    assert REPO / "pyproject.toml" in found
    return found


@pytest.mark.parametrize("pattern", [MACHINE_PATH, PACKAGE_HOST], ids=["path", "host"])
def test_names_nothing_of_one_machine(pattern, files):
    found = [lines_with(pattern, path) for path in files]
    assert [line for lines in found for line in lines] == []


def test_source_files_stay_small(files):
    lengths = {
        str(path.relative_to(REPO)): len(path.read_text(encoding="utf-8").splitlines())
        for path in files
        if path.suffix in SOURCE_SUFFIXES
    }
    assert {Path(name).suffix for name in lengths} == SOURCE_SUFFIXES
    assert {name: n for name, n in lengths.items() if n > MAX_SOURCE_LINES} == {}


# The patterns must be able to match, without this file matching them.


@pytest.mark.parametrize("name", ["work", "root", "home", "Users"])
def test_sees_a_machine_path(name):
    assert MACHINE_PATH.search(f"cd /{name}/afflux")
    assert MACHINE_PATH.search(f'"/{name}/afflux"')


def test_leaves_urls_and_relative_paths_alone():
    for text in ("https://example.org/work/page", "build/root/x", "../home/x", "/workers/3"):
        assert not MACHINE_PATH.search(text)


def test_sees_a_package_host():
    assert PACKAGE_HOST.search("https://files." + "pythonhosted" + ".org/packages")
