"""`python -m tests.formal.convert harness arguments`: one harness, as RTLIL on the standard output.

A process of its own, so that it can import the engine from a copy of its sources.
"""

import importlib
import json
import sys

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Module


def main() -> None:
    harness, arguments = sys.argv[1:]
    module, _, name = harness.partition(":")
    top = Module()
    # Registers start as they are initialised, and there is no reset afterwards.
    sync = ClockDomain("sync", reset_less=True)
    top.domains += sync
    kind = getattr(importlib.import_module(f"tests.formal.{module}"), name)
    top.submodules.harness = kind(**json.loads(arguments))
    text = rtlil.convert(top, name="top", platform="formal", ports=[sync.clk])
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
