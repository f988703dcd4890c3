"""The report of the flow that made a bitstream, in a JSON file beside it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.image import read_file

__all__ = ["Report", "find_report"]


@dataclass(frozen=True)
class Report:
    """A report; fields that it lacks are empty or None.

    Attributes:
        path: Its file.
        board: Board that the bitstream was made for.
        part: Part, likewise.
        build_time: The value of its register `build_time`, seconds since 1970.
        digest: SHA-256 of the bitstream.
        missed: Clocks that it misses.
    """

    path: Path
    board: str = ""
    part: str = ""
    build_time: int | None = None
    digest: str = ""
    missed: tuple[str, ...] = ()


def find_report(bitstream: Path, digest: str) -> Report | None:
    """Return the report about a bitstream, or None if there is none beside it.

    It is `NAME.json` beside `NAME.bit`, or `report.json` in its folder.

    Raises:
        FlashRefused: It cannot be read, or is about another file.
    """
    for path in (bitstream.with_suffix(".json"), bitstream.with_name("report.json")):
        if path.is_file():
            report = _read(path)
            if report.digest and report.digest != digest:
                raise FlashRefused(
                    f"{path} is about another file: it says SHA-256 {report.digest}, and "
                    f"{bitstream} has {digest}"
                )
            return report
    return None


def _read(path: Path) -> Report:
    try:
        content = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise FlashRefused(f"{path}: cannot read this report: {error}") from None
    if not isinstance(content, dict):
        raise FlashRefused(f"{path}: this is not a report about a bitstream")

    def value(name: str, kind: type, empty: Any) -> Any:
        found = content.get(name, empty)
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise FlashRefused(f"{path}: {name} is {found!r}")
        return empty if found is None else found

    build_time = value("build_time", int, None)
    if build_time is not None and not 0 <= build_time < 1 << 32:
        raise FlashRefused(f"{path}: build_time is {build_time}, and the register has 32 bits")
    return Report(
        path=path,
        board=value("board", str, ""),
        part=value("part", str, ""),
        build_time=build_time,
        digest=value("sha256", str, "").lower(),
        missed=tuple(str(each) for each in value("missed", list, [])),
    )
