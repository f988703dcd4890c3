"""Types of options that several commands have, for argparse."""

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

__all__ = ["checked", "count", "seconds"]

T = TypeVar("T")


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for argparse that says what `read` says is wrong, as `DeviceUrl.parse` does."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def seconds(most: float) -> Callable[[str], float]:
    """Return a type for argparse: more than 0 seconds, and at most so many."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= most:
            raise ValueError(f"{text!r} is not a number of seconds, up to {most:g}")
        return value

    return checked(read)


def count(text: str) -> int:
    """Return a number of times, at least 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of times, at least 1")
    return int(text)
