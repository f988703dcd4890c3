"""Which gradients a backward pass has made so far, and which messages they complete."""

from collections.abc import Iterable

from afflux.overlap.plan import Plan

__all__ = ["Arrivals"]


class Arrivals:
    """The gradients of one backward pass after the other.

    Args:
        plan: The messages, and the parameters that they have parts of.

    Attributes:
        plan: As given.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._there: set[int] = set()
        self._parts: list[int] = []

    def begin(self) -> None:
        """Begin a backward pass."""
        self._there = set()
        self._parts = [len(each.parts) for each in self.plan.messages]

    def add(self, numbers: Iterable[int]) -> list[int]:
        """Note parameters whose gradients are there; return the messages that are complete now."""
        complete = []
        for number in numbers:
            self._there.add(number)
            for each in self.plan.places[number].messages:
                self._parts[each] -= 1
                if not self._parts[each]:
                    complete.append(each)
        return complete

    @property
    def missing(self) -> list[str]:
        """Names of the parameters without a gradient."""
        return [name for number, name in enumerate(self.plan.names) if number not in self._there]
