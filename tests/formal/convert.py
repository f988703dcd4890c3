"""`python -m tests.formal.convert harness arguments`: one harness, as RTLIL on the standard output.

A process of its own, so that it can import the engine from a copy of its sources.
"""

import importlib
import json
import sys
from collections.abc import Mapping

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Module


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


def main() -> None:
    harness, arguments = sys.argv[1:]
    top, sync = top_of(harness, json.loads(arguments))
    text = rtlil.convert(top, name="top", platform="formal", ports=[sync.clk])
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
