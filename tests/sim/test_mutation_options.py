"""Mutants of options: they are drawn where an option adds something, and nowhere else."""

import re
from pathlib import Path

import pytest

import afflux_hdl
from tests.mutation.battery import option_parameters
from tests.mutation.cell_bits import CellBits
from tests.mutation.mutants import Netlist
from tests.mutation.optional import option_lines, optional_places, port_bits

ENGINE = Path(afflux_hdl.__file__).parent / "engine"


def test_lines_that_only_options_have() -> None:
    lines = {
        f"{path.name}:{n}": text
        for path in ENGINE.glob("*.py")
        for n, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    }
    for where, text in lines.items():
        if re.search(r"m\.d\.(sync|comb) \+= .*net_ports\S*\.eq\(", text):
            assert where in option_lines(), text
    found = {lines[where].strip() for where in option_lines()}
    assert "m.d.sync += self.send.data.eq(rows[self.send.address])" in found
    following = "following = offset + Mux(with_words | with_blocks, walks.advance, 0)"
    assert following in found
    assert not any(
        text.startswith(("raise", "blocks2.eq", "self.o.payload.keep")) for text in found
    )


PORTS = r"""
module \top
  wire width 2 input 1 \rx_net_ports
  wire input 2 \clk
  wire input 3 \other
  wire width 4 \kept
  wire width 2 \chosen
  wire \any
  wire width 2 output 4 \tx_net_ports
  cell $dff $kept
    connect \CLK \clk
    connect \D { \rx_net_ports \other \other }
    connect \Q \kept
  end
  cell $mux $chosen
    connect \A \kept [3:2]
    connect \B 2'01
    connect \S \other
    connect \Y \chosen
  end
  cell $reduce_or $any
    connect \A \chosen
    connect \Y \any
  end
  connect \tx_net_ports \chosen
end
"""


def test_bits_that_carry_ports() -> None:
    found = port_bits(PORTS, CellBits(PORTS))
    expected = {
        f"\\{name} {n}" for name in ("rx_net_ports", "chosen", "tx_net_ports") for n in (0, 1)
    }
    assert found == expected | {"\\kept 2", "\\kept 3", "\\any 0"}


@pytest.mark.long
def test_mutants_are_of_what_options_add(tmp_path: Path) -> None:
    netlist = Netlist(tmp_path, option_parameters(32))
    text, ram = ((tmp_path / name).read_text("utf-8") for name in ("netlist.il", "ram.v"))
    places = optional_places(text, ram)
    assert places.keys() == {
        *("port_table", "engine", "worker_table", "slot_memory", "admit", "receive"),
        *("replies", "transmit", "replicate", "merge"),
    }
    mutants = netlist.draw_at(places, 60, 1)
    assert 50 < len(mutants) < 80
    assert len({(each.cell, each.port, each.bit) for each in mutants}) == len(mutants)
    assert {each.stage for each in mutants} == places.keys()
    assert netlist.draw_at(places, 60, 1) == mutants
