"""The plugin's files: what the shell's build script takes, for each card; wrong wishes."""

from pathlib import Path

import pytest

from afflux_hdl.opennic import __main__ as command
from afflux_hdl.opennic import plugin
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.plugin import instance, write_plugin
from afflux_hdl.vivado.alveo import ALVEO

FILES = {
    "README.md",
    "afflux_box_250mhz.v",
    "box_250mhz/box_250mhz_address_map.v",
    "box_250mhz/box_250mhz_address_map_inst.vh",
    "box_250mhz/box_250mhz_axi_crossbar.tcl",
    "box_250mhz/user_plugin_250mhz_inst.vh",
    "build_box_250mhz.tcl",
    "out_of_context.tcl",
    "out_of_context.xdc",
}


@pytest.fixture(autouse=True)
def _without_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which takes seconds, and is tested in simulation.
    monkeypatch.setattr(plugin, "generate_box", lambda parameters: f"// {parameters}\n")


@pytest.mark.parametrize("board", ALVEO)
def test_every_card_gets_all_files(board: str, tmp_path: Path) -> None:
    command.main(["--board", board, "-o", str(tmp_path)])
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == FILES
    readme = (tmp_path / "README.md").read_text()
    assert f"-board {board} " in readme
    assert "-max_pkt_len 9600 -num_cmac_port 1 -num_phys_func 1 -num_qdma 1" in readme
    assert ALVEO[board].part in (tmp_path / "out_of_context.tcl").read_text()
    # Steps that nobody has run say so.
    for name in FILES - {"afflux_box_250mhz.v"}:
        text = (tmp_path / name).read_text()
        assert "Never run in Vivado" in text or "**Not run:** Vivado" in text, name
    assert str(tmp_path) not in "".join((tmp_path / name).read_text() for name in FILES)


def test_two_ports(tmp_path: Path) -> None:
    command.main(["--board", "au55c", "--ports", "2", "-o", str(tmp_path)])
    readme = (tmp_path / "README.md").read_text()
    assert "-num_cmac_port 2 -num_phys_func 2 -num_qdma 1" in readme
    assert "`tx_frames` of port 1" in readme


def test_the_instance_names_every_pin_of_the_box_once() -> None:
    text = instance(BoxParameters())
    for prefix in ("qdma_h2c", "qdma_c2h", "adap_tx_250mhz", "adap_rx_250mhz"):
        assert text.count(f"_axis_{prefix}_tuser_size(") == 1
    assert "assign mod_rst_done[15:1] = {15{1'b1}};" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--board", "au45n"], "board must be one of au50, .*, not 'au45n'"),
        (["--board", "au50", "--ports", "2"], "au50 has 1 port of 100 Gbit/s, not 2"),
        (["--board", "au280", "--ports", "3"], "ports must be 1 or 2, .* not 3"),
        (["--board", "au280", "--nodes", "2"], r"one for each port \(1\), not 2"),
        (["--board", "au280", "--functions", "9"], r"functions must be .* at most 8, not 9"),
        (["--board", "au280", "--lanes", "17"], "lanes must be 1 to 16, not 17"),
    ],
)
def test_wrong_wishes(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message):
        command.main([*arguments, "-o", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_a_card_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 'nexys'"):
        write_plugin("nexys", BoxParameters(), tmp_path)
