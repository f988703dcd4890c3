"""How a script ended at a rank, and at all ranks of a backend."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Outcome", "Play"]


@dataclass
class Outcome:
    """How one rank ended: with a value, or with an error, or not at all.

    Attributes:
        kind: The error's class; "died" or "hung" of a rank that said nothing; empty if it passed.
        seconds: Time of the script itself.
    """

    rank: int
    value: Any = None
    kind: str = ""
    message: str = ""
    seconds: float = 0.0


@dataclass
class Play:
    """How a script went with one backend.

    Attributes:
        log: The last of what its ranks wrote, where it failed.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    log: str = ""

    @property
    def passed(self) -> bool:
        """Whether every rank returned a value."""
        return all(not each.kind for each in self.outcomes)

    @property
    def seconds(self) -> float:
        """Time of the slowest rank."""
        return max((each.seconds for each in self.outcomes), default=0.0)

    @property
    def values(self) -> list[Any]:
        """The ranks' return values, in order."""
        return [each.value for each in self.outcomes]

    @property
    def mark(self) -> str:
        """One word for a table: `ok`, or what happened at the rank that fared worst."""
        kinds = [each.kind for each in self.outcomes if each.kind]
        for worst in ("died", "hung"):
            if worst in kinds:
                return worst
        return "error" if kinds else "ok"

    @property
    def why(self) -> str:
        """The errors of the ranks, each text once."""
        texts: dict[str, list[int]] = {}
        for each in self.outcomes:
            if each.kind:
                texts.setdefault(f"{each.kind}: {each.message}", []).append(each.rank)
        return "; ".join(
            f"rank {', '.join(map(str, ranks))}: {text}" for text, ranks in texts.items()
        )
