"""What the runs came to: `build/formal/results.json`, and the table in `docs/formal.md`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.formal.sby import FOLDER, Outcome, Proof, SoughtBug

__all__ = ["keep", "write_table"]

PATH = FOLDER / "results.json"
BEGIN, END = "<!-- results -->\n", "<!-- end -->\n"


def _key(proof: Proof, bug: SoughtBug | None, cover: bool) -> str:
    return f"{proof.name}/{bug.name if bug else 'cover' if cover else 'proof'}"


def _read() -> dict[str, dict[str, Any]]:
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}


def keep(proof: Proof, bug: SoughtBug | None, cover: bool, right: bool, outcome: Outcome) -> None:
    """Write one run's outcome beside those of other runs, in place of an older one."""
    kept = _read()
    kept[_key(proof, bug, cover)] = {
        "right": right,
        "status": outcome.status,
        "step": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "properties": list(outcome.properties),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(kept, indent=1) + "\n")


def write_table(path: Path, proofs: Iterable[Proof]) -> None:
    """Write the table of all runs between the marks in a document.

    Raises:
        KeyError: If a run has not been made.
        ValueError: If one was not as it should be, or the document has no marks.
    """
    kept = _read()
    lines = [
        "| proof | k | seconds | covers | planted bug | found at |",
        "|---|---|---|---|---|---|",
    ]
    for proof in proofs:
        rows = [kept[_key(proof, None, False)]]
        cover = kept[_key(proof, None, True)] if proof.cover else None
        rows += [cover] if cover else []
        bugs = [(bug.name, kept[_key(proof, bug, False)]) for bug in proof.bugs]
        rows += [found for _, found in bugs]
        if not all(row["right"] for row in rows):
            raise ValueError(f"{proof.name} is not as it should be")
        first = [
            proof.name,
            f"{proof.depth} cycles" if proof.bounded else str(proof.depth),
            f"{rows[0]['seconds']:.0f}",
            "reached" if cover else "",
        ]
        for n, (name, step) in enumerate([(b, str(f["step"])) for b, f in bugs] or [("", "")]):
            cells = [*(first if n == 0 else [""] * 4), name, step]
            lines.append("| " + " | ".join(cells) + " |")
    before, mark, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{path} has no place for the table")
    path.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)
