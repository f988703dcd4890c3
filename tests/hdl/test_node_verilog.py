"""Writing the node's Verilog out: the command line, and the names that others connect to."""

import re
from pathlib import Path

import pytest

from afflux_hdl.node import verilog as node_verilog

STREAM = {"data": 32, "keep": 4, "last": 1, "error": 1, "valid": 1, "ready": 1}
PORTS = {
    "clk": 1,
    "rst": 1,
    "idle": 1,
    **{f"{name}_{pin}": width for name in ("net_rx", "net_tx") for pin, width in STREAM.items()},
    **{f"{name}_{pin}": width for name in ("host_rx", "host_tx") for pin, width in STREAM.items()},
    **{f"s_axil_a{way}{pin}": 1 for way in "wr" for pin in ("valid", "ready")},
    **{f"s_axil_{way}{pin}": 1 for way in "wbr" for pin in ("valid", "ready")},
    **{f"s_axil_a{way}{pin}": width for way in "wr" for pin, width in (("addr", 12), ("prot", 3))},
    "s_axil_wdata": 32,
    "s_axil_wstrb": 4,
    "s_axil_bresp": 2,
    "s_axil_rdata": 32,
    "s_axil_rresp": 2,
}


def test_ports_have_plain_names(tmp_path: Path) -> None:
    sizes = ["--bus-bits", "32", "--workers", "2", "--slots", "2", "--jobs", "1", "--lanes", "1"]
    node_verilog.main(["-o", str(tmp_path), *sizes])
    text = (tmp_path / "afflux_node.v").read_text()
    assert "src =" not in text, "a path of the machine that generates it"
    top = text[text.index("\nmodule afflux_node(") :]
    top = top[: top.index("\nendmodule")]
    declared = re.findall(r"^  (?:input|output)\s+(?:\[(\d+):0\] )?(\w+);", top, re.MULTILINE)
    assert {name: int(high or 0) + 1 for high, name in declared} == PORTS


@pytest.mark.parametrize("option", ["slots", "host-buffer-bytes"])
def test_a_bad_parameter_ends_with_its_name(option: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=rf"{option.replace('-', '_')} .* 7"):
        node_verilog.main(["-o", str(tmp_path), f"--{option}", "7"])
