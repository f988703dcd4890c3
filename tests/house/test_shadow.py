"""Bugs are planted in copies of packages: it must be the copy that is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shadow import environment_with


def test_the_copy_is_imported(tmp_path: Path) -> None:
    package = tmp_path / "afflux_hdl"
    package.mkdir()
    (package / "__init__.py").write_text("where = 'the copy'\n")
    script = "import afflux_hdl; print(afflux_hdl.where)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment_with(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "the copy\n"


def test_a_folder_that_would_be_read_as_two_is_refused(tmp_path: Path) -> None:
    """A planted bug in such a folder would not be there, and nothing would find it."""
    folder = tmp_path / f"one{os.pathsep}two"
    with pytest.raises(ValueError, match="in PYTHONPATH"):
        environment_with(folder)
