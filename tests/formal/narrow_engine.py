"""The engine of the end-to-end proof: the real one in its own wiring, narrow, and its registers.

The limits: few places in queues, and of each beat's words only the first is real.
"""

from contextlib import ExitStack
from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Cat, Module, ResetInserter, Value
from amaranth.lib import data, memory

from afflux_hdl.contract import wire
from afflux_hdl.contract.registers import Command
from afflux_hdl.engine import (
    delivery_queue,
    engine,
    lane_ram,
    parameters,
    receive,
    replicate,
    seal,
    slot_memory,
    transmit,
)
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_words import MergeWord, SendWord
from afflux_hdl.engine.verilog import follow_frames
from afflux_hdl.lib.ram import Ram
from tests.formal.end_to_end_frames import ADDRESS, FIRST_ROUND, KEY, MAC
from tests.formal.inside import Inside
from tests.formal.stand_in_words import watching_words

__all__ = ["CREATE_CYCLES", "JOIN_CYCLES", "NarrowEngine", "configuration"]

DEPTHS = (
    (engine, "OPERATIONS", 8),
    (receive, "SUMMARY_DEPTH", 8),
    (receive, "SUMMARY_MARGIN", 6),
    (delivery_queue, "REPLAYS_PER_JOB", 2),
    (delivery_queue, "REPLIES", 6),
    (engine, "REPLIES", 6),
    (replicate, "HEADERS", 4),
    (parameters, "PIPELINE_BEATS", 16),
    (seal, "DEPTH", 18),
    (transmit, "DEPTH", 18),
)
"""Queues with few places: they fill up within the bound. Their margins stay as they are, but that
of the summaries: at 512 bits, frames of two beats are in flight to that queue, four at a time."""

CREATE_CYCLES = 48
"""Longer than a create takes."""

JOIN_CYCLES = 33
"""Longer than it takes from a JOIN to the end of its answer."""


def configuration(parameters: Parameters) -> list[tuple[str, int]]:
    """Return what is written to which registers, to create the job."""
    return [
        ("local_mac_low", MAC & 0xFFFF_FFFF),
        ("local_mac_high", MAC >> 32),
        ("local_address", ADDRESS),
        ("local_port", wire.PORT),
        ("job_key_low", KEY),
        ("job_workers", parameters.workers),
        ("job_lanes", parameters.lanes),
        ("job_slot_count", parameters.slots),
        ("job_round", FIRST_ROUND),
        ("job_credit", 4),
        ("job_command", Command.CREATE),
    ]


class OneWordRam(Ram):
    """A memory that keeps the first word of a beat. Reads of all others give anything."""

    _kept = 32

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.content = content = memory.Memory(
            shape=self._kept, depth=1 << self._address_bits, init=[]
        )
        write, read = content.write_port(), content.read_port()
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data[: self._kept]),
            read.addr.eq(self.read.address),
            self.read.data.eq(Cat(read.data, AnySeq(self._width - self._kept))),
        ]
        return m


class NarrowEngine:
    """The engine, with what surrounds it in a netlist of its own.

    Members:
        engine: Its ports.
        inside: Its inside.
        rx: Frames to it.
    """

    def __init__(
        self,
        m: Module,
        parameters: Parameters,
        reset: Value,
        platform: object,
    ) -> None:
        with ExitStack() as stack:
            for module, name, value in DEPTHS:
                stack.enter_context(patch.object(module, name, value))
            for module in (receive, slot_memory):
                stack.enter_context(patch.object(module, "Ram", OneWordRam))
            slots = type("OneSlotWordRam", (OneWordRam,), {"_kept": parameters.slot_word_bits})
            stack.enter_context(patch.object(lane_ram, "Ram", slots))
            stack.enter_context(watching_words(0, MergeWord, SendWord))
            self.engine = Engine(parameters)
            self.inside = Inside(self.engine, platform)
        parts = Module()
        parts.submodules.engine = self.inside.fragment
        self.rx: data.View = follow_frames(parts, self.engine, bus_bits=parameters.bus_bits)
        m.submodules.parts = ResetInserter(reset)(parts)
