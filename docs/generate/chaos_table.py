"""The table of faults in `docs/reliability.md`, from what `make chaos` has recorded.

`python -m docs.generate.chaos_table docs [build/chaos/trials.jsonl ...]` counts the trials of these
files into `docs/chaos.json`, and writes the table from there.

Tested: `tests/house/test_chaos_table.py`.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report.stamp import Stamp

__all__ = ["RECORD", "counted", "render"]

RECORD = "chaos.json"
PAGE = "reliability.md"

_CODE = ("host/afflux/group", "host/afflux/adapters", "drivers/native", "drivers/afflux_drivers")
_PLACE = re.compile(r"(<!-- chaos figures: faults -->\n).*?(<!-- end figures -->)", re.DOTALL)

Record = dict[str, Any]


def counted(trials: Iterable[Record]) -> Record:
    """Count trials by fault; return what the table needs.

    Args:
        trials: Lines of a campaign's record.
    """
    faults: dict[str, Record] = {}
    found: Record = {"trials": 0, "killed": 0, "judged": 0, "bad": 0, "commit": "", "at": ""}
    for trial in trials:
        found["trials"] += 1
        found["killed"] += trial["killed"]
        found["judged"] += trial["judged"]
        found["bad"] += trial["bad"]
        if not found["at"] or trial["at"] < found["at"]:
            found["at"], found["commit"] = trial["at"], trial["commit"]
        name = f"any of these, while {trial['beneath']}" if trial["beneath"] else trial["fault"]
        row = faults.setdefault(
            name, {"ways": Counter(), "outcomes": Counter(), "notice_s": 0.0, "go_on_s": 0.0}
        )
        row["ways"][trial["way"]] += 1
        row["outcomes"][trial["outcome"]] += 1
        for time in ("notice_s", "go_on_s"):
            row[time] = max(row[time], *trial[time], 0.0)
    found["faults"] = {
        name: {**row, "ways": dict(row["ways"]), "outcomes": dict(row["outcomes"])}
        for name, row in faults.items()
    }
    return found


def _rows(record: Record) -> Iterable[str]:
    yield "| fault | tried | what happened | noticed after, at most | goes on after, at most |"
    yield "|---|---|---|---|---|"
    for name, row in sorted(record["faults"].items(), key=lambda each: _order(*each)):
        ways = ", ".join(f"{way} {count}" for way, count in sorted(row["ways"].items()))
        outcomes = sorted(row["outcomes"].items(), key=lambda each: -each[1])
        happened = ", ".join(f"{outcome} {count}" for outcome, count in outcomes)
        times = [f"{row[time]:.2f} s" if row[time] else "" for time in ("notice_s", "go_on_s")]
        yield f"| {name} | {ways} | {happened} | {' | '.join(times)} |"


def _order(name: str, row: Record) -> tuple[bool, int, str]:
    return name.startswith("any of these"), -sum(row["ways"].values()), name


def render(text: str, record: Record) -> str:
    """Return the page with the table of this record.

    Raises:
        ValueError: The page has no place for it.
    """
    told = (
        f"{record['trials']:,} trials, in which {record['killed']:,} processes were killed and "
        f"{record['judged']:,} elements of results judged; {record['bad']:,} ended badly."
    )
    stamp = Stamp(record["at"][:10], record["commit"], _CODE)
    body = "\n".join([*_rows(record), "", told, str(stamp), ""])
    new, count = _PLACE.subn(lambda match: f"{match[1]}{body}{match[2]}", text)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for the table of faults, not one")
    return new


def main() -> None:
    """Count the files that arguments name, and write record and page in the first argument."""
    docs, *files = map(Path, sys.argv[1:])
    path = docs / RECORD
    if files:
        lines = [line for each in files for line in each.read_text().splitlines()]
        # The last line of a run that was cut off may be a part of one.
        record = counted(json.loads(line) for line in lines if line.endswith("}"))
        path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    page = docs / PAGE
    page.write_text(render(page.read_text(), json.loads(path.read_text())))


if __name__ == "__main__":
    main()
