"""Files of a generated project: templates, and how they are written."""

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

__all__ = ["LISTING", "fill", "write_files"]

LISTING = "files.sha256"
"""The file that has a line for each of the others, as `sha256sum -c` reads it."""


_NAME = re.compile(r"@([a-z_]+)@")
"""A name in a template: dollars are Tcl's."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template's text with a value for each `@name@`.

    Raises:
        KeyError: If there is a name without a value.
    """
    return _NAME.sub(lambda name: values[name[1]], text)


def write_files(folder: Path, files: Mapping[str, str], secret: Collection[str]) -> list[Path]:
    """Write files, and a listing of their hashes, into a folder; return their paths.

    Args:
        folder: Made if it is not there. Other files in it are left alone.
        files: Text by name.
        secret: Names of those that nobody else may read.
    """
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    listing = "".join(f"{hashes[name]}  {name}\n" for name in sorted(files))
    written = []
    for name, text in {**files, LISTING: listing}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600 if name in secret else 0o666)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
