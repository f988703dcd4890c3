"""`python -m tests.formal.convert harness arguments bug`: one harness, as RTLIL on standard output.

A process of its own, so that it can import the engine from a copy of its sources.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Module
from amaranth.lib.wiring import Component

from tests.support.overriding import Override, overriding


def top_of(harness: str, arguments: Mapping[str, object]) -> tuple[Module, ClockDomain]:
    """Return a harness in a module with a clock, and the clock's domain."""
    module, _, name = harness.partition(":")
    top = Module()
    # Registers start as they are initialised, and there is no reset afterwards.
    sync = ClockDomain("sync", reset_less=True)
    top.domains += sync
    kind = getattr(importlib.import_module(f"tests.formal.{module}"), name)
    top.submodules.harness = kind(**arguments)
    return top, sync


def bug_of(path: str) -> tuple[type[Component], Override]:
    """Return a part and a bug of it, by their `module:function` below `tests.formal.bugs`."""
    module, _, name = path.partition(":")
    bugs = importlib.import_module(f"tests.formal.bugs.{module}")
    return bugs.PART, getattr(bugs, name)


@contextmanager
def _with(bug: str) -> Iterator[None]:
    if bug:
        with overriding(*bug_of(bug)):
            yield
    else:
        yield


def main() -> None:
    harness, arguments, bug = sys.argv[1:]
    top, sync = top_of(harness, json.loads(arguments))
    with _with(bug):
        text = rtlil.convert(top, name="top", platform="formal", ports=[sync.clk])
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
