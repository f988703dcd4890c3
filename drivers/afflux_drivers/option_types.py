"""Types of options that several commands have, for argparse."""

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

__all__ = ["checked", "seconds", "whole"]

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


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a type for argparse: a whole number in these bounds."""

    def read(text: str) -> int:
        value = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
        if value is None or value < least or (most is not None and value > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{text!r} is not a whole number {span}")
        return value

    return checked(read)
