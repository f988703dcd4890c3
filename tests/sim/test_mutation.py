"""A small sample of what ``make mutation`` does, and that it tells good engines from bad ones."""

from pathlib import Path

import pytest
from tests.mutation.battery import parameters, short_battery
from tests.mutation.judge import Judge
from tests.mutation.mutants import Netlist, allot, stage_of

from afflux_sim.build_cache import default_folder
from afflux_sim.toolchain import find_toolchain
from afflux_sim.verilator_build import build_library

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


@pytest.mark.slow
def test_a_sample_of_mutants(tmp_path: Path) -> None:
    netlist = Netlist(tmp_path, parameters(BUS_BITS))
    drawn = netlist.draw(24, seed=4)
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
