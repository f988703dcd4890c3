"""The registers of each stage of `Receive`. Names end in the number of the stage."""

from amaranth.hdl import Signal
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import AffluxFrame, FrameSummary
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["Stage1", "Stage2", "Stage3", "Stage4", "Stage5"]

Flags = data.StructLayout(
    {
        "ended": 1,
        "mac_error": 1,
        "overflow": 1,
        "not_ours": 1,
        "bad_ip": 1,
        "other_port": 1,
        "from_parent": 1,
        "bad_version": 1,
        "bad_length": 1,
        "bad_type": 1,
        "bad_worker_type": 1,
        "bad_parent_type": 1,
        "no_checksum": 1,
        "join": 1,
        "holds_room": 1,
    }
)
"""Findings of comparisons about a frame that has `ended`; `bad_type` with stage 4."""


class Stage1:
    """A beat, behind the pins.

    Attributes:
        valid, beat: There is one, and it.
        index: Its number within its frame; beyond the longest frame, it stands still.
        first: It is its frame's first.
        taking: Its frame has room.
        whole, sealed: The frame's beats up to this one are whole; or are, and this one is a seal.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self.valid = Signal(name="valid1")
        self.beat = Signal(PacketBeat(p.bus_bits, p.ports), name="beat1")
        self.index = Signal(range(p.frame_beats_max + 2), name="index1")
        self.first = Signal(name="first1")
        self.taking = Signal(name="taking")
        self.whole, self.sealed = Signal(name="whole_now"), Signal(name="sealed_now")


class Stage2:
    """The frame is in; its header stays here until the next frame's first beat.

    Attributes:
        ended: It has ended in the cycle before.
        error: The MAC has found an error in it.
        taken: It is in the buffer ...
        start, end: ... from here on, up to here.
        whole, sealed: All its beats are whole; or all but the last one, which is a seal.
        beats: Their number.
        net_ports: The network port by which it has come, if there are several.
        header, next_header: Its headers, now and in the next cycle.
        blocks: Number of its blocks.
        units: Their length in units of 256 bytes: their number, but of partial sums.
        ip_sums: Sums of two words each of the IPv4 header.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self.ended = Signal(name="ended2")
        self.error = Signal(name="error2")
        self.taken = Signal(name="taken2")
        self.whole, self.sealed = Signal(), Signal(name="sealed2")
        self.end = Signal(p.offset_bits, name="end2")
        self.start = Signal(p.offset_bits, name="start2")
        self.beats = Signal(range(p.frame_beats_max + 3), name="beats2")
        self.net_ports = Signal(p.ports, name="net_ports2")
        self.header, self.next_header = (
            Signal(AffluxFrame),
            Signal(AffluxFrame, name="next_header"),
        )
        self.blocks = Signal(5, name="blocks")
        self.units = Signal(p.units_bits, name="units")
        self.ip_sums = [Signal(17, name=f"ip_sum_{n}") for n in range(wire.IPV4_BYTES // 4)]


class Stage3:
    """The findings of the comparisons.

    Attributes:
        flags: Their outcomes.
        summary: The announcement of the frame, if it is good.
        ip_sum: The sum of the IPv4 header's words.
        length: The UDP length.
        parent_port: The number of the parent port that it came to.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.flags = Signal(Flags, name="flags3")
        self.summary = Signal(FrameSummary(parameters), name="summary3")
        self.ip_sum = Signal(20, name="ip_sum3")
        self.length = Signal(16, name="length3")
        self.parent_port = Signal(16, name="parent_port3")


class Stage4:
    """The same, with the UDP sum beside it: `flags`, `summary` and `length`."""

    def __init__(self, before: Stage3) -> None:
        self.flags, self.summary = Signal.like(before.flags), Signal.like(before.summary)
        self.length = Signal(16, name="length4")


class Stage5:
    """The same, with `folded`, the UDP sum in fewer bits."""

    def __init__(self, before: Stage3) -> None:
        self.flags = Signal.like(before.flags, name="flags5")
        self.summary = Signal.like(before.summary, name="summary5")
        self.folded = Signal(18, name="folded5")
