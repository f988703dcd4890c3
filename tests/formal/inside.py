"""The inside of an elaborated part: induction needs to say what its registers hold.

These have names on the component, which are there once it is elaborated. What is in Amaranth's own
parts goes by its name in the netlist.
"""

from copy import copy
from typing import Any

from amaranth.hdl import Elaboratable, Fragment, Value

__all__ = ["Inside"]


class Inside:
    """A part that is elaborated.

    Attributes:
        whole: The part.
        fragment: To be made a submodule in place of it.
    """

    def __init__(self, part: Elaboratable, platform: object) -> None:
        self.whole = part
        self.fragment = Fragment.get(part, platform)

    def __getitem__(self, path: str) -> Any:
        """Return what has this name, or this path of names, on the part: `walk.remaining`.

        Raises:
            LookupError: If there is nothing of that name.
        """
        found: Any = self.whole
        *parts, last = path.split(".")
        for name in parts:
            found = getattr(found, name)
        if hasattr(found, last):
            return getattr(found, last)
        fragment = self.fragment
        for name in parts:
            fragment = fragment.find_subfragment(name)
        return _signal_of(fragment, last)

    def part(self, name: str) -> "Inside":
        """Return the same for a part of the part."""
        inner = copy(self)
        inner.whole, inner.fragment = self[name], self.fragment.find_subfragment(name)
        return inner

    def state(self, name: str) -> Value:
        """Return whether the part's state machine is in the named state."""
        fsm = self.fragment.generated["fsm"]
        return fsm.state == fsm.encoding[name]

    @property
    def in_a_state(self) -> Value:
        """Return whether the part's state machine is in any of its states."""
        fsm = self.fragment.generated["fsm"]
        return fsm.state < len(fsm.encoding)


def _signal_of(fragment: Fragment, name: str) -> Value:
    """Return the signal of this name that the fragment drives."""
    for statements in fragment.statements.values():
        for statement in statements:
            for signal in statement._lhs_signals():
                if signal.name == name:
                    return signal
    raise LookupError(name)
