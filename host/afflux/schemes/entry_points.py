"""Words for schemes that other packages register in the entry-point group `afflux.schemes`."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

__all__ = ["GROUP", "find", "words"]

GROUP = "afflux.schemes"


def words() -> dict[str, str]:
    """Return the registered words, each with the distribution that registers it."""
    return {each.name.lower(): _origin(each) for each in entry_points(group=GROUP)}


def find(word: str, *, taken: bool) -> Callable[..., Any] | None:
    """Load what a word stands for; None if no distribution registers it.

    Args:
        word: In lower case.
        taken: Whether Afflux itself has this word: then nobody else may register it.

    Raises:
        ValueError: The word is taken, two distributions register it, or it cannot be loaded; the
            message names the distributions.
    """
    found = [each for each in entry_points(group=GROUP) if each.name.lower() == word]
    if not found:
        return None
    origins = " and ".join(sorted(_origin(each) for each in found))
    if taken:
        raise ValueError(
            f"{word} is Afflux's own word, and {origins} registers it, too: rename or uninstall "
            "that one"
        )
    if len(found) > 1:
        raise ValueError(f"{origins} register {word}: uninstall all but one")
    try:
        made: Callable[..., Any] = found[0].load()
    except Exception as error:
        raise ValueError(
            f"{word} of {origins} cannot be loaded from {found[0].value!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(made):
        raise ValueError(f"{word} of {origins} is {made!r}, which cannot be called")
    return made


def _origin(entry: EntryPoint) -> str:
    """Return the name and version of the distribution of an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
