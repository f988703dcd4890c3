"""A copy of a package that is imported in place of the installed one, in processes of their own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_FORGET = '''"""Written by tests/support/shadow.py: what lies beside this file comes first."""

import sys

# An editable install may have a finder that looks before any path is looked at.
sys.meta_path[:] = [
    finder
    for finder in sys.meta_path
    if "afflux_hdl" not in getattr(finder, "known_source_files", ())
]
'''


def environment_with(folder: Path) -> Mapping[str, str]:
    """Environment of a process for which packages in `folder` hide those of the same names.

    Its other imports are this process's. Writes a sitecustomize.py into the folder.

    Raises:
        ValueError: The folder's name would be read as two: nothing would be hidden.
    """
    if os.pathsep in str(folder):
        raise ValueError(f"{os.pathsep!r} in {folder}, which is to be in PYTHONPATH")
    (folder / "sitecustomize.py").write_text(_FORGET, encoding="utf-8")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
