"""Bugs of the receive stage that proofs must find."""

from amaranth.hdl import Module

from afflux_hdl.engine.receive import Receive

PART = Receive


def by_the_port_of_the_frame_before(m: Module, receive: Receive) -> None:
    stage = receive.stage2
    with m.If(~stage.ended):
        m.d.sync += stage.net_ports.eq(stage.net_ports)


def one_beat_has_a_summary(m: Module, receive: Receive) -> None:
    """Where headers are one beat."""
    m.d.sync += receive.stage3.flags.holds_room.eq(receive.stage2.beats >= 1)
