"""Writing the Verilog out: the command line, and the names that others connect to."""

import re
from pathlib import Path

import pytest

from afflux_hdl.engine import verilog

PORTS = {
    "clk": 1,
    "rst": 1,
    "rx_data": 32,
    "rx_keep": 4,
    "rx_last": 1,
    "rx_error": 1,
    "rx_valid": 1,
    "rx_ready": 1,
    "tx_data": 32,
    "tx_keep": 4,
    "tx_last": 1,
    "tx_error": 1,
    "tx_valid": 1,
    "tx_ready": 1,
    "reg_address": 12,
    "reg_write_data": 32,
    "reg_write": 1,
    "reg_read_data": 32,
    "reg_refused": 1,
    "idle": 1,
}


def test_ports_have_plain_names(tmp_path: Path) -> None:
    verilog.main(
        ["-o", str(tmp_path), "--bus-bits", "32", "--workers", "2", "--slots", "2", "--jobs", "1"]
    )
    text = (tmp_path / "afflux_engine.v").read_text()
    assert "src =" not in text, "a path of the machine that generates it"
    top = text[text.index("\nmodule afflux_engine(") :]
    top = top[: top.index("\nendmodule")]
    declared = re.findall(r"^  (?:input|output)\s+(?:\[(\d+):0\] )?(\w+);", top, re.MULTILINE)
    assert {name: int(high or 0) + 1 for high, name in declared} == PORTS


def test_a_bad_parameter_ends_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"slots .* 7"):
        verilog.main(["-o", str(tmp_path), "--slots", "7"])
