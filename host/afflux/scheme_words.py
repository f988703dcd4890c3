"""Schemes by a word: what AFFLUX_SCHEME may say.

A scheme is its parts, joined by "+": a compressor, or a selector and a compressor for its elements,
and additions to the scheme. Each part is a word, with options behind a colon:

    gtopk:density=0.001 + momentum:factor=0.9 + warmup:densities=0.25/0.0625,steps=100

Other packages add words of their own by the entry-point group `afflux.schemes`: the name is the
word, and the object a function or class that returns a compressor or a selector. Its parameters are
the options; they are annotated bool, int, float, str or list[float].
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from afflux.compressors.block_top_k import BlockTopK
from afflux.compressors.fixed_point import Int4, Int8, Int12
from afflux.compressors.global_top_k import GlobalTopK, TreeTopK
from afflux.compressors.half import BFloat16, Float16
from afflux.compressors.mstopk import MSTopK
from afflux.compressors.random_k import RandomK
from afflux.compressors.threshold import Threshold
from afflux.compressors.top_k import TopK
from afflux.compressors.whole import Whole
from afflux.schemes import entry_points
from afflux.schemes.compressor import Compressor, Selector
from afflux.schemes.scheme import Scheme
from afflux.schemes.selected import Selected

__all__ = ["COMPRESSORS", "SELECTORS", "scheme"]

COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    each.word: each
    for each in (Whole, Float16, BFloat16, Int12, Int8, Int4, TopK, GlobalTopK, TreeTopK)
}
"""The words that a scheme may be, or end with."""

SELECTORS: dict[str, Callable[..., Selector]] = {
    each.word: each for each in (RandomK, Threshold, BlockTopK, MSTopK)
}
"""The words that a scheme may begin with."""


def _feedback(on: bool = True) -> dict[str, Any]:
    return {"feedback": on}


def _momentum(factor: float = 0.9) -> dict[str, Any]:
    return {"momentum": factor}


def _warm_up(densities: list[float], steps: int) -> dict[str, Any]:
    if steps < 1:
        raise ValueError(f"steps is {steps}: each density lasts one at least")
    return {"warm_up": densities, "warm_up_steps": steps}


_KINDS: dict[Any, str] = {
    bool: "on or off",
    int: "an integer",
    float: "a number",
    str: "a word",
    list[float]: "numbers with / between them",
}

_BESIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "feedback": _feedback,
    "momentum": _momentum,
    "warmup": _warm_up,
}

_ELSEWHERE = {
    "powersgd": "torch has it, by matrices that a flat bucket does not show, and it runs over "
    "Afflux as it is: ddp.register_comm_hook(PowerSGDState(None), powerSGD_hook), both from "
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
}


def scheme(text: str, group: dist.ProcessGroup | None = None) -> Scheme:
    """Make a scheme of its words.

    Args:
        text: As above; case and spaces do not matter.
        group: As for `Scheme`.

    Raises:
        ValueError: There is no such word or option, a value is out of range, or the parts do not go
            together; with the reason.
    """
    selector: Selector | None = None
    compressor: Compressor | None = None
    besides: dict[str, Any] = {}
    try:
        for part in text.lower().replace(" ", "").split("+"):
            word, _, options = part.partition(":")
            made = _made(word, _maker(word), options)
            if isinstance(made, Selector):
                if selector is not None or compressor is not None:
                    raise ValueError(f"{word} selects elements, and must be first")
                selector = made
            elif isinstance(made, Compressor):
                if compressor is not None:
                    raise ValueError(f"{word} and {compressor.word} are two forms")
                compressor = made
            elif besides.keys() & made.keys():
                raise ValueError(f"{word} stands twice")
            else:
                besides |= made
        if selector is not None:
            compressor = Selected(selector, compressor or Whole())
        elif compressor is None:
            raise ValueError("no part says what is summed")
        return Scheme(compressor, group=group, **besides)
    except ValueError as error:
        # That of a module which cannot be loaded, if there is one, is for its author to see.
        raise ValueError(f"scheme {text!r}: {error}") from error.__cause__


def _maker(word: str) -> Callable[..., Any]:
    """Return what makes the part of a scheme that a word stands for."""
    own: dict[str, Callable[..., Any]] = {**SELECTORS, **COMPRESSORS, **_BESIDES}
    found = entry_points.find(word, taken=word in own) or own.get(word)
    if found is not None:
        return found
    if word in _ELSEWHERE:
        raise ValueError(f"{word} is not one of Afflux's: {_ELSEWHERE[word]}")
    others = [f"{name} (of {origin})" for name, origin in entry_points.words().items()]
    raise ValueError(f"there is no {word!r}; known are {', '.join([*own, *sorted(others)])}")


def _made(word: str, make: Callable[..., Any], options: str) -> Any:
    """Call what a word stands for with its options, whose types its signature has."""
    parameters = inspect.signature(make, eval_str=True).parameters
    values: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise ValueError(f"{word} has no option {name!r}; it has {known}")
        if name in values:
            raise ValueError(f"{word} has {name} twice")
        kind = parameters[name].annotation
        if kind not in _KINDS:
            raise ValueError(
                f"{word} must annotate its option {name} as bool, int, float, str or list[float]"
            )
        try:
            values[name] = _parsed(value, kind)
        except ValueError:
            raise ValueError(f"{word}:{name}={value!r} must be {_KINDS[kind]}") from None
    lacking = [
        name
        for name, each in parameters.items()
        if each.default is inspect.Parameter.empty and name not in values
    ]
    if lacking:
        raise ValueError(f"{word} lacks {', '.join(lacking)}")
    try:
        made = make(**values)
    except ValueError as error:
        raise ValueError(f"{word}: {error}") from None
    if not isinstance(made, (Selector, Compressor)) and word not in _BESIDES:
        raise ValueError(f"{word} makes {made!r}, which is neither a Compressor nor a Selector")
    return made


def _parsed(value: str, kind: Any) -> Any:
    if kind is bool:
        if value not in ("on", "off"):
            raise ValueError(value)
        return value == "on"
    if kind == list[float]:
        return [float(each) for each in value.split("/")]
    return kind(value)
