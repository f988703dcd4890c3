"""The flow's own parts: constraints, script, what is kept of nextpnr's report, and the report.

A netlist of a small board is made, too; whole bitstreams are made by `make bitstream`.
"""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afflux_hdl.boards import __main__ as command
from afflux_hdl.boards import flow
from afflux_hdl.boards.figures import summary, use_by_part
from afflux_hdl.boards.flow import Flow, constraints, script, verilog_of
from afflux_hdl.boards.placed_settings import PLACEHOLDER
from afflux_hdl.boards.report import clocks_of, crossings_of, missed, report
from afflux_hdl.boards.table import BOARDS
from afflux_hdl.opennic.__main__ import main as write_box
from afflux_hdl.synthesis import tools
from afflux_hdl.synthesis.netlist import Cell, Netlist, Scope
from afflux_hdl.synthesis.tools import ToolError

CELLS = {"TRELLIS_COMB": 20_000, "TRELLIS_FF": 15_000, "DP16KD": 50}


def placed(crossing_ns: float = 1.4, **fmax_mhz: float) -> dict[str, Any]:
    """Return a report as nextpnr writes it."""
    nets = {"sync": "clk", "rx": "port.mac.widen.rx_clk", "tx": "port.mac.narrow.tx_clk"}
    nets["osc"] = "locked.osc_clk"
    clocks = {"sync": 50.0, "rx": 125.0, "tx": 125.0, "osc": 77.5}
    ends = [
        ("clk", "clk", 16.0),
        ("clk", nets["tx"], 12.5),
        (nets["rx"], "clk", crossing_ns),
        ("clk", "<async>", 30.0),
        ("<async>", nets["rx"], 30.0),
    ]
    return {
        "critical_paths": [
            {
                "from": start if start[0] == "<" else f"posedge {start}",
                "to": end if end[0] == "<" else f"posedge {end}",
                "path": [{"delay": 0.5}, {"delay": delay_ns - 0.5}],
            }
            for start, end, delay_ns in ends
        ],
        "fmax": {
            f"$glbnet${nets[name]}": {
                "achieved": fmax_mhz.get(name, 2 * clocks[name]),
                "constraint": clocks[name],
            }
            for name in nets
        },
        "utilization": {
            name: {"used": used, "available": 2 * used} for name, used in CELLS.items()
        },
    }


def entry(**seeds: dict[str, float]) -> dict[str, Any]:
    return {
        "device": "LFE5U-25F-6CABGA256",
        "seeds": {
            name.removeprefix("seed"): summary(placed(**fmax)) for name, fmax in seeds.items()
        },
        "seed_in_bitstream": 1,
    }


def test_constraints_name_every_pin_once_and_both_clocks() -> None:
    text = constraints(BOARDS["ecpix5-85f"])
    assert text.count("LOCATE COMP") == text.count("IOBUF PORT") == 18
    assert 'LOCATE COMP "rgmii_tx_data[3]" SITE "A8";' in text
    assert 'IOBUF PORT "rgmii_rx_data[0]" IO_TYPE=LVCMOS33 PULLMODE=UP;' in text
    assert 'FREQUENCY PORT "clock" 100 MHZ;' in text
    assert 'FREQUENCY PORT "rgmii_rx_clk" 125 MHZ;' in text


def test_a_second_port_has_a_clock_of_its_own() -> None:
    text = constraints(BOARDS["versa-ecp5"], 2)
    assert 'FREQUENCY PORT "rgmii_rx_clk" 125 MHZ;' in text
    assert 'FREQUENCY PORT "rgmii_rx_clk_1" 125 MHZ;' in text
    assert 'LOCATE COMP "rgmii_rx_clk_1" SITE "J19";' in text
    document = placed()
    with pytest.raises(ValueError, match="nextpnr reports clocks of"):
        summary(document, 2)
    second = {"achieved": 124.0, "constraint": 125.0}
    document["fmax"]["$glbnet$port.mac_1.widen.rx_1_clk"] = second
    assert missed({"seeds": {"1": summary(document, 2)}, "seed_in_bitstream": 1}) == ["rx_1"]
    with pytest.raises(ValueError, match="nextpnr reports clocks of"):
        summary(document)


def test_a_build_for_two_ports_is_beside_the_one_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = BOARDS["versa-ecp5"]
    assert command.name_of(board, board.node) == "versa-ecp5"
    both = replace(board.node, engine=replace(board.engine, ports=2))
    assert command.name_of(board, both) == "versa-ecp5-2-ports"
    assert board.clock_mhz(2) == 62.5
    arguments = ["--output", str(tmp_path / "out"), "--figures", str(tmp_path / "figures")]
    small = BOARDS["colorlight-5a-75b"]
    assert [small.engine_at(ports).slots for ports in (1, 2)] == [8, 4]
    assert small.engine_at(2, slots=2, lanes=3) == replace(small.engine, ports=2, slots=2, lanes=3)
    assert command.main(["ecpix5-45f", "--ports", "2", *arguments]) == 2
    assert "ecpix5-45f has 1 network port: ports cannot be 2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_packed_seed_counts_and_every_clock_needs_its_margin() -> None:
    good = entry(seed1={"sync": 55.1, "rx": 137.6}, seed2={"sync": 54.0, "rx": 137.4})
    assert clocks_of(good)["sync"]["fmax_mhz"] == 55.1
    assert clocks_of(good)["rx"]["fmax_mhz"] == 137.6
    assert missed(good) == []
    assert missed(good | {"seed_in_bitstream": 2}) == ["sync", "rx"]
    assert missed(entry(seed1={"tx": 137.4})) == ["tx"]


def test_counts_that_cross_may_take_no_cycle_of_their_clock() -> None:
    good = entry(seed1={"crossing_ns": 8.0}, seed2={})
    assert missed(good) == []
    assert crossings_of(good) == {
        "rx to sync": {"delay_ns": 8.0, "most_ns": 8.0},
        "sync to tx": {"delay_ns": 12.5, "most_ns": 20.0},
    }
    bad = entry(seed1={"crossing_ns": 8.1}, seed2={})
    assert missed(bad) == ["rx to sync"]
    board = BOARDS["colorlight-5a-75b"]
    text = report(board, board.node, PLACEHOLDER, bad)
    assert "rx to sync     8.10 of 8.00 ns  MISSED\n  sync to tx    12.50 of 20.00 ns\n" in text


def test_a_clock_that_has_another_name_now_is_an_error() -> None:
    document = placed()
    document["fmax"]["$glbnet$other"] = document["fmax"].pop("$glbnet$clk")
    with pytest.raises(ValueError, match=r"clocks of \['osc', 'rx', 'tx'\], not of"):
        summary(document)


def test_use_counts_where_a_signal_or_a_memory_has_its_name() -> None:
    def cell(kind: str, name: str, *nets: int) -> Cell:
        return Cell(name=name, type=kind, inputs={}, outputs={"Z": nets})

    netlist = Netlist(
        cells=(
            cell("LUT4", "$a", 1),
            cell("LUT4", "$b", 2),
            cell("CCU2C", "$c", 3, 4),
            cell("TRELLIS_FF", "$d", 2),
            cell("DP16KD", "top.ram.content.0.0", 5),
            cell("TRELLIS_DPR16X4", "top.part.store.0.0", 6),
            cell("LUT4", "$e", 7),
            cell("EHXPLLL", "pll", 8),
        ),
        scopes=tuple(Scope(path, "", "", 0, 0) for path in ("top", "top.part", "top.ram")),
        names={
            1: ("x", "top.part.x"),
            2: ("top.y",),
            3: ("top.part.sum",),
            5: ("top.part.read",),
            6: ("top.z",),
        },
        inputs={},
        outputs={},
    )
    assert use_by_part(netlist) == {
        "": {"lut4": 11, "ff": 1, "ebr": 1},
        "top": {"lut4": 10, "ff": 1, "ebr": 1},
        "top.part": {"lut4": 9, "ff": 0, "ebr": 0},
        "top.ram": {"lut4": 0, "ff": 0, "ebr": 1},
    }


def test_the_report_has_slack_use_and_sizes_and_not_the_key() -> None:
    board = BOARDS["colorlight-5a-75b"]
    text = report(board, board.node, PLACEHOLDER, entry(seed1={"sync": 52.0}))
    assert "sync    50.00 MHz, could be   52.00  slack   0.77 of 20.00 ns  x 1.04  MISSED" in text
    assert "lut4   20,000 of  40,000   50.0%" in text
    assert "frames of up to 1160 bytes" in text
    assert "  address 192.0.2.9, MAC 02:af:f1:0c:00:01, name 'placeholder'\n" in text
    assert PLACEHOLDER.key.hex() not in text and str(PLACEHOLDER.key) not in text


def test_of_several_seeds_the_one_with_most_to_spare_is_taken() -> None:
    seeds = entry(seed1={"sync": 60.0, "rx": 138.0}, seed2={"sync": 56.0, "rx": 160.0})["seeds"]
    assert command._best(seeds) == 2
    # A crossing that is missed is no better than a clock that is.
    seeds = entry(seed1={"crossing_ns": 8.1}, seed2={"sync": 55.1})["seeds"]
    assert command._best(seeds) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ecpix6"], "error: no board is called 'ecpix6'"),
        (["ecpix5-85f", "--seeds", "0"], "error: --seeds must be at least 1, not 0"),
        (["ecpix5-85f", "--slots", "12"], "error: slots must be a power of two"),
        (["ecpix5-85f", "--address", "10.0.0"], "error: address must be an IPv4 address"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_built(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--output", str(tmp_path / "out"), "--figures", str(tmp_path / "figures.json")]
    assert command.main([*words, *folders]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "figures.json").exists()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)  # The first call on a machine compiles Yosys.
@pytest.mark.usefixtures("compiled_yosys")
@pytest.mark.parametrize("ports", [1, 2])
def test_a_small_netlist_has_its_memories_and_registers_under_their_names(
    ports: int, tmp_path: Path
) -> None:
    board = BOARDS["colorlight-5a-75b"]
    small = replace(board.engine, workers=1, lanes=1, jobs=1, slots=2, ports=ports)
    (tmp_path / "board.v").write_text(verilog_of(board, replace(board.node, engine=small)))
    tools.run_yosys(script(only_check=True, ports=ports), tmp_path, "check", lambda text: None)
    cells = json.loads((tmp_path / "board_cells.json").read_text())["design"]["num_cells_by_type"]
    assert (cells["EHXPLLL"], cells["IDDRX1F"], cells["ODDRX1F"]) == (1, 5 * ports, 6 * ports)


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_with_the_key_is_for_others(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packer sees the settings in a file of mode 600, which is gone afterwards."""
    board = BOARDS["colorlight-5a-75b"]
    made = Flow(board=board, node=board.node, folder=tmp_path, progress=lambda text: None)
    made.work.mkdir()
    (made.work / "placed_1.config").write_text("no block RAM here")
    monkeypatch.setattr(
        flow, "patched", lambda text, contents, before=None: contents.settings.key.hex()
    )

    def pack(arguments: list[str], folder: Path, name: str, progress: Any) -> None:
        given = folder / arguments[arguments.index("--input") + 1]
        assert given.read_text() == PLACEHOLDER.key.hex()
        assert stat.S_IMODE(given.stat().st_mode) == 0o600
        if fails:
            raise ToolError("wrong")
        for option in ("--bit", "--svf"):
            (folder / arguments[arguments.index(option) + 1]).write_text("with the key")

    def unpack(arguments: list[str], folder: Path, name: str, progress: Any) -> None:
        given = folder / arguments[arguments.index("--textcfg") + 1]
        assert stat.S_IMODE(given.stat().st_mode) == 0o600

    monkeypatch.setattr(flow, "run_ecppack", pack)
    monkeypatch.setattr(flow, "run_ecpunpack", unpack)
    if fails:
        with pytest.raises(ToolError):
            made.pack(1, PLACEHOLDER, board.name)
        kept = []
    else:
        kept = [str(path.relative_to(tmp_path)) for path in made.pack(1, PLACEHOLDER, board.name)]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    with_key = [path for path in files if path.read_text() == "with the key"]
    assert sorted(str(path.relative_to(tmp_path)) for path in with_key) == sorted(kept)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in with_key)
    assert not list(made.work.glob("*settings.config")) + list(made.work.glob("unpacked*"))


def test_a_tool_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "ECPPACK", "yowasp-ecppack-of-another-name")
    with pytest.raises(ToolError, match="yowasp-ecppack-of-another-name is not installed"):
        tools.run_ecppack([], tmp_path, "pack", print)


@pytest.fixture
def tools_that_copy(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have the netlist be the Verilog, and what is placed the netlist; count the runs."""
    seen: dict[str, Any] = {"yosys": 0, "nextpnr": 0, "ends": False}

    def yosys(_script: str, folder: Path, name: str, _progress: Any) -> None:
        seen["yosys"] += 1
        (folder / f"{name}.json").write_text((folder / f"{name}.v").read_text())
        if seen["ends"]:
            raise KeyboardInterrupt

    def nextpnr(arguments: list[str], folder: Path, name: str, *_: Any) -> None:
        seen["nextpnr"] += 1
        (folder / f"{name}.config").write_text((folder / "board.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps(placed()))

    monkeypatch.setattr(flow, "verilog_of", lambda board, node: f"{node.engine.workers} workers")
    monkeypatch.setattr(flow, "run_yosys", yosys)
    monkeypatch.setattr(flow, "run_nextpnr", nextpnr)
    return seen


def sized(folder: Path, workers: int) -> Flow:
    board = BOARDS["ecpix5-45f"]
    node = replace(board.node, engine=replace(board.engine, workers=workers))
    return Flow(board=board, node=node, folder=folder, progress=lambda _: None)


def test_a_run_that_was_ended_is_not_taken_for_the_one_before(
    tmp_path: Path, tools_that_copy: dict[str, Any]
) -> None:
    """Eight workers, then Ctrl-C in the synthesis of four, then eight again."""
    sized(tmp_path, 8).synthesise()
    sized(tmp_path, 8).place(1)
    tools_that_copy["ends"] = True
    with pytest.raises(KeyboardInterrupt):
        sized(tmp_path, 4).synthesise()
    tools_that_copy["ends"] = False
    again = sized(tmp_path, 8)
    again.synthesise()
    for seed in (1, 2):
        again.place(seed)
        assert (again.work / f"placed_{seed}.config").read_text() == "8 workers"
    # A finished step is not done again.
    runs = dict(tools_that_copy)
    again.synthesise()
    again.place(2)
    assert tools_that_copy == runs


def test_seeds_of_an_earlier_command_do_not_count(
    tmp_path: Path, tools_that_copy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third is the best: after `--seeds 3` a command for one gives what it would alone."""
    engines = {1: 75.0, 2: 70.0, 3: 80.0}
    packed = []

    def nextpnr(arguments: list[str], folder: Path, name: str, *_: Any) -> None:
        seed = int(arguments[arguments.index("--seed") + 1])
        (folder / f"{name}.config").write_text(name)
        (folder / f"{name}.json").write_text(json.dumps(placed(sync=engines[seed])))

    def pack(self: Flow, seed: int, _settings: Any, name: str) -> tuple[Path, Path]:
        packed.append(seed)
        files = self.folder / f"{name}.bit", self.folder / f"{name}.svf"
        for path in files:
            path.write_text(str(seed))
        return files

    monkeypatch.setattr(flow, "run_nextpnr", nextpnr)
    monkeypatch.setattr(Flow, "pack", pack)
    monkeypatch.setattr(Flow, "use_by_part", lambda self: {})
    monkeypatch.setattr(command, "report", lambda *_: "")
    figures = tmp_path / "boards.json"
    for seeds in (1, 3, 1):
        places = ["--output", str(tmp_path), "--figures", str(figures)]
        assert command.main(["ecpix5-45f", "--seeds", str(seeds), *places]) == 0
        entry = json.loads(figures.read_text())["ecpix5-45f"]
        assert sorted(entry["seeds"]) == [str(seed) for seed in range(1, seeds + 1)]
    assert packed == [1, 3, 1]


def test_two_at_once_do_not_place_each_others_netlists(tmp_path: Path) -> None:
    with sized(tmp_path, 8).alone():
        with (
            pytest.raises(ToolError, match=rf"another process makes a bitstream in {tmp_path}"),
            sized(tmp_path, 4).alone(),
        ):
            pass
        with sized(tmp_path / "other", 4).alone():
            pass
    with sized(tmp_path, 4).alone():
        pass


@pytest.mark.long
def test_what_cannot_be_written_is_an_error_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "file"
    taken.write_text("here")
    places = ["--output", str(taken), "--figures", str(tmp_path / "boards.json")]
    assert command.main(["ecpix5-45f", *places]) == 1
    assert capsys.readouterr().err.startswith("error: [Errno 20] Not a directory")
    # Said before there is anything to add to it.
    places = ["--output", str(tmp_path), "--figures", str(taken)]
    assert command.main(["ecpix5-45f", *places]) == 2
    assert f"{taken} is no JSON, so no board can be added" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"error: .*Not a directory"):
        write_box(["--board", "au50", "-o", str(taken / "box"), "--slots", "16"])


@pytest.mark.parametrize("meets", [3, 0])
def test_further_seeds_are_tried_and_a_miss_has_another_name(
    meets: int,
    tmp_path: Path,
    tools_that_copy: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One seed is asked for; the third meets the clocks, or none of the four does."""

    def nextpnr(arguments: list[str], folder: Path, name: str, *_: Any) -> None:
        seed = int(arguments[arguments.index("--seed") + 1])
        (folder / f"{name}.config").write_text(name)
        speed = 140.0 if seed == meets else 130.0
        (folder / f"{name}.json").write_text(json.dumps(placed(tx=speed)))

    def ecppack(arguments: list[str], folder: Path, *_: Any) -> None:
        for option in ("--bit", "--svf"):
            (folder / arguments[arguments.index(option) + 1]).write_text("packed")

    def ecpunpack(*_: Any) -> None:
        pass

    monkeypatch.setattr(flow, "run_nextpnr", nextpnr)
    monkeypatch.setattr(flow, "run_ecppack", ecppack)
    monkeypatch.setattr(flow, "run_ecpunpack", ecpunpack)
    monkeypatch.setattr(flow, "patched", lambda text, contents, before=None: text)
    monkeypatch.setattr(Flow, "use_by_part", lambda self: {})
    folder, figures = tmp_path / "ecpix5-45f", tmp_path / "boards.json"
    folder.mkdir()
    (folder / "ecpix5-45f.bit").write_text("of an earlier run")
    places = ["--output", str(tmp_path), "--figures", str(figures)]
    assert command.main(["ecpix5-45f", *places]) == (0 if meets else 3)
    name = "ecpix5-45f" if meets else "ecpix5-45f-missed"
    assert [path.name for path in folder.glob("*.bit")] == [f"{name}.bit"]
    assert json.loads((folder / f"{name}.json").read_text())["missed"] == ([] if meets else ["tx"])
    seeds = json.loads(figures.read_text())["ecpix5-45f"]["seeds"]
    assert sorted(seeds) == ["1", "2", "3", "4"][: meets or 4]
    said = capsys.readouterr().err
    assert ("error: tx missed in all 4 placements" in said) == (not meets)
