"""Signal handlers at every place: a trace function that calls one at a chosen step of Python's."""

from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """A trace function that calls a handler at the `at`-th step in functions below some folders.

    Args:
        folders: Of the code that is interrupted.
        at: Which of its steps, from 1.
        handler: Called there, as a signal's would be: it may raise.

    Attributes:
        handled: Whether there were so many steps.
    """

    def __init__(self, folders: tuple[str, ...], at: int, handler: Callable[[], None]) -> None:
        self.folders = folders
        self.left = at
        self.handler = handler
        self.handled = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Count a step of a frame; see `sys.settrace`."""
        if self.handled or not frame.f_code.co_filename.startswith(self.folders):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.handled = True
                self.handler()
        return self
