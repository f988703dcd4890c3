"""What an elaborated part has inside: induction needs to say what its registers hold.

The signals are the local variables of `elaborate`, by the names that the source gives them.
"""

import sys
from copy import copy
from types import FrameType, SimpleNamespace
from typing import Any

from amaranth.hdl import Elaboratable, Fragment, Value
from amaranth.lib.wiring import Component

__all__ = ["Inside"]


class Inside:
    """A part, elaborated, and the local variables of its `elaborate` and of its parts' own.

    Attributes:
        fragment: To be made a submodule in place of the part.
    """

    def __init__(self, part: Elaboratable, platform: object) -> None:
        self._part = part
        self._locals: dict[int, dict[str, Any]] = {}
        self._kept: list[object] = []

        def profile(frame: FrameType, event: str, argument: object) -> None:
            if event != "return":
                return
            whose, name = frame.f_locals.get("self"), frame.f_code.co_name
            if name == "elaborate":
                self._kept.append(whose)
                self._locals.setdefault(id(whose), {}).update(frame.f_locals)
            elif isinstance(whose, Component) and name.startswith("_"):
                # A step of it: `_overlaps.ranges`.
                inner = SimpleNamespace()
                self._kept += [whose, inner]
                self._locals.setdefault(id(whose), {})[name] = inner
                self._locals[id(inner)] = dict(frame.f_locals)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            self.fragment = Fragment.get(part, platform)
        finally:
            sys.setprofile(before)

    def __getitem__(self, path: str) -> Any:
        """Return a local variable, or one of a part that is one: `remaining` of `walk.remaining`.

        Those of another method that `elaborate` calls stand behind its name: `_overlaps.ranges`.

        Raises:
            LookupError: If there is none of that name.
        """
        whose: object = self._part
        *parts, name = path.split(".")
        for part in parts:
            whose = self._locals[id(whose)][part]
        return self._locals[id(whose)][name]

    def part(self, name: str) -> "Inside":
        """Return the same for a part that is a local variable."""
        inner = copy(self)
        inner._part = self[name]
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
