"""The runs' results: `build/formal/results.json`, and the table in `docs/formal.md`."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.formal.sby import FOLDER, Outcome, Proof, SoughtBug
from tests.support.checkout import ROOT

__all__ = ["keep", "write_table"]

PATH = FOLDER / "results.json"
BEGIN, END = "<!-- results -->\n", "<!-- end -->\n"


def _key(proof: Proof, bug: SoughtBug | None, cover: bool) -> str:
    return f"{proof.name}/{bug.name if bug else 'cover' if cover else 'proof'}"


def _read() -> dict[str, dict[str, Any]]:
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}


def gateware() -> str:
    """Return the last commit that changed the gateware; or that it is none, if it has changes."""
    what = ("--", "hdl/afflux_hdl", ":!hdl/afflux_hdl/synthesis")
    git = ("git", "-C", str(ROOT))
    changed, last = (
        subprocess.run([*git, *command, *what], capture_output=True, text=True, check=False).stdout
        for command in (("status", "--porcelain"), ("log", "-1", "--format=%h"))
    )
    return "none" if changed.strip() else last.strip()


def keep(proof: Proof, bug: SoughtBug | None, cover: bool, right: bool, outcome: Outcome) -> None:
    """Write one run's outcome beside those of other runs, in place of an older one."""
    kept = _read()
    kept[_key(proof, bug, cover)] = {
        "right": right,
        "status": outcome.status,
        "step": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "properties": list(outcome.properties),
        "gateware": gateware(),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(kept, indent=1) + "\n")


def write_table(path: Path, proofs: Iterable[Proof]) -> None:
    """Write the table of all runs between the marks in a document; a dash for what was not run.

    Raises:
        ValueError: If a run was not as it should be, or the document has no marks.
    """
    kept = _read()
    lines = [
        "| proof | k | seconds | gateware | covers | planted bug | found at | gateware |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for proof in proofs:
        itself = kept.get(_key(proof, None, False))
        cover = kept.get(_key(proof, None, True)) if proof.cover else None
        bugs = [(bug.name, kept.get(_key(proof, bug, False))) for bug in proof.bugs]
        for row in (itself, cover, *(found for _, found in bugs)):
            if row and not row["right"]:
                raise ValueError(f"{proof.name} is not as it should be")
        reached = "reached" if cover else "–"
        first = [
            proof.name,
            f"{proof.depth} cycles" if proof.bounded else str(proof.depth),
            f"{itself['seconds']:.0f}" if itself else "–",
            itself["gateware"] if itself else "–",
            reached if proof.cover else "",
        ]
        rows = [
            [name, str(found["step"]) if found else "–", found["gateware"] if found else "–"]
            for name, found in bugs
        ]
        for n, cells in enumerate(rows or [[""] * 3]):
            lines.append("| " + " | ".join([*(first if n == 0 else [""] * 5), *cells]) + " |")
    before, mark, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{path} has no place for the table")
    path.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)
