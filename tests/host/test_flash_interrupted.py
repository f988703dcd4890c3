"""`afflux flash` when what is around it gives way: signals, closed output, changed files, others.

The risks are a flash that is half written, a program that goes on alone, and a port of the host
that reports no errors any more.
"""

import errno
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

from afflux.commands import cli
from afflux_drivers.device.device import open_device
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, card_of
from tests.support.drivers.bitstreams import ecp5_bit, written, xilinx_bit
from tests.support.drivers.fake_pci import BRIDGE, CARD, FakePci

URL = DeviceUrl.parse(f"pcie://{CARD}")

LOADER = """
import contextlib, os, pathlib, signal, sys, time
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
if "--list-boards" in words:
    print("ecpix5")
elif "--detect" in words:
    print("idcode 0x81112043")
else:
    (folder / "pid").write_text(str(os.getpid()))
    for number in range({lines}):
        with contextlib.suppress(OSError):
            os.write(1, b"loading %d\\n" % number)
        time.sleep(0.02)
    {then}
    (folder / "done").write_text(" ".join(words))
"""


class Command:
    """A process of `afflux`.

    Args:
        words: Of the command line.
        bench: The state that it finds.
        output: Takes two file descriptors, standard output and errors, away; None leaves them.
        ignored: Signals that it ignores from the beginning.
        encoding: Of its output.

    Attributes:
        text: Where its output comes.
    """

    def __init__(self, words, bench, output, ignored, encoding):
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                os.dup2(theirs, 1)
                os.dup2(theirs, 2)
                os.closerange(3, 100)
                tempfile.tempdir = str(bench.folder)
                os.environ["PATH"] = f"{bench.folder / 'bin'}:{os.environ['PATH']}"
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                    signal.signal(number, signal.SIG_DFL)
                # SIGQUIT leaves one.
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                # Ignored where the tests run in the background of a shell.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for number in ignored:
                    signal.signal(number, signal.SIG_IGN)
                sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", 1, "utf-8", closefd=False)  # noqa: SIM115
                if output is not None:
                    output()
                status = cli.main(words)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(theirs)
        self.text = open(ours, encoding="utf-8", errors="replace")  # noqa: SIM115

    def until_loading(self):
        for line in self.text:
            if line.startswith("loading"):
                return
        raise AssertionError("it ended before it loaded")

    def end(self):
        """Return its status, as `subprocess` has it, and its output since."""
        with self.text:
            said = self.text.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), said


class Bench:
    """A card, an open board's file, and programs that load them."""

    def __init__(self, folder):
        self.folder = folder
        self.pci = FakePci(folder / "sys")
        self.before = self.pci.config(BRIDGE)
        self.au50 = written(folder / "au50.bit", xilinx_bit())
        self.ecpix = written(folder / "ecpix.bit", ecp5_bit("LFE5UM5G-45F-8CABGA554", 0x81112043))
        (folder / "bin").mkdir()
        self.add_loader()

    def add_loader(self, lines=20, then="pass"):
        for name in ("openFPGALoader", "vivado"):
            path = self.folder / "bin" / name
            body = LOADER.format(folder=str(self.folder), lines=lines, then=then)
            path.write_text(f"#!{sys.executable}\n{body}")
            path.chmod(0o755)

    def words(self, board, *more):
        file = self.au50 if board == "au50" else self.ecpix
        card = ["--card", CARD] if board == "au50" else []
        return [
            *("flash", "--board", board, str(file), *card),
            *("--sysfs", str(self.pci.root), "--locks", str(self.folder), *more),
        ]

    def start(self, words, *, output=None, ignored=(), encoding="utf-8"):
        """Start it, in a copy of this process, which has loaded all that it imports."""
        return Command([str(each) for each in words], self, output, ignored, encoding)

    @property
    def restored(self):
        rescanned = (self.pci.folder(BRIDGE) / "rescan").read_text() == "1"
        return rescanned and self.pci.config(BRIDGE) == self.before

    @property
    def done(self):
        return (self.folder / "done").exists()

    def loader_is_over(self):
        status = Path("/proc", (self.folder / "pid").read_text(), "stat")
        for _ in range(100):
            if not status.exists() or status.read_text().split()[2] == "Z":
                return True
            time.sleep(0.05)
        return False


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def close_both():
    os.close(1)
    os.close(2)
    sys.stdout = sys.stderr = None


def close_output():
    os.close(1)
    sys.stdout = None


def fill_output(unbuffered=False):
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    if unbuffered:
        unbuffer_output()


def unbuffer_output():
    """Have output as PYTHONUNBUFFERED has it, so that print itself fails."""
    raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(raw, "utf-8", write_through=True)


@pytest.mark.parametrize("output", [None, close_both, close_output, fill_output])
def test_that_nobody_reads_stops_nothing(bench, output):
    process = bench.start(bench.words("au50"), output=output)
    if output is None:
        # As `head -1` does.
        process.text.readline()
        process.text.close()
        os.waitpid(process.pid, 0)
    else:
        _, said = process.end()
        assert "Traceback" not in said
    assert bench.done, "the card is half loaded"
    assert bench.restored


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_there_are_not_stop_nothing(bench, encoding):
    bench.add_loader(lines=2, then="os.write(1, b'\\xe2\\x96\\x88 100 \\xff\\n')")
    status, _ = bench.start(bench.words("au50"), encoding=encoding).end()
    assert status == 0
    assert bench.done
    assert bench.restored


@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_a_name_that_there_are_no_letters_for_is_shown_all_the_same(bench, words):
    """It is in the line of the very command that loads the board."""
    bench.ecpix = bench.ecpix.rename(bench.folder / "ecpix-\u65e5\udcff.bit")
    for encoding in ("ascii", "utf-8"):
        status, said = bench.start(bench.words("ecpix5-45f", *words), encoding=encoding).end()
        assert status == 0
        assert "udcff" in next(line for line in said.splitlines() if "goes into the FPGA" in line)
        assert "--write-sram" in said
        assert bench.done == (not words)


def test_a_dry_run_that_nobody_can_see_is_an_error(bench):
    status, said = bench.start(bench.words("au50", "--dry-run"), output=fill_output).end()
    assert status == 1
    assert said.startswith("afflux flash: [Errno 28] No space left on device\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [["info", "--json"], ["device", "list"]])
def test_output_that_finds_no_room_is_an_error_and_no_traceback(bench, words):
    for unbuffered in (False, True):
        status, said = bench.start(words, output=lambda now=unbuffered: fill_output(now)).end()
        assert status == 1
        assert "No space left on device" in said
        assert "Traceback" not in said


def test_who_reads_the_first_line_alone_is_told_of_no_error(bench):
    """As `| head -1`."""

    def to_nobody():
        ours, theirs = os.pipe()
        os.dup2(theirs, 1)
        os.close(theirs)
        os.close(ours)
        unbuffer_output()

    for words in (["device", "list"], bench.words("au50", "--dry-run")):
        process = bench.start(words, output=to_nobody)
        assert process.end() == (1, "")


def test_below_nohup_the_end_of_the_terminal_is_nothing(bench):
    process = bench.start(bench.words("au50"), ignored=[signal.SIGHUP])
    process.until_loading()
    os.kill(process.pid, signal.SIGHUP)
    status, _ = process.end()
    assert status == 0
    assert bench.done
    assert bench.restored


@pytest.mark.parametrize("board", ["au50", "ecpix5-45f"])
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT], ids=lambda n: n.name
)
def test_no_program_goes_on_alone(bench, board, number):
    bench.add_loader(lines=500)
    process = bench.start(bench.words(board))
    process.until_loading()
    os.kill(process.pid, number)
    status, said = process.end()
    assert bench.loader_is_over()
    assert not bench.done
    assert board != "au50" or bench.restored
    assert "may be half written: load the board again" in said
    # A copy of a bitstream has the board's key in it.
    assert not list(bench.folder.glob("afflux-flash-*"))
    assert "Traceback" not in said
    # As a shell expects it of a command that was interrupted, or as it would have ended anyway.
    assert status == (130 if number == signal.SIGINT else -number)


def test_what_is_loaded_is_what_was_looked_at(bench):
    """Another file gets its name while the board is asked for its identity."""
    link = bench.folder / "link.bit"
    link.symlink_to(bench.ecpix)
    other = written(bench.folder / "other.bit", b"not looked at")
    swap = f"os.unlink({str(link)!r}); os.symlink({str(other)!r}, {str(link)!r})"
    path = bench.folder / "bin" / "openFPGALoader"
    bench.add_loader(lines=1, then="(folder / 'loaded').write_bytes(open(words[-1], 'rb').read())")
    path.write_text(path.read_text().replace('print("idcode', f'{swap}; print("idcode'))
    words = [str(link) if each == str(bench.ecpix) else each for each in bench.words("ecpix5-45f")]
    status, said = bench.start(words).end()
    assert status == 0, said
    assert link.read_bytes() == b"not looked at"
    assert (bench.folder / "loaded").read_bytes() == bench.ecpix.read_bytes()


def test_a_file_that_looks_like_an_option(bench, monkeypatch):
    written(bench.folder / "--reset.bit", bench.ecpix.read_bytes())
    monkeypatch.chdir(bench.folder)
    words = [each for each in bench.words("ecpix5-45f") if each != str(bench.ecpix)]
    status, said = bench.start([*words, "--", "--reset.bit"]).end()
    assert status == 0, said
    assert (bench.folder / "done").read_text().split()[-1].startswith("/")


def test_a_killed_command_leaves_the_card_to_its_program(bench):
    """Its children go on, and nobody else loads the card meanwhile."""
    bench.add_loader(lines=50)
    process = bench.start(bench.words("au50"))
    process.until_loading()
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    status, said = bench.start(bench.words("au50")).end()
    assert status == 1
    assert "in use by" in said
    assert bench.loader_is_over()
    # The lock went with the program.
    DeviceLock(card_of(URL), directory=bench.folder).close()


def test_a_child_that_keeps_the_output_open_is_not_waited_for(bench):
    """As Vivado leaves its hw_server; it is ended with the rest."""
    bench.add_loader(lines=1, then="os.fork() or time.sleep(100)")
    start = time.monotonic()
    status, _ = bench.start(bench.words("au50")).end()
    assert status == 0
    assert bench.restored
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("board", ["au50", "ecpix5-45f"])
def test_two_at_once(bench, board):
    bench.add_loader(lines=50)
    first = bench.start(bench.words(board))
    first.until_loading()
    status, said = bench.start(bench.words(board)).end()
    assert status == 1
    assert f"in use by process {first.pid}" in said
    assert first.end()[0] == 0


def test_registers_that_somebody_rules_are_not_loaded_away(bench):
    """A controller's board would lose its jobs, by whatever name the registers are known."""
    link = bench.folder / "bar"
    link.symlink_to(bench.pci.bar)
    url = f"file://{link}?offset=0x100000"
    with open_device(f"file://{bench.pci.bar}?offset=0x100000", locks=bench.folder):
        status, said = bench.start(bench.words("ecpix5-45f", "--device", url)).end()
    assert status == 1
    assert f"in use by process {os.getpid()}" in said
    assert not bench.done


def test_another_function_of_the_card_keeps_it(bench):
    other = CARD.replace(".0", ".1")
    bench.pci.add_function(other)
    lock = DeviceLock(card_of(URL).replace(".0", ".1"), shared=True, directory=bench.folder)
    try:
        status, said = bench.start(bench.words("au50")).end()
    finally:
        lock.close()
    assert status == 1
    assert "in use by" in said
    assert card_of(URL) == "pcie://0000:3b:00"


def test_a_disk_that_is_full_is_noticed_before_anything_is_touched(bench, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    status, said = bench.start(bench.words("au50")).end()
    assert status == 1
    assert f"cannot copy {bench.au50} to " in said
    assert "No space left on device" in said
    assert (bench.pci.folder(CARD) / "remove").read_text() == ""
    assert bench.pci.config(BRIDGE) == bench.before
