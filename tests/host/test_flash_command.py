"""The command `afflux flash`: what it refuses, what it shows, and what it looks at afterwards."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from afflux.commands import cli
from afflux_drivers.device.device import open_device
from tests.support.checkout import ROOT
from tests.support.drivers.bitstreams import ecp5_bit, mcs, written, xilinx_bit, xilinx_words
from tests.support.drivers.fake_pci import BRIDGE, CARD, FakePci, register_image
from tests.support.terminal import Terminal

BUILT = 1_790_000_000
USER = 0x0100_2000
PORT = ["config " + BRIDGE, "remove", "rescan"]


@pytest.fixture
def pci(tmp_path):
    return FakePci(tmp_path / "sys")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return the folder of programs on PATH: openFPGALoader and Vivado that record what they do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    body = f"""#!{sys.executable}
import pathlib, sys
words = sys.argv[1:]
with open({str(folder / "log")!r}, "a") as log:
    print(pathlib.Path(sys.argv[0]).name, *words, file=log)
print("ecpix5 colorlight" if "--list-boards" in words else "idcode 0x81112043")
status = pathlib.Path({str(folder / "status")!r})
if status.exists() and "--detect" not in words and "--list-boards" not in words:
    sys.exit(int(status.read_text()))
"""
    for name in ("openFPGALoader", "vivado"):
        (folder / name).write_text(body)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.fixture
def run(pci, tools, tmp_path, capfd, monkeypatch):
    """Return a function that runs the command and returns its status, output and errors."""
    monkeypatch.delenv("AFFLUX_DEVICE_KEY_FILE", raising=False)

    def run_it(*words):
        line = ["flash", *map(str, words), "--sysfs", str(pci.root), "--locks", str(tmp_path)]
        try:
            status: object = cli.main(line)
        except SystemExit as end:
            status = end.code
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run_it


@pytest.fixture
def au50(tmp_path):
    return written(tmp_path / "au50.bit", xilinx_bit())


@pytest.fixture
def ecpix(tmp_path):
    return written(tmp_path / "ecpix.bit", ecp5_bit("LFE5UM5G-45F-8CABGA554", 0x81112043))


def steps(out):
    return [line for line in out.splitlines() if line.startswith("+ ")]


def test_loads_a_card_and_reads_its_identity_back(run, pci, tools, au50):
    au50.with_suffix(".json").write_text(
        json.dumps({"build_time": BUILT, "sha256": hashlib.sha256(au50.read_bytes()).hexdigest()})
    )
    before = pci.config(BRIDGE)
    status, out, err = run("--board", "au50", au50, "--card", CARD)
    assert (status, err) == (0, "")
    found = steps(out)
    # The script is written and run between the two halves.
    kinds = [
        next((w for w in ("config", "remove", "rescan", "flash.tcl") if w in s), s) for s in found
    ]
    assert kinds == [
        "config", "config", "remove", "flash.tcl", "flash.tcl", "rescan", "config", "config",
    ]  # fmt: skip
    assert pci.config(BRIDGE) == before
    assert out.splitlines()[-1] == (
        f"pcie://{CARD}: release 0.1.0, built 2026-09-21 14:13:20 UTC, as au50.json says"
    )
    assert (tools / "log").read_text().startswith("vivado -mode batch")


BAR = r"""
print("Open file", end="\n", flush=True)
for share in 20, 60, 100:
    print(f"\rLoad SRAM: {share}.00%", end="", flush=True)
    time.sleep(WAIT_S if share == 60 else 0)
print("\nDone", flush=True)
"""


def add_bar(tools, wait_s):
    """Let the loader write a bar over itself, and wait this long at 60 %."""
    path = tools / "openFPGALoader"
    loading = BAR.replace("WAIT_S", str(wait_s)).replace("\n", "\n    ")
    path.write_text(f"""{path.read_text()}
import time
if "--write-sram" in words:
    {loading}
""")


def test_a_terminal_shows_how_far_the_loader_is(run, tools, ecpix, monkeypatch):
    add_bar(tools, wait_s=1.5)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    status, out, _ = run("--board", "ecpix5-45f", ecpix)
    shown = terminal.read("openFPGALoader: Load SRAM: 60.00%, 1 s")
    assert shown.startswith("\r\x1b[KopenFPGALoader, 0 s")
    assert (status, out.count("Load SRAM: 100.00%\nDone\n")) == (0, 1)
    terminal.close()


def test_a_pipe_has_no_bars(run, tools, ecpix):
    add_bar(tools, wait_s=0)
    status, out, err = run("--board", "ecpix5-45f", ecpix)
    assert (status, err) == (0, "")
    assert "Open file\nLoad SRAM: 100.00%\nDone\n" in out
    assert "\r" not in out


def test_another_build_than_the_report_says_is_an_error(run, pci, au50):
    au50.with_suffix(".json").write_text(json.dumps({"build_time": BUILT + 1}))
    status, _, err = run("--board", "au50", au50, "--card", CARD)
    assert status == 1
    assert "built 2026-09-21 14:13:20 UTC, but" in err
    assert "another image runs" in err
    au50.with_suffix(".json").unlink()
    status, out, _ = run("--board", "au50", au50, "--card", CARD)
    assert status == 0
    assert "no report beside the file says when it should be" in out


def test_a_card_that_does_not_answer_afterwards_is_an_error_in_time(run, pci, au50):
    pci.kill()
    start = time.monotonic()
    status, _, err = run("--board", "au50", au50, "--card", CARD, "--wait", "0.5")
    assert status == 1
    assert "loaded, but does not answer" in err
    assert "reads as ones" in err
    assert time.monotonic() - start < 20


def test_a_failure_of_the_program_restores_the_host(run, pci, tools, au50):
    before = pci.config(BRIDGE)
    (tools / "status").write_text("3")
    status, _, err = run("--board", "au50", au50, "--card", CARD)
    assert status == 1
    assert "vivado failed (status 3)" in err
    assert pci.config(BRIDGE) == before
    assert (pci.folder(BRIDGE) / "rescan").read_text() == "1"


def test_loads_an_open_board(run, tools, ecpix, pci):
    bar = pci.bar.with_name("stand-in")
    bar.write_bytes(register_image())
    status, out, _ = run("--board", "ecpix5-45f", ecpix, "--device", f"file://{bar}")
    assert status == 0
    detect, load = (tools / "log").read_text().splitlines()[1:]
    assert detect == "openFPGALoader --board ecpix5 --detect"
    # A copy, which nobody can change any more.
    assert load.startswith("openFPGALoader --board ecpix5 --write-sram /")
    assert load.endswith("/image.bit")
    assert str(ecpix) not in load
    assert f"file://{bar}: release 0.1.0" in out
    status, out, _ = run("--board", "ecpix5-45f", ecpix, "--permanent", "--partition", "second")
    assert status == 0
    assert f"--write-flash --offset {16 << 20} --verify /" in out
    assert "the running image was not checked" in out


def snapshot(*folders):
    return {
        path: path.read_bytes() for each in folders for path in each.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("how", [[], ["--permanent"], ["--permanent", "--over-pcie"]], ids=str)
def test_a_dry_run_shows_every_command_and_touches_nothing(run, pci, tools, tmp_path, how):
    name = "a.mcs" if "--over-pcie" in how else "a.bit"
    file = written(tmp_path / name, mcs(USER, xilinx_words()) if name == "a.mcs" else xilinx_bit())
    file.with_suffix(".json").write_text(json.dumps({"part": "xcu50-fsvh2104-2-e"}))
    before = snapshot(tmp_path)
    status, out, err = run("--board", "au50", file, "--card", CARD, "--dry-run", *how)
    assert (status, err) == (0, "")
    assert snapshot(tmp_path) == before
    text = "\n".join(steps(out))
    if "--over-pcie" in how:
        assert "xbflash.qspi --primary" in text
        assert BRIDGE not in text, "the design goes on running"
    else:
        for each in (*PORT, "vivado -mode batch"):
            assert each in text
        assert ("program_hw_cfgmem" in out) is ("--permanent" in how)
        assert ('-loadbit "up 0x01002000' in out) is ("--permanent" in how)


def test_a_dry_run_needs_no_tools(run, ecpix, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("afflux_drivers.flash.openfpgaloader._PACKAGE", "afflux-no-such-package")
    status, out, _ = run("--board", "ecpix5-45f", ecpix, "--dry-run")
    assert status == 0
    assert f"+ openFPGALoader --board ecpix5 --write-sram {ecpix}" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--board", "au51"], "board 'au51' is not known; known are"),
        (["--board", "au250", "--card", CARD], "is for xcu50-fsvh2104-2-e; au250 has xcu250"),
        (["--board", "ecpix5-45f"], "not a bitstream of an ECP5"),
        (["--board", "au50"], "a host from which a card disappears may stop"),
        (["--board", "au50", "--card", CARD, "--offset", "0x1002000"], "go with --permanent"),
        (["--board", "au50", "--card", CARD, "--permanent", "--offset", "0"], "below 0x01002000"),
        (
            ["--board", "au50", "--card", CARD, "--permanent", "--offset", "0x01001000"],
            "from 0x01001000, below 0x01002000",
        ),
        (
            ["--board", "au50", "--card", CARD, "--permanent", "--partition", "golden"],
            "it has user",
        ),
        (["--board", "au50", "--card", "0000:77:00.0"], "no PCIe function 0000:77:00.0"),
        (["--board", "au50", "--card", CARD, "--over-pcie"], "goes with --permanent and --card"),
        (
            ["--board", "au50", "--card", CARD, "--device", "udp://10.0.0.9"],
            "must name its key",
        ),
    ],
)
def test_refuses_and_touches_nothing(run, pci, tools, au50, tmp_path, words, reason):
    before = snapshot(tmp_path)
    status, out, err = run(au50, *words)
    assert status == 1
    assert reason in err
    assert steps(out) == []
    assert {
        path: data for path, data in snapshot(tmp_path).items() if path.suffix != ".lock"
    } == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--board", "au50", "--card", "3b"], "not a PCIe function such as"),
        (["--board", "au50", "--card", CARD, "--no-card"], "not allowed with"),
        (["--board", "au50", "--no-card", "--offset", "x"], "invalid"),
        (["--board", "au50", "--no-card", "--timeout", "-1"], "not a number of seconds"),
        (["--board", "au50", "--no-card", "--device", "x"], "not the URL of a device"),
        ([], "--board"),
    ],
)
def test_wrong_words_end_at_once(run, au50, words, reason):
    status, _, err = run(au50, *words)
    assert status == 2
    assert reason in err


def test_what_is_not_a_card_has_none(run, ecpix):
    for words in (["--card", CARD], ["--no-card"]):
        status, _, err = run("--board", "ecpix5-45f", ecpix, *words)
        assert status == 1
        assert "ecpix5-45f is not a PCIe card" in err


def test_a_flash_image_is_only_for_the_flash(run, tmp_path):
    file = written(tmp_path / "a.mcs", mcs(USER, xilinx_words()))
    file.with_suffix(".json").write_text(json.dumps({"part": "xcu50-fsvh2104-2-e"}))
    status, _, err = run("--board", "au50", file, "--no-card")
    assert status == 1
    assert "is an image of a flash: --permanent" in err


def test_a_card_in_another_host_is_left_to_its_host(run, pci, au50):
    before = snapshot(pci.root)
    status, out, _ = run("--board", "au50", au50, "--no-card")
    assert status == 0
    assert "the running image was not checked" in out
    assert snapshot(pci.root) == before


def test_a_card_in_use_is_not_loaded(run, pci, tools, au50, tmp_path):
    with open_device(f"pcie://{CARD}", exclusive=False, sysfs=pci.root, locks=tmp_path):
        status, out, err = run("--board", "au50", au50, "--card", CARD)
    assert status == 1
    assert f"in use by process {os.getpid()}" in err
    assert steps(out) == []


def test_a_signal_ends_the_program_and_restores_the_host(pci, tools, au50, tmp_path):
    before = pci.config(BRIDGE)
    (tools / "vivado").write_text(
        f"#!{sys.executable}\nimport time\nprint('loading', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "afflux", "flash", "--board", "au50", au50, "--card", CARD]
    child = subprocess.Popen(
        [*command, "--sysfs", pci.root, "--locks", tmp_path], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    for line in child.stdout:
        if line == "loading\n":
            break
    assert pci.config(BRIDGE) != before
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGTERM
    assert pci.config(BRIDGE) == before
    assert (pci.folder(BRIDGE) / "rescan").read_text() == "1"
