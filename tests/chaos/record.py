"""The campaign's own output: a line of JSON for each trial."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.report.stamp import now
from tests.chaos.trial import BAD

__all__ = ["Records"]


class Records:
    """Trials that have been played.

    Args:
        path: A file, to whose end they are written, one a line; None: they are only counted.
        seed: The campaign's.

    Attributes:
        next: The number of the first trial that has not been played.
    """

    def __init__(self, path: Path | None, seed: int) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._judged = self._kills = 0
        self.next = 0
        self._cut = ""
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8")
            # The last line may be cut short, where the machine stopped.
            self._cut = "\n" if text and not text.endswith("\n") else ""
            for line in text.splitlines():
                if line.endswith("}"):
                    record = json.loads(line)
                    if record["seed"] == seed:
                        self.next = max(self.next, record["trial"] + 1)

    def add(self, record: dict[str, Any]) -> None:
        """Take a trial's record."""
        record["bad"] = record["outcome"] in BAD
        record["killed"] = _killed(record)
        record["at"], record["commit"] = now()["measured_at"], now()["commit"]
        self._counts[record["outcome"]] += 1
        self._judged += record["judged"]
        self._kills += record["killed"]
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{self._cut}{json.dumps(record)}\n")
            self._cut = ""

    def told(self, seconds: float) -> str:
        """Return what came of those that were played now."""
        trials = sum(self._counts.values())
        counts = ", ".join(f"{name}: {count}" for name, count in self._counts.most_common())
        rate = 60 * trials / seconds if seconds else 0
        return (
            f"{trials} trials in {seconds:.0f} s, {rate:.0f} a minute; {self._kills} processes "
            f"killed; {self._judged:,} elements judged; {counts or 'nothing'}"
        )


def _killed(record: dict[str, Any]) -> int:
    """Return how many processes a trial has killed; those of a bad one do not count."""
    fault = record["fault"]
    if fault == "rank leaves" or record["bad"]:
        return 0
    ranks = sum(len(victims) for victims, *_ in record["kills"])
    return ranks + ("aggregator" in fault and "while" not in fault) + ("store killed" in fault)
