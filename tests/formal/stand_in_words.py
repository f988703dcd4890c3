"""What stands for the words of blocks where their arithmetic is not looked at.

The result tells all that went in, and in which order: what the slot held goes round by a bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data

from afflux_hdl.engine import merge_blocks, transmit
from afflux_hdl.engine.slot_words import (
    ALIGN_CYCLES,
    ROUND_CYCLES,
    MergeWord,
    Operation,
    SendWord,
    delayed,
)
from afflux_hdl.lib.residue import RESIDUE_BITS
from afflux_hdl.numbers.formats import Fixed

__all__ = ["Merged", "Sent", "merged_block", "sent_word", "watching_words"]

KNOWN_BITS = Operation.size - 1
"""Bits of an operation, but for their parity."""

Merged = data.StructLayout(
    {"arriving": 32, "lower": 32, "known": KNOWN_BITS, "exponent": 8, "fresh": 1}
)
"""What goes into a word.

Members:
    arriving, lower: The contribution's words.
    known: What is known of the operation, as in `slot_words.Operation`.
    exponent: E of the block.
    fresh: The slot holds nothing of it yet.
"""


Sent = data.StructLayout(
    {
        "opcode": 4,
        "dtype": 2,
        "partial": 1,
        "upper": 1,
        "rounded": 1,
        "exponent": 8,
        "lost": 1,
        "wrong": 1,
        "all_present": 1,
    }
)
"""What is known of a slot's word that is sent, as in `slot_words.SendWord`."""


def merged_block(held: Value, given: data.View) -> Value:
    """Return the low bits of what a word of a block becomes."""
    partial = data.View(Operation, Cat(given.known, Const(0, 1))).partial
    lower = Mux(partial, given.lower.rotate_left(1), 0)
    told = given.arriving ^ lower ^ Cat(given.known, given.exponent)
    return (Mux(given.fresh, 1, held.rotate_left(1)) + told)[:32]


def sent_word(slot: Value, sent: data.View) -> Value:
    """Return what is sent of the low bits of a slot's word, and its residue."""
    return Cat(slot[:32] ^ sent.as_value(), slot[32:][:RESIDUE_BITS])


class _AnyWord(MergeWord):
    """A word that becomes anything."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in ("lost", "merged", "overflow", "beyond"):
            output = getattr(self, name)
            m.d.comb += output.eq(AnySeq(len(output)))
        return m


class _WatchedWord(_AnyWord):
    """A word whose low bits become what `merged_block` says, where the slot's are 0 if `fresh`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        given = data.View(
            Merged,
            delayed(
                m,
                Cat(
                    self.arriving,
                    self.lower,
                    self.operation.as_value()[:-1],
                    self.exponent,
                    Const(0, 1),
                ),
                ALIGN_CYCLES,
            ),
        )
        for name in ("lost", "overflow", "beyond"):
            m.d.comb += getattr(self, name).eq(AnySeq(1))
        become = merged_block(self.held[:32], given) + self.fresh
        m.d.sync += self.merged.eq(Cat(become[:32], AnySeq(len(self.merged) - 32)))
        return m


class _AnySentWord(SendWord):
    """A word of which anything is sent."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.word.eq(AnySeq(32)), self.check.eq(AnySeq(RESIDUE_BITS))]
        return m


class _WatchedSentWord(SendWord):
    """A word of which is sent what `sent_word` says."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sent = data.View(Sent, Cat(getattr(self, name) for name in Sent.members))
        told = delayed(m, sent_word(self.slot, sent), ROUND_CYCLES)
        m.d.comb += Cat(self.word, self.check).eq(told)
        return m


@contextmanager
def watching_words(
    element: int,
    merge: type[MergeWord] = _WatchedWord,
    send: type[SendWord] = _WatchedSentWord,
) -> Iterator[None]:
    """While this is open, one of a beat's words is watched, and the others become anything.

    Args:
        element: Its number.
        merge: What is in its place when it is merged.
        send: What is in its place when it is sent.
    """
    merging, sending = count(), count()

    def make_merge(fixed: Fixed) -> MergeWord:
        return (merge if next(merging) == element else _AnyWord)(fixed)

    def make_send(fixed: Fixed) -> SendWord:
        return (send if next(sending) == element else _AnySentWord)(fixed)

    with (
        patch.object(merge_blocks, "MergeWord", make_merge),
        patch.object(transmit, "SendWord", make_send),
    ):
        yield
