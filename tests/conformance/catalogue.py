"""The list of all scripts, in the order in which they are run."""

import importlib
import importlib.util
from functools import cache

from tests.conformance.script import Script, collected

__all__ = ["THEMES", "available", "scripts"]

THEMES = (
    "collectives",
    "reductions",
    "tensors",
    "objects",
    "point_to_point",
    "groups",
    "modes",
    "functional",
    "data_parallel",
    "sharded",
    "training",
    "checkpoints",
    "timeouts",
    "processes",
    "launches",
    "frameworks",
)


@cache
def scripts() -> tuple[Script, ...]:
    """Return all scripts."""
    for theme in THEMES:
        importlib.import_module(f"tests.conformance.scripts.{theme}")
    return tuple(each for each in collected() if each.theme in THEMES)


def available(script: Script) -> bool:
    """Return whether the packages that a script needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in script.needs)
