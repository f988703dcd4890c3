"""Waves of the engine in process: what is in the file, where it is, how it ends."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pywellen import Waveform

from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.waves import Waves, WavesFailed
from tests.support.checkout import BUILD, ROOT
from tests.support.host.scripts import run_script
from tests.support.loopback import loopback

BITS = 512
NS = 4
"""Of a cycle."""


def traced(path: Path, window: str | None = None) -> VerilatedEngine:
    return VerilatedEngine.from_verilog(loopback(BITS), BITS, waves=Waves.parse(str(path), window))


def changes(path: Path, signal: str) -> list[tuple[int, int]]:
    """Return the changes of a pin: nanosecond, and the value from then on."""
    return list(Waveform(str(path))[f"engine.{signal}"].tv)


@pytest.fixture(params=[pytest.param("fst", marks=pytest.mark.long), "vcd"])
def path(request, tmp_path):
    return tmp_path / f"engine.{request.param}"


def test_each_signal_at_its_cycle(path):
    frames = [bytes([number] * size) for number, size in enumerate((64, 128, 64, 100), start=1)]
    with traced(path) as engine:
        assert engine.play(frames) == frames
        engine.write(4, 0xAFF1)
        assert engine.waves_path == path
    # Beats 0 to 5, the rest of the play, the write.
    assert changes(path, "clk") == [(edge * NS // 2, edge % 2) for edge in range(8 * 2)]
    valid = [(0, 1), (6 * NS, 0)]
    assert changes(path, "rx_valid") == changes(path, "tx_valid") == valid
    last = [(0, 1), (1 * NS, 0), (2 * NS, 1), (4 * NS, 0), (5 * NS, 1)]
    assert changes(path, "rx_last") == last
    # Wider than Verilator traces by itself.
    data = {time // NS: value.to_bytes(64, "little") for time, value in changes(path, "rx_data")}
    assert data == {
        cycle: bytes([number] * 64) for cycle, number in ((0, 1), (1, 2), (3, 3), (4, 4))
    }
    # A register changes when the clock rises, in the middle of its cycle.
    assert changes(path, "afflux_engine.scratch") == [(0, 0), (7 * NS + NS // 2, 0xAFF1)]


def test_a_window(path):
    with traced(path, "3:5") as engine:
        engine.play([bytes([number] * 64) for number in range(10)])
        # It is complete already: a reader need not wait for the engine's end.
        edges = [(3 * NS, 0), (3 * NS + 2, 1), (4 * NS, 0), (4 * NS + 2, 1)]
        assert changes(path, "clk") == edges
        whole = path.read_bytes()
        engine.run(100)
    assert path.read_bytes() == whole
    assert [value & 255 for _, value in changes(path, "rx_data")] == [3, 4]


def test_the_two_formats_say_the_same(tmp_path):
    said = {}
    for form in ("fst", "vcd"):
        path = tmp_path / f"engine.{form}"
        with traced(path) as engine:
            engine.play([bytes(range(size % 256)) * 3 for size in range(1, 400, 7)])
        waves = Waveform(str(path))
        said[form] = {each.full_name: list(each.tv) for each in waves.all_vars()}
    assert said["fst"] == said["vcd"]
    assert len(said["fst"]) > 40
    sizes = {form: (tmp_path / f"engine.{form}").stat().st_size for form in said}
    assert sizes["fst"] < sizes["vcd"] / 2


def test_engines_of_one_name_have_files_of_their_own(path):
    second = path.with_stem("engine-2")
    with traced(path) as one, traced(path) as other:
        assert (one.waves_path, other.waves_path) == (path, second)
        one.play([bytes(64)] * 3)
        other.play([bytes(64)] * 5)
    assert changes(path, "rx_valid") == [(0, 1), (3 * NS, 0)]
    assert changes(second, "rx_valid") == [(0, 1), (5 * NS, 0)]
    # A later one writes the file anew.
    with traced(path) as engine:
        assert engine.waves_path == path
        engine.play([bytes(64)])
    assert changes(path, "rx_valid") == [(0, 1), (1 * NS, 0)]


def test_a_window_that_is_not_reached_leaves_no_file(path, caplog):
    with caplog.at_level(logging.WARNING, "afflux"), traced(path, "1000:") as engine:
        engine.run(20)
    assert not path.exists()
    assert f"no waves in {path}: the engine ended after 20 cycles, before cycle 1000" in caplog.text


@pytest.mark.parametrize("name", ["engine", "engine.txt", ".vcd", "engine.vcd.gz"])
def test_a_name_says_the_format(name):
    with pytest.raises(ValueError, match=f"waves {name!r}: the name must end with .fst or .vcd"):
        Waves.parse(name)


@pytest.mark.parametrize("window", ["5", ":", "a:b", "-1:5", "5:3", "5:5", "0:0", "1:2:3", "1.5:2"])
def test_a_window_that_cannot_be(window):
    with pytest.raises(ValueError, match=f"waves_window {window!r}: "):
        Waves.parse("engine.vcd", window)


@pytest.mark.parametrize(
    ("window", "first", "end", "shown"),
    [
        (None, 0, None, None),
        ("5:9", 5, 9, "5:9"),
        ("5:", 5, None, "5:"),
        (":9", 0, 9, "0:9"),
        ("0:", 0, None, None),
    ],
)
def test_windows(window, first, end, shown):
    waves = Waves.parse("engine.FST", window)
    assert (waves.first, waves.end, waves.window, waves.format) == (first, end, shown, "fst")


def test_a_path_that_cannot_be(tmp_path):
    (tmp_path / "folder.vcd").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe.vcd")
    for name, says in {
        "none/engine.vcd": "No such file or directory",
        "file/engine.vcd": "Not a directory",
        "folder.vcd": "Is a directory",
        "pipe.vcd": "No such device or address",
    }.items():
        with pytest.raises(WavesFailed, match=f"^waves {tmp_path / name}: {says}$"):
            traced(tmp_path / name)


def test_a_model_with_waves_is_another_build():
    def library(waves: str | None) -> Path:
        folder = BUILD / "verilated"
        return build_library(find_toolchain(), folder, loopback(BITS), BITS, waves=waves)

    assert len({library(None), library("fst"), library("vcd")}) == 3


SCRIPT = f"""
import os, resource, sys, time
sys.path.insert(0, {str(ROOT)!r})
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.waves import Waves
from tests.support.loopback import loopback

waves = Waves.parse(sys.argv[1])
engine = VerilatedEngine.from_verilog(loopback(512), 512, waves=waves)
engine.play([bytes([number]) * 64 for number in range(50)])
"""
ENDS = {
    "nothing more": "",
    "exit": "sys.exit(3)",
    "exception": "raise KeyError('something else')",
    # Not one long sleep: a signal that comes just before it would be seen after it.
    "signal": "print('ready', flush=True)\nfor _ in range(600):\n    time.sleep(0.1)",
    "signal in a play": "print('ready', flush=True)\nwhile True: engine.play([bytes(64)] * 100)",
    "copy": "if os.fork() == 0:\n    del engine\n    sys.exit(0)\nos.wait()",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_file_is_complete_however_the_process_ends(end, path, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + ENDS[end])
    with subprocess.Popen(
        [sys.executable, script, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if "signal" in end:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.terminate()
        _, said = process.communicate(timeout=60)
    expected = {"exit": 3, "exception": 1}.get(end, 128 + signal.SIGTERM if "signal" in end else 0)
    assert process.returncode == expected, said
    values = [value & 255 for _, value in changes(path, "rx_data")]
    assert values[:50] == list(range(50))


@pytest.mark.parametrize(
    ("name", "plays", "says"),
    [
        ("engine.vcd", 50, "its waves cannot be written: File too large"),
        ("engine.vcd", 0, "its waves cannot be written: File too large"),
        # Verilator's writer of FST ends the process, and names the check that failed.
        ("engine.fst", 50, "FST_CHECK"),
        ("engine.fst", 0, "FST_CHECK"),
    ],
)
def test_a_disk_that_is_full_is_noticed(name, plays, says, tmp_path):
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    more = f"for _ in range({plays}): engine.play([os.urandom(1500)] * 100)\nengine.close()\n"
    text = SCRIPT.replace("sys.argv[1]", repr(str(tmp_path / name))) + more
    result = run_script(text.replace("waves = ", f"{limit}waves = "), tmp_path)
    assert result.returncode in (1, -signal.SIGABRT)
    assert says in result.stderr
