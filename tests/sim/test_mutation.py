"""A small sample of what `make mutation` does, and that it tells good engines from bad ones."""

import re
from pathlib import Path
from typing import cast

import pytest

from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.mutation.battery import parameters, short_battery
from tests.mutation.cell_bits import CellBits
from tests.mutation.equivalence import STATES, Prover
from tests.mutation.judge import Judge
from tests.mutation.mutants import Netlist, allot, changes, stage_of
from tests.mutation.transcript import Recorder
from tests.support.rtlil_text import cut
from tests.support.yosys import run_script

pytestmark = pytest.mark.usefixtures("compiled_yosys")

BUS_BITS = 32


def test_each_stage_gets_its_share() -> None:
    shares = allot({"large": 400, "small": 4, "tiny": 1}, 500)
    assert sum(shares.values()) == pytest.approx(500, rel=0.05)
    assert shares["large"] > 5 * shares["small"] > 5 * shares["tiny"] >= 5 * (500 // 80)


def test_a_cell_belongs_to_a_stage() -> None:
    assert stage_of("$flatten\\engine.\\admit.\\verdict.$12") == "admit"
    assert stage_of("$flatten\\engine.$12") == "engine"
    assert stage_of("engine.slot_state.states") == "slot_state"
    made_anew = "connect \\D \\engine.merge.x\n    connect \\Q \\engine.admit.y [3:0]\n"
    assert stage_of("$auto$ff.cc:337:slice$3", made_anew) == "admit"


NETLIST = r"""
  wire width 4 \level
  wire width 3 input 2 \narrow
  wire \flag
  cell $ne $flatten\engine.$7
    connect \A { \flag \level [2:1] 2'10 }
    connect \B 5'01000
    connect \Y \flag
  end
  cell $mux \engine.named
    connect \A 8'x
    connect \B { \narrow 3'1x0 \level [3] 1'1 }
  end
"""


def test_bits_of_cells() -> None:
    bits = CellBits(NETLIST)
    assert [bits.bit("$flatten\\engine.$7", "A", n) for n in range(5)] == list("01sss")
    assert [bits.bit("$flatten\\engine.$7", "B", n) for n in range(5)] == list("00010")
    assert [bits.bit("engine.named", "A", n) for n in range(8)] == list("xxxxxxxx")
    assert [bits.bit("engine.named", "B", n) for n in range(8)] == list("1s0x1sss")
    with pytest.raises(IndexError):
        bits.bit("engine.named", "A", 8)


@pytest.mark.parametrize(
    ("mutant", "does"),
    [
        ("const0 A 2", True),
        ("const0 A 0", False),
        ("const1 A 0", True),
        ("const1 A 1", False),
        ("inv A 0", True),
        ("cnot0 A 2 -ctrlbit 3", True),
        ("cnot0 A 2 -ctrlbit 0", True),
        ("cnot1 A 2 -ctrlbit 0", False),
        ("cnot0 A 2 -ctrlbit 1", False),
    ],
)
def test_what_changes_nothing_is_no_mutant(mutant: str, does: bool) -> None:
    mode, port, bit, *more = mutant.split()
    line = f"mutate -mode {mode} -cell $flatten\\engine.$7 -port {port} -portbit {bit}"
    assert changes(" ".join([line, *more]), CellBits(NETLIST)) == does


def test_of_what_is_undefined_there_is_no_mutant() -> None:
    line = "mutate -mode inv -cell \\engine.named -port B -portbit 3"
    assert not changes(line, CellBits(NETLIST))


REGISTERED = """
module part(input clk, input [3:0] a, input write, output reg [3:0] held, output at_least_8);
  reg [3:0] content [0:1];
  always @(posedge clk) begin
    if (a[3]) held <= a;
    if (write) content[a[0]] <= a;
  end
  assign at_least_8 = content[held[0]] >= 4'd8;
endmodule
"""


def netlist_of(folder: Path, verilog: str, *steps: str) -> str:
    """Leave a netlist of a part where the prover finds it; return it."""
    (folder / "part.v").write_text(verilog)
    names = "rename -enumerate", "write_rtlil netlist.il"
    run_script(folder, "netlist", "read_verilog part.v", *steps, *names)
    return (folder / "netlist.il").read_text()


def test_proofs_of_equivalence(tmp_path: Path) -> None:
    """Of what cannot matter it is proved that it does not, of what can it is not."""
    text = netlist_of(tmp_path, REGISTERED, "proc", "opt", "memory_collect")
    (compare,) = re.findall(r"^  cell \$ge (\S+)$", text, re.M)
    (memory,) = re.findall(r"^  cell \$mem_v2 (\S+)$", text, re.M)

    def mutant(cell: str, port: str, bit: int) -> str:
        name = cell.removeprefix("\\")
        return f"mutate -mode inv -module part -cell {name} -port {port} -portbit {bit}"

    commands = [
        *(mutant(compare, "A", bit) for bit in range(4)),
        mutant(memory, "WR_DATA", 0),
        mutant(memory, "WR_EN", 0),
        mutant(memory, "WR_DATA", 3),
    ]
    prover = Prover(tmp_path, commands)
    # 8 to 15 differ from 0 to 7 by bit 3 alone, so that the others may be stored wrong, too.
    same = [prover.compare(number).same for number in range(1, len(commands) + 1)]
    assert same == [True, True, True, False, True, True, False]


BOUNDED = """
module part(input clk, input step, output high, output reg [2:0] level);
  initial level = 0;
  always @(posedge clk) if (step) level <= level == 3'd4 ? 3'd0 : level + 3'd1;
  assign high = level >= 3'd6;
endmodule
"""


def test_proofs_know_what_can_be_reached(tmp_path: Path) -> None:
    """A comparison that is wrong only for numbers that never occur counts as the same."""
    text = netlist_of(tmp_path, BOUNDED, "proc", "opt_clean")
    (compare,) = re.findall(r"^  cell \$ge (\S+)$", text, re.M)
    commands = [
        f"mutate -mode {mode} -module part -cell {compare} -port A -portbit {bit}"
        for mode, bit in (("const0", 1), ("inv", 0), ("const1", 1), ("inv", 2))
    ]
    prover = Prover(tmp_path, commands)
    assert "level <= 4" in prover.invariants
    same = [prover.compare(number).same for number in range(1, len(commands) + 1)]
    assert same == [True, True, False, False]


RECODED = """
module part(input clk, input wait_, output reg down);
  reg [3:0] waited;
  initial {down, waited} = 0;
  always @(posedge clk)
    if (!wait_) {down, waited} <= 0;
    else if (waited == 15) down <= 1;
    else waited <= waited + 4'd1;
endmodule
"""


def test_proofs_know_other_codes(tmp_path: Path) -> None:
    """A counter may count in another code, if it gets to its end in the same cycle."""
    text = netlist_of(tmp_path, RECODED, "proc", "opt")
    cells = re.findall(r"^  cell \$\w*dff\w* (\S+)$(.*?)^  end$", text, re.M | re.S)
    (counter,) = [name for name, body in cells if "waited" in body]

    def inverted(bit: int, mode: str = "inv") -> str:
        return f"mutate -mode {mode} -module part -cell {counter} -port Q -portbit {bit}"

    # While bit 0 is 1 bit 3 is right; the end is odd. A lowest bit that is wrong is always wrong.
    commands = [inverted(3), inverted(3, "cnot0 -ctrlbit 1"), inverted(3, "cnot1 -ctrlbit 1")]
    commands.append(inverted(0))
    prover = Prover(tmp_path, commands)
    same = [prover.compare(number).same for number in range(1, len(commands) + 1)]
    assert same == [True, True, True, False]


def test_a_cell_with_a_state_that_is_not_known_is_not_cut() -> None:
    with pytest.raises(ValueError, match="dlatch"):
        cut("module \\part\n  cell $dlatch $1\n    connect \\Q \\q\n  end\nend\n", "gold", STATES)


def test_a_check_may_add_to_the_frames_that_it_gets() -> None:
    """A recorded answer stays as the engine has given it."""

    class Answering:
        cycles = 0

        def play(self, *_: object) -> list[bytes]:
            return [b"answer"]

    recorder = Recorder(cast(VerilatedEngine, Answering()))
    sent = recorder.play([])
    sent += [b"more"]
    assert recorder.transcript.first_difference(cast(VerilatedEngine, Answering())) is None


@pytest.mark.slow
def test_a_sample_of_mutants(tmp_path: Path) -> None:
    netlist = Netlist(tmp_path, parameters(BUS_BITS))
    drawn = netlist.draw(8, seed=4)
    # The round of a slot that is never written right: nothing works.
    fatal = netlist.mutant(len(drawn) + 1, "inv", "engine.slot_state.states", "WR_DATA", 0)
    mutants = [*drawn, fatal]
    verilog = netlist.verilog(mutants)
    library = build_library(find_toolchain(), default_folder(), verilog, BUS_BITS)
    # Raises if mutant 0, the engine as it is, does not pass.
    judge = Judge(library, short_battery(BUS_BITS))
    assert not judge.judge(0).caught
    verdicts = dict(judge.judge_all([mutant.number for mutant in mutants], jobs=2))
    assert verdicts[fatal.number].how == "answer"
    survivors = [str(mutant) for mutant in mutants if not verdicts[mutant.number].caught]
    print("\n".join(survivors))
    assert len(survivors) <= len(mutants) // 4, survivors
