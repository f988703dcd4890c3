"""Compares the plays of each script and prints a row for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.comparison import difference
from tests.conformance.outcome import Play
from tests.conformance.script import Script

__all__ = ["HEAD", "Row"]

HEAD = f"{'theme':<15}{'script':<37}{'Gloo':>7}{'s':>7}{'Afflux':>8}{'s':>7}  verdict"


@dataclass
class Row:
    """A script, and how it went with each backend that was asked for."""

    script: Script
    plays: Mapping[str, Play]

    @property
    def verdict(self) -> str:
        """Return `ok`, or what is wrong: what Gloo does and the other backend does not."""
        gloo = self.plays.get("gloo")
        if gloo is not None and not (gloo.passed or self.script.beyond_gloo):
            return "GLOO FAILS"
        for name, play in self.plays.items():
            if name == "gloo":
                continue
            if not play.passed:
                return "FAILS"
            if gloo is not None and gloo.passed and play.passed and self.different(play):
                return "DIFFERS"
            if gloo is not None and not gloo.passed and play.passed:
                return "ok, better than Gloo"
        return "ok"

    def different(self, play: Play) -> str:
        """Say where a play's values differ from Gloo's."""
        pairs = zip(self.plays["gloo"].values, play.values, strict=True)
        texts = [
            difference(expected, found, self.script.bound, f"rank {rank}")
            for rank, (expected, found) in enumerate(pairs)
        ]
        return "; ".join(text for text in texts if text)

    @property
    def failed(self) -> bool:
        """Whether Gloo is better, or the script itself is wrong, as Gloo does not pass it."""
        return self.verdict in ("FAILS", "DIFFERS", "GLOO FAILS")

    @property
    def why(self) -> str:
        """The text to read about a failure."""
        texts = []
        for name, play in self.plays.items():
            if not play.passed:
                texts.append(f"{name}: {play.why}")
            elif self.verdict == "DIFFERS" and name != "gloo":
                texts.append(f"{name}: {self.different(play)}")
        return "\n".join(texts)

    def line(self) -> str:
        """Return the row as text."""
        cells = ""
        others = [name for name in self.plays if name != "gloo"]
        for name, width in (("gloo", 7), (others[0] if others else "", 8)):
            play = self.plays.get(name)
            mark, seconds = (play.mark, f"{play.seconds:.2f}") if play else ("-", "-")
            cells += f"{mark:>{width}}{seconds:>7}"
        return f"{self.script.theme:<15}{self.script.name:<37}{cells}  {self.verdict}"

    def record(self) -> dict[str, Any]:
        """Return the row for a file."""
        return {
            "script": self.script.name,
            "theme": self.script.theme,
            "about": self.script.about,
            "verdict": self.verdict,
            "why": self.why,
            "backends": {
                name: {
                    "outcome": play.mark,
                    "seconds": round(play.seconds, 3),
                    "error": play.why,
                    "log": play.log,
                }
                for name, play in self.plays.items()
            },
        }
