"""Mutants of addresses and indices: where they are, and that a filled engine notices them."""

import re
from functools import partial
from pathlib import Path

import pytest

from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from tests.checks.edge_checks import check_edges
from tests.mutation.battery import Trial
from tests.mutation.cell_bits import CellBits
from tests.mutation.index_bits import address_bits, index_bits, index_places
from tests.mutation.judge import Judge
from tests.mutation.mutants import Netlist
from tests.mutation.sizes import shipped_parameters
from tests.scenarios.shipped_builds import build_of
from tests.support.yosys import run_script

pytestmark = pytest.mark.usefixtures("compiled_yosys")

BUS_BITS = 32

TABLE = """
module table_(
  input clk, input [3:0] value, input [1:0] base, input [1:0] slot, input [1:0] other, input own,
  output reg [3:0] found, output first
);
  reg [3:0] content [0:3];
  reg [1:0] at;
  assign first = at == 2'd0;
  always @(posedge clk) begin
    at <= own ? base + slot : other;
    content[at] <= value;
    found <= content[at];
  end
endmodule
"""


def test_bits_that_become_addresses(tmp_path: Path) -> None:
    """Followed back through registers, multiplexers and additions; data are no addresses."""
    (tmp_path / "table.v").write_text(TABLE)
    steps = "read_verilog table.v", "proc", "opt", "memory_collect", "opt_clean -purge"
    run_script(tmp_path, "netlist", *steps, "write_rtlil netlist.il")
    text = (tmp_path / "netlist.il").read_text()
    named = {bit for bit in index_bits(text, CellBits(text)) if bit.startswith("\\")}
    assert named == {f"\\{name} {n}" for name in ("at", "base", "slot", "other") for n in (0, 1)}
    places = [place for found in index_places(text).values() for place in found]
    # As an operand of the comparison it is one too.
    (compare,) = re.findall(r"^  cell \$(?:eq|logic_not) (\S+)$", text, re.M)
    assert {place.bit for place in places if place.name == compare} == {0, 1}
    ((memory, bit, ports), (_, upper, _)) = address_bits(text)
    assert "content" in memory
    assert (bit, upper) == (0, 1)
    assert sorted(ports) == [("RD_ADDR", 0), ("WR_ADDR", 0)]


NOT_OF_SIZES = ("fifo.", "counters.", "receive.", "scheduler.")
"""Parts of the names of memories that are as large in every build, or have no slots, jobs or
workers; and of the one that says who goes first, and is for `check_turns`."""


@pytest.mark.slow
@pytest.mark.long
def test_words_of_one_half_of_a_memory_in_the_other(tmp_path: Path) -> None:
    """Of the largest engine with 32 bits: each table loses the uppermost bit of its address."""
    parameters = shipped_parameters(BUS_BITS)
    netlist = Netlist(tmp_path, parameters)
    text = (tmp_path / "netlist.il").read_text(encoding="utf-8")
    upper = {
        memory: (memory, bit, ports)
        for memory, bit, ports in address_bits(text)
        if not any(part in memory for part in NOT_OF_SIZES)
    }
    mutants = [netlist.aliased(number, *place) for number, place in enumerate(upper.values(), 1)]
    assert {mutant.stage for mutant in mutants} == {
        *("slot_memory", "slot_state", "worker_table", "route_table", "delivery_queue", "control")
    }
    verilog = netlist.verilog(mutants)
    library = build_library(find_toolchain(), default_folder(), verilog, BUS_BITS)
    # Raises if mutant 0, the engine as it is, does not pass.
    judge = Judge(library, [Trial("edges", partial(check_edges, build=build_of(parameters)))])
    verdicts = dict(judge.judge_all([mutant.number for mutant in mutants], jobs=1))
    assert [str(each) for each in mutants if not verdicts[each.number].caught] == []
