"""Vivado projects as far as that can be without Vivado: complete, consistent, the same each time.

The scripts run in a Tcl interpreter, with commands that stand in for Vivado's.
"""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afflux_hdl.contract.management import Settings
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.verilog import PortParameters
from afflux_hdl.vivado import as02mc04
from afflux_hdl.vivado.__main__ import main
from afflux_hdl.vivado.alveo import ALVEO
from afflux_hdl.vivado.as02mc04_pins import PART, PINS
from afflux_hdl.vivado.cmac import write_cmac
from afflux_hdl.vivado.crossings import find_crossings
from afflux_hdl.vivado.files import LISTING
from afflux_sim.rtl.compile.toolchain import find_toolchain

STUBS = Path(__file__).parents[1] / "support" / "vivado"

SETTINGS = Settings(
    mac=0x02AFFA040001, address="10.77.0.9", controller="10.77.0.1", key=bytes(range(16))
)

SECOND_LIST = """
clk_100mhz_n D18, clk_100mhz_p E18, button_n F12, sfp_mgt_refclk_n K6, sfp_mgt_refclk_p K7,
sfp_rx_n A3, sfp_rx_p A4, sfp_tx_n B6, sfp_tx_p B7, sfp_los D13, sfp_npres D14, sfp_tx_fault B14,
sfp_led[1] C12, sfp_led[0] B12, led[3] B10, led[2] A10, led[1] C11, led[0] B11, led_hb B9,
led_g A12, led_r A13
"""
"""The pins once more, written down apart from the table. Those of the transceiver are also those of
another card with the same part in the same package (its lane 3 of quad 227)."""


SMALL = PortParameters(
    node=NodeParameters(engine=Parameters(bus_bits=64, workers=2, lanes=1, jobs=1, slots=2)),
    mac_bits=64,
)
"""The least that is still a node behind a MAC: that of a board takes longer to write."""


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a project for the AS02MC04."""
    folder = tmp_path_factory.mktemp("as02mc04")
    as02mc04.write_project(folder, SETTINGS, built=SMALL)
    return folder


@pytest.fixture(scope="module")
def cmac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files for an Alveo U50."""
    folder = tmp_path_factory.mktemp("au50")
    write_cmac(folder, ALVEO["au50"], SETTINGS, built=SMALL)
    return folder


def module_ports(verilog: str, module: str) -> dict[str, int]:
    """Return the width of each port of a generated module."""
    (body,) = re.findall(rf"^module {module}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    ports = re.findall(r"^  (?:input|output) (?:\[(\d+):0\] )?(\w+);", body, re.MULTILINE)
    return {name: int(high or 0) + 1 for high, name in ports}


def connected(verilog: str, module: str) -> set[str]:
    """Return the ports that an instance of a module connects."""
    (body,) = re.findall(rf"^{module} \w+ \((.*?)^\);", verilog, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^    \.(\w+)\(", body, re.MULTILINE))


def test_the_tops_connect_every_port(card: Path, cmac: Path) -> None:
    for folder, top in ((card, "as02mc04"), (cmac, "afflux_cmac")):
        ports = module_ports((folder / "rtl/afflux_port.v").read_text(), "afflux_port")
        assert connected((folder / f"rtl/{top}.v").read_text(), "afflux_port") == set(ports)
        assert ports["mac_rx_tdata"] == ports["mac_tx_tdata"] == SMALL.mac_bits


def test_each_port_has_its_pin() -> None:
    text = (as02mc04.RTL / "as02mc04.v").read_text()
    (header,) = re.findall(r"^module as02mc04 \((.*?)^\);", text, re.MULTILINE | re.DOTALL)
    ports = re.findall(r"(?:input|output) +wire +(?:\[(\d+):0\] )?(\w+)", header)
    names = {
        f"{name}[{n}]" if high else name for high, name in ports for n in range(int(high or 0) + 1)
    }
    assert names == {pin.port for pin in PINS}
    second = dict(entry.split() for entry in SECOND_LIST.replace("\n", " ").split(","))
    assert {pin.port: pin.site for pin in PINS} == second
    assert len({pin.site for pin in PINS}) == len(PINS)


def test_the_constraints_are_those_of_the_table(card: Path) -> None:
    text = (card / "constraints/pins.xdc").read_text()
    placed = re.findall(r"PACKAGE_PIN (\w+).*\[get_ports \{([^}]+)\}\]", text)
    assert placed == [(pin.site, pin.port) for pin in PINS]
    assert "create_clock -name sfp_mgt_refclk -period 6.4 " in text
    # Transceiver pins have no I/O standard; all others have.
    for pin in PINS:
        gt = pin.port.startswith(("sfp_rx", "sfp_tx_p", "sfp_tx_n", "sfp_mgt"))
        assert (pin.standard is None) == gt, pin.port


def test_clocks_are_what_the_top_makes(card: Path) -> None:
    text = (card / "rtl/as02mc04.v").read_text()
    factor = float(re.findall(r"\.CLKFBOUT_MULT_F\(([\d.]+)\)", text)[0])
    divisor = float(re.findall(r"\.CLKOUT0_DIVIDE_F\(([\d.]+)\)", text)[0])
    assert 100e6 * factor / divisor == as02mc04.CLOCK_HZ
    # The range of the oscillator in the MMCM of a part of speed grade 1.
    assert 800 <= 100 * factor <= 1600
    gty = (card / "ip/gty_25g.tcl").read_text()
    rate = float(re.findall(r"^set rate ([\d.]+)", gty, re.MULTILINE)[0])
    assert rate * 1e9 / 66 == as02mc04.MAC_CLOCK_HZ


class Vivado:
    """A Tcl interpreter in which Vivado's commands only keep what is asked of them."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        tkinter = pytest.importorskip("tkinter", reason="Python without Tcl")
        self._tcl = tkinter.Tcl()
        self._folder = folder
        self._tcl.eval((STUBS / "vivado.tcl").read_text())
        self._tcl.setvar("argv", arguments)
        self._tcl.setvar("argc", len(arguments))

    def answer(self, name: str, value: str) -> None:
        """Choose what is answered."""
        self._tcl.setvar(f"answers({name})", value)

    def source(self, name: str) -> list[tuple[str, ...]]:
        """Run a script; return the calls."""
        self._tcl.call("source", str(self._folder / name))
        # As text: as values they would be what Tcl has made of them, lists and numbers.
        calls = self._tcl.splitlist(self._tcl.eval("set calls"))
        return [tuple(self._tcl.splitlist(call)) for call in calls]


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    """Something that looks like a checkout of the MAC."""
    for name in as02mc04.MAC_FILES:
        path = tmp_path / "mac" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "mac"


def added_files(calls: list[tuple[str, ...]]) -> set[Path]:
    names = {call[-1] for call in calls if call[0] in ("add_files", "read_verilog")}
    return {Path(name) for name in names}


def test_the_card_s_script_names_all_that_there_is(card: Path, mac: Path) -> None:
    calls = Vivado(card, str(mac)).source("build.tcl")
    added = added_files(calls)
    assert all(path.exists() for path in added)
    sources = {card / line for line in ("constraints/pins.xdc", "constraints/crossings.tcl")}
    sources |= set((card / "rtl").glob("*.v")) | {mac / name for name in as02mc04.MAC_FILES}
    assert added == sources
    assert ("create_project", "-force", "as02mc04", str(card / "vivado"), "-part", PART) in calls
    # The fraction of the transceiver's PLL: 82.5 = 82 + 2**23 / 2**24.
    (ip,) = (call for call in calls if "CONFIG.TX_LINE_RATE" in " ".join(call))
    assert " CONFIG.TX_QPLL_FRACN_NUMERATOR 8388608 " in " ".join(ip)
    assert calls[-1] == ("write_bitstream", "-force", str(card / "as02mc04.bit"))


def test_the_card_s_script_stops_in_time(card: Path, mac: Path) -> None:
    error = importlib.import_module("tkinter").TclError
    with pytest.raises(error, match="usage: vivado"):
        Vivado(card).source("build.tcl")
    vivado = Vivado(card, str(mac))
    vivado.answer("parts", "")
    with pytest.raises(error, match=f"no part {PART}"):
        vivado.source("build.tcl")
    for slack, kind in (("-0.01", "setup"), ("-1", "setup")):
        vivado = Vivado(card, str(mac))
        vivado.answer("slack", slack)
        with pytest.raises(error, match=rf"timing is not met \({kind}, {slack} ns\)"):
            vivado.source("build.tcl")
    vivado = Vivado(card, str(mac))
    vivado.answer("progress", "60%")
    with pytest.raises(error, match="implementation failed"):
        vivado.source("build.tcl")
    (mac / "rtl/lfsr.v").unlink()
    with pytest.raises(error, match=r"no rtl/lfsr\.v in .*: is it verilog-ethernet"):
        Vivado(card, str(mac)).source("build.tcl")


def test_another_version_of_the_mac_is_refused(card: Path, mac: Path) -> None:
    error = importlib.import_module("tkinter").TclError
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(mac), "init", "-q"], check=True)
    commit = ["git", "-C", str(mac), *identity, "commit", "-q", "--allow-empty", "-m", "other"]
    subprocess.run(commit, check=True)
    with pytest.raises(error, match=rf"checkout {as02mc04.MAC_COMMIT}"):
        Vivado(card, str(mac)).source("build.tcl")


@pytest.mark.parametrize(
    ("script", "last"),
    [
        ("build.tcl", ("write_checkpoint", "-force")),
        ("ooc.tcl", ("get_property", "SLACK")),
    ],
)
def test_the_scripts_for_cmac(cmac: Path, script: str, last: tuple[str, ...]) -> None:
    calls = Vivado(cmac).source(script)
    added = added_files(calls)
    assert added and all(path.exists() for path in added)
    assert (cmac / "rtl/afflux_port.v") in added
    assert calls[-1][:2] == last
    vivado = Vivado(cmac)
    vivado.answer("parts", "")
    with pytest.raises(importlib.import_module("tkinter").TclError, match="no part xcu50"):
        vivado.source(script)


def test_crossings_are_found_and_constrained(card: Path) -> None:
    verilog = (card / "rtl/afflux_port.v").read_text()
    found = find_crossings(verilog)
    assert set(found.memories) == {"port/rx/fifo", "port/tx"}
    assert set(found.resets) == {"rst_sync", "mac_rx_rst_sync", "mac_tx_rst_sync"}
    # Two of each crossing, forwards and backwards, and the count of frames that were dropped.
    owners = [path.rpartition("/")[0] for path in found.synchronisers]
    assert sorted(owners) == sorted(
        ["port/rx/fifo", "port/rx/fifo", "port/tx/frames", "port/tx/freed", "port/drops"]
    )
    for path in found.synchronisers:
        module = verilog.partition(f"module \\afflux_port.{path.replace('/', '.')} ")[2]
        stages = module.partition("endmodule")[0]
        assert stages.count('(* ASYNC_REG = "TRUE", SHREG_EXTRACT = "NO" *) reg') == 2
    calls = Vivado(card).source("constraints/crossings.tcl")
    kept = [call for call in calls if call[0] == "set_bus_skew"]
    assert len(kept) == len(found.synchronisers)
    asked = {call[-1] for call in calls if call[0] == "get_cells"}
    assert {f"port/{path}/stage0_reg*" for path in found.synchronisers} <= asked


def test_the_key_is_in_one_file_that_nobody_else_may_read(card: Path, cmac: Path) -> None:
    for folder in (card, cmac):
        lines = (folder / LISTING).read_text().splitlines()
        subprocess.run(["sha256sum", "--quiet", "-c", LISTING], cwd=folder, check=True)
        for line in lines:
            name = line.split("  ")[1]
            path = folder / name
            assert (path.stat().st_mode & 0o077 == 0) == (name == "rtl/afflux_port.v")
            assert SETTINGS.key.hex() not in path.read_text() or name == "rtl/afflux_port.v"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mac", "02:af"], "mac must be a MAC address"),
        (["--address", "10.0.0"], "address must be an IPv4 address"),
        (["--key-file", "/nowhere/key"], "cannot read the key file"),
        (["--build-time", "-1"], "build_time must be"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    for board in ("as02mc04", "au280"):
        with pytest.raises(SystemExit, match=f"error: {board}: .*{message}"):
            main([board, "-o", str(tmp_path), *arguments])
    assert not (tmp_path / "build.tcl").exists()


@pytest.mark.long
def test_the_whole_projects_are_the_same_each_time(tmp_path: Path) -> None:
    """As `make project` writes them, in processes of their own."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text("0123456789abcdef" * 2)
    for board in ("as02mc04", "au50"):
        for copy in ("one", "two"):
            command = [sys.executable, "-m", "afflux_hdl.vivado", board, "--key-file", str(key)]
            command += ["-o", str(tmp_path / board / copy), "--build-time", "1764028800"]
            subprocess.run(command, check=True, capture_output=True)
        one, two = ((tmp_path / board / copy / LISTING).read_text() for copy in ("one", "two"))
        assert one == two
        assert len(one.splitlines()) == len(list((tmp_path / board / "one").rglob("*.*"))) - 1


def lint(top: str, sources: list[Path], *options: str) -> None:
    """Elaborate a design with Verilator, which must have nothing to say."""
    toolchain = find_toolchain()
    command: list[Any] = [*toolchain.verilator_command, "--lint-only", "--no-timing", *options]
    command += ["--top-module", top, *sources]
    environment = toolchain.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def shell_of(verilog: str) -> str:
    """Return a module with the ports of the generated one, and nothing in it."""
    (body,) = re.findall(r"^module afflux_port\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    header = body[: body.index(";") + 1]
    ports = re.findall(r"^  (?:input|output) .*;", body, re.MULTILINE)
    return "\n".join(["/* verilator lint_off UNDRIVEN */", header, *ports, "endmodule", ""])


def test_the_top_for_cmac_elaborates_without_a_warning(cmac: Path, tmp_path: Path) -> None:
    shell = tmp_path / "shell.v"
    text = shell_of((cmac / "rtl/afflux_port.v").read_text())
    # It was built narrow; beside the core its streams are as wide as the core's.
    text = re.sub(r"\[63:0\] (mac_.x_tdata)", r"[511:0] \1", text)
    shell.write_text(re.sub(r"\[7:0\] (mac_.x_tkeep)", r"[63:0] \1", text))
    sources = [cmac / "rtl/afflux_cmac.v", shell, STUBS / "cmac_stub.v"]
    lint("afflux_cmac", sources, "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-PROCASSINIT")


def test_alveo_cards_are_those_of_the_shell() -> None:
    parts = {
        "au50": "xcu50-fsvh2104-2-e",
        "au55c": "xcu55c-fsvh2892-2L-e",
        "au200": "xcu200-fsgd2104-2-e",
        "au250": "xcu250-figd2104-2l-e",
        "au280": "xcu280-fsvh2892-2L-e",
    }
    assert {name: card.part for name, card in ALVEO.items()} == parts
    for card in ALVEO.values():
        columns = {lane.split("Y")[0] for lane in card.cage.lanes}
        rows = [int(lane.split("Y")[1]) for lane in card.cage.lanes]
        assert len(columns) == 1 and rows == list(range(rows[0], rows[0] + 4)) and rows[0] % 4 == 0
