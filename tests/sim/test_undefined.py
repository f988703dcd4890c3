"""A part without an initial value may hold anything when it starts: no pin shows it.

In the Verilog of engine and node every register has an initial value but those in which memories
give what is read, and `afflux_ram` has none at all. Here these begin as random numbers, and the
engine does what it does when a simulator has them begin as zeros: pin by pin, in every cycle.
"""

import random
import re
from typing import Any

import pytest
from amaranth.hdl import Module

from afflux_hdl.engine import verilog as engine_verilog
from afflux_hdl.engine.merge import Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node import verilog as node_verilog
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, check_cases, open_engine
from tests.scenarios.job_frames import Job
from tests.second_simulator.twins import Difference, Twins
from tests.support.overriding import engine_verilog_with

NARROW = Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2)
BUILD = BUILDS[32]

READ = re.compile(r"_\d+_")
"""The name of a register in which yosys' Verilog has what a memory gives."""

WRITTEN = re.compile(r"^ +(\\\S+|\w+) *(\[\S+\])? *<= ", re.MULTILINE)
BEGUN = re.compile(r"^  reg (?:\[\d+:0\] )?(\\\S+|\w+) += ", re.MULTILINE)
WITHOUT = re.compile(rf"^  reg (?:\[(\d+):0\] )?({READ.pattern});$", re.MULTILINE)

RAM = "output reg [WIDTH-1:0] read_data"
CONTENT = "content [0:(1 << ADDRESS_BITS) - 1];"


def without_initial_value(verilog: str) -> list[str]:
    """Return the registers without an initial value, but those of memories."""
    missing = []
    for module in verilog.partition("\nmodule afflux_ram ")[0].split("\nendmodule"):
        # A name with an index is a memory: its initial value is a block of its own, or not there.
        written = {name for name, index in WRITTEN.findall(module) if not index}
        missing += sorted(written - set(BEGUN.findall(module)))
    return [name for name in missing if not READ.fullmatch(name)]


def with_anything(verilog: str, seed: int) -> str:
    """Return the Verilog with a random value for all that has none."""
    choose = random.Random(seed)

    def word() -> str:
        return f"{{((WIDTH + 31) / 32){{32'h{choose.getrandbits(32):08x}}}}}"

    def begin(found: re.Match[str]) -> str:
        bits = int(found[1] or 0) + 1
        return f"{found[0][:-1]} = {bits}'h{choose.getrandbits(bits):x};"

    text, registers = WITHOUT.subn(begin, verilog)
    assert registers > 10 and text.count(RAM) == text.count(CONTENT) == 1
    fill = f"for (integer at = 0; at < 1 << ADDRESS_BITS; at = at + 1) content[at] = {word()};"
    text = text.replace(RAM, f"{RAM} = {word()}")
    return text.replace(CONTENT, f"{CONTENT}\n  initial {fill}")


# The node has the engine's modules as well.
@pytest.mark.parametrize("design", [pytest.param("engine", marks=pytest.mark.long), "node"])
def test_every_register_has_an_initial_value_but_what_memories_give(design: str) -> None:
    if design == "engine":
        verilog = engine_verilog.generate(NARROW)
    else:
        verilog = node_verilog.generate_node(NodeParameters(engine=NARROW))
    assert len(BEGUN.findall(verilog)) > 300
    assert without_initial_value(verilog) == []
    # Yosys has others, which nothing writes, for steps that its Verilog does once.
    written = {name for name, index in WRITTEN.findall(verilog) if not index}
    name = random.Random(1).choice([name for name in BEGUN.findall(verilog) if name in written])
    planted = re.sub(rf"^(  reg .*{re.escape(name)}) += .*;$", r"\1;", verilog, flags=re.MULTILINE)
    assert name in without_initial_value(planted)


def compare(one: VerilatedEngine, verilog: str) -> int:
    """Compare an engine with its Verilog, begun with anything, on cases; return their cycles."""
    with VerilatedEngine.from_verilog(with_anything(verilog, seed=1), 32) as other:
        # The first case finds memories as they were at the start: nothing has written them.
        twins: Any = Twins(one, other)
        job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)
        check_cases(twins, build=BUILD, job=job)
        return one.cycles


@pytest.mark.slow
@pytest.mark.long
def test_no_pin_shows_what_has_no_initial_value() -> None:
    with open_engine(32) as engine:
        cycles = compare(engine, engine_verilog.generate(Parameters(bus_bits=32, **BUILD)))
    assert cycles > 20_000


@pytest.mark.slow
@pytest.mark.long
def test_a_block_that_is_added_to_what_was_there_is_found() -> None:
    def adds_always(m: Module, merge: Merge) -> None:
        m.d.sync += merge.fresh2.eq(0)

    verilog = engine_verilog_with(Merge, adds_always, 32, BUILD)
    with VerilatedEngine.from_verilog(verilog, 32) as one, pytest.raises(Difference):
        compare(one, verilog)
