"""The expected error of a part of the gateware that cannot be built."""

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from amaranth.hdl import Elaboratable

__all__ = ["refused"]


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Expect a ValueError whose text `message`, a regular expression, is found in.

    A part whose constructor raises exists and is never elaborated, and neither are those that were
    made for it. Amaranth warns of each; here that is as it should be, and nothing is printed.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Elaboratable, "_MustUse__silence", True)
        with pytest.raises(ValueError, match=message) as caught:
            yield
        # The parts go now: the frames of the constructors hold them, and they hold one another.
        traceback.clear_frames(caught.tb)
        gc.collect()
