"""Which way the tensors of one kind take, by shards or by Gloo: what is known, and what follows.

All ranks must come to the same choice, for one that goes to Gloo alone waits there in vain. So a
choice follows from the facts that all know alike: the calibration's `Rates`, the calls before this
one, in their order, and the news that the ranks have told each other with these calls. No clock has
a part in it but that of a time which all ranks were told.

    first call    as if it were dense
    then          by rates and density, if these leave no doubt
                  if they do: a trial, both ways some times, timed from when all ranks are there to
                  the end of the last one; the faster goes on
    density       of the results, that of a sample of blocks: when it has changed much the choice is
                  made again
    densities     that keep changing, as of tensors of one size of which one is dense and another is
                  not: each has a choice of its own, found by the density of what is to be summed

A result of shards has the same bits at all ranks, and so its density is known alike. Gloo's result
need not have, and the inputs differ at each rank, so the ranks tell each other what they found,
before some of the calls: that takes as long as a small sum.
"""

import enum
import statistics

from afflux.group.autotune.rates import Rates

__all__ = ["DENSE", "PathHistory", "Way"]

DENSE = 1024
"""The density of a tensor all of whose blocks are not zero: densities are in 1024ths."""

_DOUBT = 1.5
"""A prediction is trusted if it says that one way takes so many times as long as the other."""

_PREFERENCE = 1.03
"""Shards may take so much longer: their bits are those of all other ways of summing."""

_TRIAL_S = 0.25
_TURNS_LEAST, _TURNS_MOST = 2, 8
"""A trial takes about so long, with so many calls of each way. Shards begin."""

_CHANGED, _CHANGED_LEAST = 2.0, DENSE // 50
"""A density has changed if it is so many times what it was, and not only by the sample's chance."""

_VARIES, _SOON = 2, 64
"""After so many changes of the density it keeps changing, if one follows the other within so many
calls."""

_LOOKED_AT_S = 0.02
"""Of tensors that Gloo sums faster, the ranks do not tell each other the density before each call:
that takes a millisecond where ranks share processors."""

_UNTOLD_S = 0.04
_UNTOLD_MOST = 16
"""After calls to Gloo that take so long together, the ranks tell each other what they have found.
To do so takes a millisecond where ranks share processors."""


class Way(enum.IntEnum):
    """How a tensor is summed."""

    SHARDS = 0
    GLOO = 1

    def __str__(self) -> str:
        return ("shards", "Gloo")[self]


class _Choice:
    """The way of tensors of one size and, where densities keep changing, of about one density.

    Args:
        rates: The calibration's.
        size: Bytes of a tensor.
        density: The estimate before the first call.

    Attributes:
        way: Of the next call.
        reason: Why, in words.
        at: The density for which the choice was made.
        trial: The time of a trial's calls, in microseconds; None if there is no trial.
    """

    def __init__(self, rates: Rates, size: int, density: int) -> None:
        self._rates = rates
        self._size = size
        self.at: int | None = None
        self.trial: list[int] | None = None
        self._timed = False
        slower = self._shards_s(density) > self.gloo_s * _PREFERENCE
        self.way = Way.GLOO if slower else Way.SHARDS
        told = "if it is dense" if density == DENSE else f"{_share(density)} of blocks at a rank"
        self.reason = f"{self._predicted(density)}, {told}"

    @property
    def gloo_s(self) -> float:
        """How long Gloo takes, by the rates."""
        return self._rates.gloo_s(self._size)

    def clear(self, density: int) -> Way | None:
        """Return the way that is much faster, if one is."""
        shards_s, gloo_s = self._shards_s(density), self.gloo_s
        if shards_s > gloo_s * _DOUBT:
            return Way.GLOO
        return Way.SHARDS if shards_s * _DOUBT < gloo_s else None

    def settle(self, way: Way) -> None:
        """Take a way for good."""
        self.way = way
        self.reason = f"{self._predicted(DENSE)}, dense"

    def heard(self, took_us: int, density: int) -> bool:
        """Take what all ranks know of the last call; return whether the density has changed."""
        if self.trial is None:
            return self.learn(density)
        if self._timed:
            self.trial.append(took_us)
        return self.at is not None and _changed(self.at, density)

    def learn(self, density: int) -> bool:
        """Take a result's density; return whether it has changed."""
        changed = self.at is not None and _changed(self.at, density)
        if self.at is None or changed:
            self._choose(density)
        return changed

    def begin(self) -> None:
        """Begin the next call of a trial, if there is one, or end it."""
        trial = self.trial
        if trial is None:
            return
        self._timed = True
        turns = round(_TRIAL_S / (2 * max(self.gloo_s, 1e-6)))
        calls = 2 * max(_TURNS_LEAST, min(_TURNS_MOST, turns))
        if len(trial) < calls:
            self.way = Way(len(trial) % 2)
            self.reason = f"trial {len(trial) + 1} of {calls}"
            return
        shards_us, gloo_us = statistics.median(trial[::2]), statistics.median(trial[1::2])
        self.way = Way.SHARDS if shards_us <= gloo_us * _PREFERENCE else Way.GLOO
        self.reason = (
            f"shards took {shards_us / 1000:.3g} ms, and Gloo {gloo_us / 1000:.3g} ms, "
            f"{_share(self.at or 0)} of blocks"
        )
        self.trial = None

    def _choose(self, density: int) -> None:
        """Choose for a density; open a trial if that is in doubt."""
        self.at = density
        clear = self.clear(density)
        if clear is not None:
            self.way = clear
            self.reason = f"{self._predicted(density)}, {_share(density)} of blocks"
            return
        self.trial, self._timed = [], False

    def _shards_s(self, density: int) -> float:
        return self._rates.shards_s(self._size, density / DENSE)

    def _predicted(self, density: int) -> str:
        return (
            f"shards would take {1000 * self._shards_s(density):.3g} ms, and Gloo "
            f"{1000 * self.gloo_s:.3g} ms"
        )


class PathHistory:
    """The calls of one kind at one rank; at all other ranks its public part is the same.

    For each call: `ask` whether the ranks must tell each other their news first, and if so `told`;
    then `way`, and `done` when it is over.

    Args:
        rates: The calibration's.
        size: Bytes of a tensor.

    Attributes:
        chosen: Whether there is a choice: not if one way is faster at every density.
        varies: Whether densities keep changing, so that the ranks tell each other that of the
            tensor that is to be summed, too.
        calls: By way.
        news: This rank's report of its last call: microseconds, and the density of its result. Not
            the same at all ranks.
    """

    def __init__(self, rates: Rates, size: int) -> None:
        self.calls = [0, 0]
        self.news = (0, 0)
        self.varies = False
        self._rates = rates
        self._size = size
        self._choice = choice = _Choice(rates, size, DENSE)
        # Where densities vary, by the number of bits of that of what is to be summed.
        self._choices: dict[int, _Choice] = {}
        self._changes, self._changed_at = 0, 0
        # Calls to Gloo since the ranks told each other something.
        self._untold = 0
        self._untold_most = max(1, min(_UNTOLD_MOST, round(_UNTOLD_S / max(choice.gloo_s, 1e-6))))
        sparse, dense = choice.clear(0), choice.clear(DENSE)
        self.chosen = dense is None or sparse != dense
        if dense is not None and not self.chosen:
            choice.settle(dense)

    @property
    def way(self) -> Way:
        """Of the next call, unless the ranks are asked first."""
        return self._choice.way

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self._choice.reason

    @property
    def ask(self) -> bool:
        """Whether the ranks must tell each other their news before the next call."""
        choice = self._choice
        if self.varies or choice.trial is not None:
            return True
        first = self.chosen and choice.at is None and self.calls[Way.GLOO] > 0
        return self.way is Way.GLOO and (first or self._untold >= self._untold_most)

    @property
    def state(self) -> str:
        """The part that must be the same at all ranks, in words."""
        trial = self._choice.trial
        tried = "" if trial is None else f", trial {len(trial)}"
        return f"by {self.way}, after {self.calls[0]} and {self.calls[1]}{tried}"

    def told(self, news: tuple[int, int, int]) -> None:
        """Take the greatest of all ranks' news, as `ask` has asked for; this may change `way`.

        Args:
            news: Of their last calls, and the density of what is to be summed: if `varies`.
        """
        self._untold = 0
        if not self.chosen:
            return
        took_us, density, coming = news
        # If they have not known before that densities vary, they have not told what comes.
        varied = self.varies
        self._note(self._choice.heard(took_us, density))
        if varied:
            found = self._choices.get(coming.bit_length())
            if found is None:
                found = _Choice(self._rates, self._size, coming)
                self._choices[coming.bit_length()] = found
            self._choice = found
        self._choice.begin()

    def done(self, way: Way, took_us: int, density: int) -> None:
        """Note that the call is over.

        Args:
            way: That it took.
            took_us: How long it took here.
            density: Of its result here.
        """
        self.calls[way] += 1
        self._untold += way is Way.GLOO
        if not self.chosen:
            return
        self.news = took_us, density
        if self._choice.trial is None and way is Way.SHARDS:
            self._note(self._choice.learn(density))

    def _note(self, changed: bool) -> None:
        """Count a change of the density, and come to know that there is one after the other."""
        if not changed:
            return
        calls = sum(self.calls)
        self._changes = self._changes + 1 if calls - self._changed_at <= _SOON else 1
        self._changed_at = calls
        if self._changes >= _VARIES and self._choice.gloo_s >= _LOOKED_AT_S:
            self.varies = True


def _changed(before: int, now: int) -> bool:
    least, most = sorted((before, now))
    return most > least * _CHANGED and most - least > _CHANGED_LEAST


def _share(density: int) -> str:
    return f"{100 * density / DENSE:.3g} %"
