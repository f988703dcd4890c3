"""Which of many cases of a kind `make test` runs, and which `make test-long`."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

__all__ = ["most_are_long"]


def most_are_long(names: Iterable[str], kept: int = 1) -> list[ParameterSet]:
    """Return the names as parameters, all but the first `kept` marked as long."""
    return [
        pytest.param(name, marks=pytest.mark.long if number >= kept else ())
        for number, name in enumerate(names)
    ]
