"""Which way the tensors of one kind take, by shards or by Gloo: what is known, and what follows.

All ranks must come to the same choice, for one that goes to Gloo alone waits there in vain. So a
choice follows from what all know alike: the contest's `Rates`, the calls before this one, in their
order, and what the ranks have told each other with these calls. No clock has a part in it but that
of a time which all ranks were told.

    first call    as if it were dense
    then          by rates and density, if these leave no doubt
                  if they do: a trial, both ways some times, timed from when all ranks are there to
                  the end of the last one; the faster goes on
    density       of the results, that of a sample of blocks: when it has changed much the choice is
                  made again

A result of shards has the same bits at all ranks, and so its density is known alike. What Gloo
gives need not have, so the ranks tell each other what they found, before some of the calls: that
takes as long as a small sum.
"""

import enum
import statistics

from afflux.group.rates import Rates

__all__ = ["DENSE", "Ledger", "Way"]

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


class Ledger:
    """The calls of one kind at one rank; at all other ranks its public part is the same.

    For each call: `ask` whether the ranks must tell each other their news first, and if so `told`;
    then `way`, and `done` when it is over.

    Args:
        rates: The contest's.
        size: Bytes of a tensor.

    Attributes:
        chosen: Whether there is a choice: not if one way is faster at every density.
        way: Of the next call.
        reason: Why, in words.
        calls: By way.
        news: What this rank has to tell of its last call: microseconds, and the density of its
            result. Not the same at all ranks.
    """

    def __init__(self, rates: Rates, size: int) -> None:
        self.calls = [0, 0]
        self.news = (0, 0)
        self._rates = rates
        self._size = size
        # The density for which the choice was made, and the times of its trial, in microseconds.
        self._at: int | None = None
        self._trial: list[int] | None = None
        self._timed = False
        # Calls to Gloo since the ranks told each other something.
        self._untold = 0
        self._untold_most = max(1, min(_UNTOLD_MOST, round(_UNTOLD_S / max(self._gloo_s, 1e-6))))
        sparse, dense = self._clear(0), self._clear(DENSE)
        self.chosen = dense is None or sparse != dense
        if dense is not None and not self.chosen:
            self.way = dense
            self.reason = f"{self._predicted(DENSE)}, dense"
        else:
            slower = self._shards_s(DENSE) > self._gloo_s * _PREFERENCE
            self.way = Way.GLOO if slower else Way.SHARDS
            self.reason = f"{self._predicted(DENSE)}, if it is dense"

    @property
    def ask(self) -> bool:
        """Whether the ranks must tell each other their news before the next call."""
        if self._trial is not None:
            return True
        first = self._at is None and self.calls[Way.GLOO] > 0
        return self.way is Way.GLOO and (first or self._untold >= self._untold_most)

    @property
    def state(self) -> str:
        """What must be the same at all ranks, in words."""
        tried = "" if self._trial is None else f", trial {len(self._trial)}"
        return f"by {self.way}, after {self.calls[0]} and {self.calls[1]}{tried}"

    def told(self, news: tuple[int, int]) -> None:
        """Take the greatest of all ranks' news, as `ask` has asked for; this may change `way`."""
        self._untold = 0
        if not self.chosen:
            return
        took_us, density = news
        if self._trial is None:
            self._learn(density)
        elif self._timed:
            self._trial.append(took_us)
        if self._trial is not None:
            self._go_on()

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
        if self._trial is None and way is Way.SHARDS:
            self._learn(density)

    def _learn(self, density: int) -> None:
        if self._at is None or _changed(self._at, density):
            self._choose(density)

    def _choose(self, density: int) -> None:
        """Choose for a density; open a trial if that is in doubt."""
        self._at = density
        clear = self._clear(density)
        if clear is not None:
            self.way = clear
            self.reason = f"{self._predicted(density)}, {_share(density)} of blocks"
            return
        self._trial, self._timed = [], False

    def _go_on(self) -> None:
        """Begin the next call of a trial, or end it."""
        trial = self._trial
        assert trial is not None
        self._timed = True
        turns = round(_TRIAL_S / (2 * max(self._gloo_s, 1e-6)))
        calls = 2 * max(_TURNS_LEAST, min(_TURNS_MOST, turns))
        if len(trial) < calls:
            self.way = Way(len(trial) % 2)
            self.reason = f"trial {len(trial) + 1} of {calls}"
            return
        shards_us, gloo_us = statistics.median(trial[::2]), statistics.median(trial[1::2])
        self.way = Way.SHARDS if shards_us <= gloo_us * _PREFERENCE else Way.GLOO
        self.reason = (
            f"shards took {shards_us / 1000:.3g} ms, and Gloo {gloo_us / 1000:.3g} ms, "
            f"{_share(self._at or 0)} of blocks"
        )
        self._trial = None

    def _clear(self, density: int) -> Way | None:
        """Return the way that is much faster, if one is."""
        shards_s, gloo_s = self._shards_s(density), self._gloo_s
        if shards_s > gloo_s * _DOUBT:
            return Way.GLOO
        return Way.SHARDS if shards_s * _DOUBT < gloo_s else None

    def _shards_s(self, density: int) -> float:
        return self._rates.shards_s(self._size, density / DENSE)

    @property
    def _gloo_s(self) -> float:
        return self._rates.gloo_s(self._size)

    def _predicted(self, density: int) -> str:
        return (
            f"shards would take {1000 * self._shards_s(density):.3g} ms, and Gloo "
            f"{1000 * self._gloo_s:.3g} ms"
        )


def _changed(before: int, now: int) -> bool:
    least, most = sorted((before, now))
    return most > least * _CHANGED and most - least > _CHANGED_LEAST


def _share(density: int) -> str:
    return f"{100 * density / DENSE:.3g} %"
