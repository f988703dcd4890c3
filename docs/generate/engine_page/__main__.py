"""Write the page: `python -m docs.generate.engine_page build/site/engine`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.generate.engine_page.captions import captions
from docs.generate.engine_page.network import FINGERPRINT, TIMER, WIRE, Run, record
from docs.generate.engine_page.scenarios import LANES, ROWS, SCENARIOS, SLOTS, VALUES, WORKERS

__all__ = ["data_of", "main", "render"]

_HERE = Path(__file__).parent


def data_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Return all that the page shows."""
    return {
        "workers": WORKERS,
        "slots": SLOTS,
        "lanes": LANES,
        "rows": ROWS,
        "wire": WIRE,
        "timer": TIMER,
        "fingerprint": FINGERPRINT,
        "values": VALUES,
        "scenarios": [{**run.as_json(), "captions": captions(run)} for run in runs],
    }


def render(runs: Sequence[Run]) -> str:
    """Return the page, with all that belongs to it inside."""
    page = (_HERE / "page.html").read_text(encoding="utf-8")
    # "<" would end the element that holds the data.
    data = json.dumps(data_of(runs), separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "/* style */": (_HERE / "page.css").read_text(encoding="utf-8"),
        "/* state */": (_HERE / "state.js").read_text(encoding="utf-8"),
        "/* script */": (_HERE / "page.js").read_text(encoding="utf-8"),
        "/* data */": data,
    }
    for marker, text in parts.items():
        before, found, after = page.partition(marker)
        if not found:
            raise ValueError(f"page.html has no {marker}")
        page = before + text + after
    return page


def main(arguments: list[str] | None = None) -> int:
    """Write index.html into the folder that the first argument names."""
    folder = Path((sys.argv[1:] if arguments is None else arguments)[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(render(record(SCENARIOS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
