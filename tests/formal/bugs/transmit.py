"""Bugs of the transmit stage that proofs must find."""

from amaranth.hdl import Cat, Module

from afflux_hdl.engine.transmit import Transmit

PART = Transmit


def the_other_version(m: Module, transmit: Transmit) -> None:
    """Where words are one beat."""
    order, walk = transmit.order, transmit.walk
    version = ~order.header.round[0]
    m.d.comb += [
        transmit.read_words.address.eq(Cat(version, order.slot)),
        transmit.read_block.address.eq(Cat(walk.beat, walk.lane, version, order.slot)),
    ]


def starts_at_any_phase(m: Module, transmit: Transmit) -> None:
    m.d.comb += transmit.taking.eq(~transmit.active | transmit.last_issue)


def goes_on_after_a_cut(m: Module, transmit: Transmit) -> None:
    """Of a frame that is cut off the rest is sent."""
    m.d.comb += transmit.drops.eq(transmit.unsent2)


def does_not_end_what_has_begun(m: Module, transmit: Transmit) -> None:
    sent = transmit.valid2 & ~transmit.drops
    m.d.comb += transmit.seal.i.valid.eq(sent | transmit.cut)


def blocks_before_words(m: Module, transmit: Transmit) -> None:
    with m.If(transmit.taking & transmit.i.valid):
        m.d.sync += transmit.section.eq(2)


def by_the_port_of_the_frame_before(m: Module, transmit: Transmit) -> None:
    with m.If(~transmit.last_issue):
        m.d.sync += transmit.net_ports1.eq(transmit.net_ports1)


def headers_do_not_wait(m: Module, transmit: Transmit) -> None:
    """For the blocks, which have an output register."""
    with m.If(transmit.valid1 & transmit.from_text1):
        m.d.sync += transmit.beat2.data.eq(transmit.text1)


def words_do_not_wait(m: Module, transmit: Transmit) -> None:
    """Look-ahead words, for the blocks, which have an output register."""
    beat = transmit.beat2
    with m.If(transmit.valid1 & ~transmit.from_text1 & transmit.from_words1):
        m.d.sync += Cat(beat.data, beat.residues).eq(transmit.words1)


def words_do_not_wait_for_their_register(m: Module, transmit: Transmit) -> None:
    m.d.sync += transmit.found_words.eq(transmit.read_words.data)
