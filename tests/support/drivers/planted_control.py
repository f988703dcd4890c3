"""Bugs planted into the Python of the control channel, in this process."""

from pathlib import Path
from types import ModuleType

import pytest

from afflux_drivers.aggregator import control_server, conversation, jobs, peers, server
from afflux_drivers.control import channel, client, line_codes

__all__ = ["NOTICED", "plant"]

NOTICED = (
    AssertionError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
    pytest.fail.Exception,
)
"""The error of a test that notices a bug; a failure in a server's thread is seen by its client."""

_MODULES = (line_codes, channel, client, peers, conversation, jobs, control_server, server)


def plant(
    patch: pytest.MonkeyPatch, module: ModuleType, right: str, wrong: str, *others: ModuleType
) -> None:
    """Replace a text that occurs once in a module, for all who have imported from it.

    Args:
        patch: Takes the bug out again.
        module: The module.
        right: The text.
        wrong: The text that is there instead.
        others: More modules that have imported from it.
    """
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(right) == 1, right
    planted = dict(vars(module))
    exec(compile(source.replace(right, wrong), module.__file__, "exec"), planted)
    original = {name: getattr(module, name) for name in module.__all__}
    for each in (*_MODULES, *others):
        for name, value in original.items():
            if getattr(each, name, None) is value:
                patch.setattr(each, name, planted[name])
