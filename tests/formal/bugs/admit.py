"""Bugs of the admit stage that proofs must find."""

from amaranth.hdl import Module

from afflux_hdl.engine.admit import Admit

PART = Admit


def the_last_contribution_does_not_complete(m: Module, admit: Admit) -> None:
    m.d.sync += admit.cycle3.one_left.eq(admit.read_state.data.left == 2)


def one_slot_too_many(m: Module, admit: Admit) -> None:
    frame, job = admit.cycle1.frame, admit.cycle1.job
    m.d.sync += admit.cycle2.checks.slot.eq(frame.header.slot <= job.count)


def added_to_the_round_before_last(m: Module, admit: Admit) -> None:
    now = admit.cycle3
    m.d.sync += admit.operation.fresh.eq(now.frame.header.present & ~now.held.present)


def a_parent_where_the_next_frame_comes_from(m: Module, admit: Admit) -> None:
    m.d.comb += admit.parent_ports.eq(admit.cycle2.frame.source.net_ports)


def a_worker_where_the_next_frame_comes_from(m: Module, admit: Admit) -> None:
    m.d.comb += admit.write_worker.data.peer.eq(admit.cycle1.frame.source)
