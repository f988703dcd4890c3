"""The expected error of a part of the gateware that cannot be built."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from amaranth.hdl import Elaboratable

__all__ = ["refused"]


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Expect a ValueError whose text `message`, a regular expression, is found in.

    A part whose constructor raises exists and is never elaborated, and neither are those that were
    made for it. Amaranth warns of each when it goes; here that is as it should be, and nothing is
    printed.
    """
    # What is made now stays among the youngest: to look at all designs that live takes seconds.
    collects = gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(ValueError, match=message):
            yield
        for each in gc.get_objects(generation=0):
            if isinstance(each, Elaboratable):
                each._MustUse__silence = True
    finally:
        if collects:
            gc.enable()
