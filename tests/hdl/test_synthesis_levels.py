"""Levels of small netlists whose depth is known."""

from typing import Any

import pytest

from afflux_hdl.synthesis.levels import Levels
from afflux_hdl.synthesis.netlist import Netlist

OUTPUTS = {
    "FDRE": {"Q"},
    "CARRY4": {"O", "CO"},
    "RAM64M8": {"DOA", "DOB"},
    "RAM256X1D": {"SPO", "DPO"},
    "RAMB36E2": {"DOUTADOUT"},
    "SRL16E": {"Q"},
    "FOO": {"O"},
}


class Drawing:
    """Draws a netlist in the form that Yosys writes."""

    def __init__(self) -> None:
        self._bits = 2
        self._cells: dict[str, Any] = {}
        self._names: dict[str, Any] = {}
        self._ports: dict[str, Any] = {}

    def net(self, name: str = "") -> int:
        self._bits += 1
        if name:
            self._names[name] = {"bits": [self._bits], "hide_name": 0, "attributes": {}}
        return self._bits

    def port(self, name: str, direction: str, net: int) -> None:
        self._ports[name] = {"direction": direction, "bits": [net]}

    def cell(self, kind: str, name: str = "", source: str = "", **ports: int | str | list) -> None:
        outputs = OUTPUTS.get(kind, {"O"})
        self._cells[name or f"${len(self._cells)}"] = {
            "type": kind,
            "attributes": {"src": source},
            "port_directions": {p: "output" if p in outputs else "input" for p in ports},
            "connections": {p: n if isinstance(n, list) else [n] for p, n in ports.items()},
        }

    def scope(self, path: str, first: int, last: int) -> None:
        self._cells[path] = {
            "type": "$scopeinfo",
            "attributes": {"module": path, "module_src": f"a.v:{first}.1-{last}.10"},
            "connections": {},
            "port_directions": {},
        }

    def register(self, d: int | str, name: str = "", **more: int | str) -> int:
        q = self.net(name)
        self.cell("FDRE", D=d, Q=q, C=1, CE=more.get("CE", "1"), R=more.get("R", "0"))
        return q

    def lut(self, *inputs: int) -> int:
        o = self.net()
        ports: dict[str, Any] = {f"I{n}": net for n, net in enumerate(inputs)}
        self.cell(f"LUT{len(inputs)}", O=o, **ports)
        return o

    def carry(self, below: int | str, s: list, di: list) -> tuple[list[int], list[int]]:
        o, co = [self.net() for _ in range(4)], [self.net() for _ in range(4)]
        self.cell("CARRY4", CI=below, CYINIT="0", S=s, DI=di, O=o, CO=co)
        return o, co

    def levels(self, within: str = "") -> Levels:
        content = {"cells": self._cells, "netnames": self._names, "ports": self._ports}
        return Levels(Netlist.parse({"modules": {"m": content}}, "m"), within)


def test_registers_side_by_side_have_no_level() -> None:
    d = Drawing()
    d.register(d.register("0"))
    assert d.levels().worst == 0


def test_each_lut_is_a_level_and_registers_end_the_path() -> None:
    d = Drawing()
    q = d.register(d.lut(d.lut(d.lut(d.register("0")))))
    d.register(d.lut(q))
    assert d.levels().histogram() == {1: 1, 3: 1}


def test_the_longest_of_several_inputs_counts() -> None:
    d = Drawing()
    q = d.register("0")
    d.register(d.lut(q, d.lut(d.lut(q)), d.lut(q)))
    assert d.levels().worst == 3


@pytest.mark.parametrize("port", ["CE", "R"])
def test_enable_and_reset_are_ends(port: str) -> None:
    d = Drawing()
    d.register("0", name="", **{port: d.lut(d.register("0"))})
    assert d.levels().worst == 1


def test_the_clock_is_no_end() -> None:
    d = Drawing()
    d.cell("FDRE", D="0", Q=d.net(), C=d.lut(d.lut(d.register("0"))), CE="1", R="0")
    assert d.levels().worst == 0


def test_multiplexers_beside_luts_are_no_level() -> None:
    d = Drawing()
    q, o = d.register("0"), d.net()
    d.cell("MUXF7", I0=d.lut(q), I1=d.lut(q), S=q, O=o)
    d.register(o)
    assert d.levels().worst == 1


def test_a_carry_chain_is_one_level_however_long() -> None:
    """LUTs make the propagate bits: an adder is two levels, of 4 bits or of 12."""
    d = Drawing()
    q = d.register("0")
    carry: int | str = "0"
    for _ in range(3):
        s = [d.lut(q) for _ in range(4)]
        o, co = d.carry(carry, s, [q] * 4)
        carry = co[3]
    d.register(o[3])
    assert d.levels().worst == 2
    d.register(d.lut(o[3]))
    assert d.levels().worst == 3


def test_a_chain_that_starts_at_anothers_sum_is_a_level_more() -> None:
    d = Drawing()
    q = d.register("0")
    o, _ = d.carry("0", [q] * 4, [q] * 4)
    o, _ = d.carry("0", [o[3]] * 4, [q] * 4)
    d.register(o[0])
    assert d.levels().worst == 2


def test_a_chain_that_starts_at_anothers_carry_through_its_foot_goes_on() -> None:
    d = Drawing()
    q = d.register("0")
    _, co = d.carry("0", [q] * 4, [q] * 4)
    through_select, _ = d.carry("0", [co[3], "0", "0", "0"], [q] * 4)
    through_carry, _ = d.carry(co[3], ["0"] * 4, ["0"] * 4)
    d.register(through_carry[0])
    assert d.levels().worst == 1
    d.register(through_select[0])
    assert d.levels().worst == 2


def test_an_upper_select_does_not_reach_a_lower_sum() -> None:
    d = Drawing()
    q = d.register("0")
    o, _ = d.carry("0", ["0", "0", "0", d.lut(d.lut(q))], ["0", "0", "0", q])
    d.register(o[2])
    assert d.levels().worst == 0
    d.register(o[3])
    assert d.levels().worst == 3


def test_memories_of_luts_are_a_level_when_read_and_an_end_when_written() -> None:
    d = Drawing()
    q, a, b = d.register("0"), d.net(), d.net()
    deep = d.lut(d.lut(d.lut(q)))
    d.cell("RAM64M8", ADDRA=d.lut(q), ADDRB=q, ADDRH=q, DIA=deep, DOA=a, DOB=b, WCLK=1, WE=q)
    d.register(b)
    assert d.levels().histogram() == {0: 2, 1: 1, 3: 1}
    d.register(a)
    assert d.levels().histogram() == {0: 2, 1: 1, 2: 1, 3: 1}


def test_each_port_of_a_memory_of_luts_follows_its_own_address() -> None:
    d = Drawing()
    q, spo, dpo = d.register("0"), d.net(), d.net()
    ports: dict[str, Any] = {"A": d.lut(d.lut(q)), "DPRA": d.lut(q), "SPO": spo, "DPO": dpo}
    d.cell("RAM256X1D", D=q, WCLK=1, WE=q, **ports)
    d.register(dpo)
    # A is the address of the write, too.
    assert d.levels().histogram() == {0: 2, 2: 2}
    d.register(spo)
    assert d.levels().histogram() == {0: 2, 2: 2, 3: 1}


def test_block_ram_ends_and_starts_paths() -> None:
    d = Drawing()
    q, o = d.register("0"), d.net()
    address = d.lut(d.lut(q))
    d.cell("RAMB36E2", ADDRARDADDR=address, CLKARDCLK=1, DOUTADOUT=o)
    d.register(d.lut(o))
    assert d.levels().histogram() == {1: 1, 2: 1}


def test_the_tap_of_a_shift_register_is_a_level() -> None:
    d = Drawing()
    q, o = d.register("0"), d.net()
    d.cell("SRL16E", D=d.lut(q), A0=d.lut(q), CE="1", CLK=1, Q=o)
    d.register(o)
    assert d.levels().histogram() == {1: 1, 2: 1}


def test_ports_are_ends() -> None:
    d = Drawing()
    i = d.net("i")
    d.port("i", "input", i)
    d.port("o", "output", d.lut(d.lut(i)))
    (path,) = d.levels().paths(least=1)
    assert (path.levels, path.start, path.end, path.stage) == (2, "i", "o", "pins")


def test_a_path_tells_its_stages_and_registers() -> None:
    """The stage is that of the module in whose lines the register was written."""
    d = Drawing()
    d.scope("top.first", 10, 19)
    d.scope("top.second", 20, 29)
    a, b = d.net("top.first.out"), d.net("top.second.flag")
    d.cell("FDRE", source="a.v:12.3-14.6", D="0", Q=a, C=1, CE="1", R="0")
    d.cell("FDRE", source="a.v:22.3-22.9|b.v:1.1-1.2", D=d.lut(a), Q=b, C=1, CE="1", R="0")
    levels = d.levels(within="top")
    (path,) = levels.paths(least=1)
    assert (path.start, path.end) == ("top.first.out", "top.second.flag")
    assert (path.start_stage, path.stage, path.through) == ("first", "second", ("LUT1",))
    assert {stage: worst.levels for stage, worst in levels.stages().items()} == {"second": 1}


def test_a_loop_without_a_register_is_an_error() -> None:
    d = Drawing()
    a, b = d.net(), d.net()
    d.cell("LUT1", I0=a, O=b)
    d.cell("LUT1", I0=b, O=a)
    with pytest.raises(ValueError, match="loop"):
        d.levels()


def test_an_unknown_primitive_is_an_error() -> None:
    d = Drawing()
    d.cell("FOO", I=d.register("0"), O=d.net())
    with pytest.raises(ValueError, match="FOO"):
        d.levels()
