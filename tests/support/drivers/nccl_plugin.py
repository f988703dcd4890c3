"""NCCL's plugin with a bug planted in one of its sources; all else is as `make native` built it."""

import re
from pathlib import Path

from tests.support.checkout import BUILD
from tests.support.drivers.native_builds import OBJECTS, SOURCES, copy_source, link
from tests.support.planting import Bug

__all__ = ["plugin_with"]

PARTS = (
    "worker",
    "streams",
    "carriers",
    "collectives",
    "control",
    "c_api",
    "datagrams",
    "packet",
    "sums",
    "arithmetic",
)


def plugin_with(name: str, bug: Bug) -> Path:
    """Return a library that has the bug.

    Args:
        name: Of the bug; names a folder.
        bug: The bug, in a source of `drivers/native/nccl`.
    """
    folder = BUILD / "tests" / "nccl" / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnccl-net-afflux.so"
    objects = OBJECTS / "CMakeFiles" / "nccl.dir" / "nccl"
    others = [
        objects / f"{source.name}.o"
        for source in sorted((SOURCES / "nccl").glob("*.cpp"))
        if source != SOURCES / bug.file
    ]
    inputs = [copy_source(folder, bug), *others]
    # One that cannot be opened would fail every check, and so show nothing.
    link(library, inputs, PARTS, "-O1", "-fPIC", "-shared", "-ldl", "-Wl,--no-undefined")
    return library
