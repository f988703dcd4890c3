"""Bugs of the merge stage that proofs must find."""

from amaranth.hdl import Module, Mux, Signal

from afflux_hdl.engine.merge import Merge

PART = Merge


def fresh_for_all_lanes_at_once(m: Module, merge: Merge) -> None:
    m.d.sync += merge.fresh1.eq(merge.operation.fresh.any())


def look_ahead_off_by_one(m: Module, merge: Merge) -> None:
    """Where the slot's own word is the least, the next one is kept: in the first word of a beat."""
    held, arriving = merge.held_words[:32], merge.receive.data[:32]
    with m.If(~merge.opening1 & (arriving >= held)):
        m.d.comb += merge.write_words.data[:32].eq((held + 1)[:32])


def pause_before_the_blocks(m: Module, merge: Merge) -> None:
    """Send blocks before they are written. Where words are one beat, its number is free."""
    with m.If(merge.fsm.ongoing("BLOCKS")):
        m.d.comb += [
            merge.with_blocks.eq(merge.word_beat[0]),
            merge.walk.step.eq(merge.word_beat[0]),
        ]
        m.d.sync += merge.word_beat.eq(merge.walk.any & ~merge.walk.last)


def starts_at_any_phase(m: Module, merge: Merge) -> None:
    m.d.sync += merge.may_take.eq(merge.fsm.ongoing("TAKE") | merge.finishing)


def words_written_a_cycle_late(m: Module, merge: Merge) -> None:
    """They are read before they are written."""
    late, address = Signal(), Signal.like(merge.write_words.address)
    m.d.sync += [late.eq(merge.words1), address.eq(merge.words_address1)]
    m.d.comb += [merge.write_words.enable.eq(late), merge.write_words.address.eq(address)]


def arriving_does_not_wait(m: Module, merge: Merge) -> None:
    """Take what arrives before the slot memory answers, which has an output register."""
    m.d.comb += merge.blocks.words.eq(merge.receive.data)


def buffer_addressed_late(m: Module, merge: Merge) -> None:
    """Address the receive buffer as if it had no output register."""
    m.d.comb += merge.receive.address.eq(Mux(merge.may_take, merge.i.payload.start, merge.offset))


def words_read_as_they_were(m: Module, merge: Merge) -> None:
    """Words that are being written come without what is written."""
    m.d.sync += merge.held_words.eq(merge.read_words.data)


def words_of_another_slot(m: Module, merge: Merge) -> None:
    """Words that are being written pass for those that are read."""
    m.d.sync += merge.overtaken.eq(merge.write_words.enable)


def idle_too_early(m: Module, merge: Merge) -> None:
    """Although a block is to be written."""
    m.d.comb += merge.idle.eq(merge.fsm.ongoing("TAKE") & ~merge.i.valid & ~merge.under_way)
