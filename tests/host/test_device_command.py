"""The command `afflux device`, on a folder that stands in for sysfs and a file for a BAR."""

import itertools
import json
import os
import threading
import time
from unittest.mock import Mock

import pytest

from afflux.commands import cli
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.device.device import open_device
from afflux_hdl.contract import management, registers
from tests.support.drivers.fake_pci import CARD, FakePci, register_image
from tests.support.management_board import KEY, BoardOnSocket, Registers

URL = f"pcie://{CARD}"


class EngineRegisters(Registers):
    """The registers of an engine in software and of a node, behind a board's management."""

    def __init__(self):
        super().__init__()
        self.engine = SoftEngine(jobs=4, slots=64)

    def read(self, address):
        return self.engine.read(address) if address < 0x800 else super().read(address)

    def write(self, address, value):
        if address >= 0x800:
            return super().write(address, value)
        try:
            self.engine.write(address, value)
        except registers.WriteRefused:
            return False
        return True


@pytest.fixture
def pci(tmp_path):
    return FakePci(tmp_path / "sys")


@pytest.fixture
def run(pci, tmp_path, capsys, monkeypatch):
    """Return a function that runs the command and returns its status, output and errors."""
    monkeypatch.delenv("AFFLUX_DEVICE_KEY_FILE", raising=False)

    def run_it(*words):
        line = ["device", *words, "--sysfs", str(pci.root), "--locks", str(tmp_path)]
        try:
            status: object = cli.main(line)
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run_it


@pytest.fixture
def board(tmp_path):
    """Return a board behind a socket; its key is in the file `key`."""
    with BoardOnSocket() as running:
        running.registers = EngineRegisters()
        running.restart()
        (tmp_path / "key").write_text(KEY.hex())
        (tmp_path / "key").chmod(0o600)
        yield running


def counter_image(**values):
    image = bytearray(register_image())
    for name, value in values.items():
        address = registers.counter_address(name)
        image[address : address + 8] = value.to_bytes(8, "little")
    return bytes(image)


def test_lists_the_cards(run, pci):
    status, out, _ = run("list")
    assert status == 0
    head, row = out.splitlines()
    assert head.split() == ["URL", "WHAT", "BUILT"]
    assert row.split() == [URL, "OpenNIC", "2026-09-21", "14:13:20", "UTC"]
    pci.kill()
    status, out, _ = run("list", "--json")
    (found,) = json.loads(out)
    assert (status, found["url"], found["build_time"]) == (0, URL, None)
    assert "reads as ones" in found["reason"]


def test_shows_a_card(run, pci):
    before = pci.bar.read_bytes()
    status, out, _ = run("show", URL, "--registers")
    assert status == 0
    values = dict(row.split(None, 1) for row in out.partition("\n\n")[0].splitlines())
    assert values["url"] == URL
    assert values["release"] == "0.1.0"
    assert values["built"] == "2026-09-21 14:13:20 UTC"
    assert values["commit"] == "0c0ffee1"
    assert values["build.slots"] == "512"
    assert values["local.address"] == "none"
    assert values["output"] == "sent"
    assert values["node.host_path"] == "1"
    rows = [row.split() for row in out.partition("\n\n")[2].splitlines()]
    assert ["0x01c", "build_version", "0x00000100"] in rows
    readable = [
        each
        for each in registers.REGISTERS + registers.NODE_REGISTERS
        if each.access is not registers.Access.WRITE_ONLY
    ]
    assert len(rows) == len(readable)
    assert pci.bar.read_bytes() == before, "show changes nothing"


def test_shows_json_and_jobs(run, pci):
    # A file answers every index alike.
    pci.set_registers(register_image({"build_jobs": 3, "job_enabled": 1}))
    status, out, _ = run("show", f"file://{pci.bar}?offset=0x100000", "--json", "--jobs")
    assert status == 0
    assert [each["job"] for each in json.loads(out)["jobs"]] == [0, 1, 2]


def test_a_controller_at_work_is_not_disturbed(run, pci, tmp_path):
    with open_device(URL, sysfs=pci.root, locks=tmp_path):
        assert run("show", URL)[0] == 0
        assert run("counters", URL)[0] == 0
        for words in (["show", "--jobs"], ["configure", "--port", "5000"], ["reset"]):
            status, _, err = run(words[0], URL, *words[1:])
            assert status == 1
            assert f"in use by process {os.getpid()}" in err


def test_configures(run, pci):
    status, out, _ = run(
        "configure", URL, "--mac", "02:af:f1:00:00:09", "--address", "10.0.0.9", "--port", "4700",
        "--host-path", "off", "--output", "discard",
    )  # fmt: skip
    assert status == 0
    assert dict(row.split() for row in out.splitlines()) == {
        "mac": "02:af:f1:00:00:09",
        "address": "10.0.0.9",
        "port": "4700",
    }
    values = json.loads(run("show", URL, "--json")[1])
    assert values["local"]["address"] == "10.0.0.9"
    assert values["node"]["host_path"] == 0
    assert values["output"] == "discarded, by transmit_control"


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["--mac", "01:00:5e:00:00:01"], 2, "of a group"),
        (["--address", "127.0.0.1"], 2, "not an address that one host"),
        (["--address", "224.0.0.1"], 2, "not an address that one host"),
        (["--address", "10.0.0.9"], 1, "needs a MAC address"),
        (["--port", "99999"], 1, "from 1 to 65527"),
        ([], 1, "nothing to set"),
    ],
)
def test_refuses_what_cannot_be_set(run, pci, words, status, reason):
    before = pci.bar.read_bytes()
    found, _, err = run("configure", URL, *words)
    assert found == status
    assert reason in err
    assert pci.bar.read_bytes() == before


def test_counters_once(run, pci):
    pci.set_registers(counter_image(frames_in=3, bytes_in=1 << 40))
    assert run("counters", URL)[1].split() == ["frames_in", "3", "bytes_in", str(1 << 40)]
    found = json.loads(run("counters", URL, "--json", "--all")[1])
    assert len(found) == len(registers.COUNTERS) + len(registers.NODE_COUNTERS)
    assert found["node_to_engine"] == 0
    pci.add_box()
    assert "port1_tx_frames" in json.loads(run("counters", URL, "--json", "--all")[1])
    assert json.loads(run("show", URL, "--json")[1])["box"]["nodes"] == 2


def test_counters_that_grow(run, pci):
    pci.set_registers(counter_image(frames_in=3, rounds=1))
    place = registers.counter_address("frames_in") + 0x100000

    def grow():
        with pci.bar.open("r+b") as file:
            file.seek(place)
            file.write(b"\x0a")

    timer = threading.Timer(0.3, grow)
    timer.start()
    status, out, _ = run("counters", URL, "--watch", "0.5", "--times", "2", "--json")
    timer.join()
    assert status == 0
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row.get("frames_in") for row in rows] == [7, None]
    assert 0.4 < rows[0]["seconds"] < 5


def test_who_was_stopped_for_long_does_not_read_all_that_once(run, monkeypatch):
    """An hour without a turn, once: no counters are read 3,600 times in a row then."""
    clock = Mock(wraps=time)
    clock.monotonic.side_effect = itertools.count(1000.0, 0.01).__next__
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            clock.monotonic.side_effect = itertools.count(4600.0, 0.01).__next__

    clock.sleep.side_effect = sleep
    monkeypatch.setattr("afflux.commands.device.watching.time", clock)
    assert run("counters", URL, "--watch", "1", "--times", "5", "--json")[0] == 0
    assert len(pauses) == 5
    assert sum(pause > 0.5 for pause in pauses) >= 4


def test_counters_that_begin_anew_are_reported(run, pci):
    pci.set_registers(counter_image(frames_in=3))
    timer = threading.Timer(0.1, lambda: os.pwrite(file, bytes(8), place))
    place = registers.counter_address("frames_in") + 0x100000
    file = os.open(pci.bar, os.O_RDWR)
    timer.start()
    status, out, _ = run("counters", URL, "--watch", "0.3", "--times", "1")
    timer.join()
    os.close(file)
    assert status == 0
    assert out == f"{URL}: counters have begun anew: a reset\n"


def test_resets_the_engine_through_the_shell(run, pci):
    status, _, err = run("reset", f"file://{pci.bar}?offset=0x100000", "--all")
    assert status == 1
    assert "nothing there resets the engine" in err
    os.truncate(pci.bar, 0x40_0000)
    with pci.bar.open("r+b") as file:
        file.seek(0x18)
        file.write(b"\x01")
    assert run("reset", URL, "--all") == (
        0,
        f"{URL}: reset; its addresses must be set again\n",
        "",
    )
    pci.set_registers(register_image({"local_address": 0x0A000009}))
    with pci.bar.open("r+b") as file:
        file.seek(0x18)
        file.write(b"\x01")
    assert "something else than this engine" in run("reset", URL, "--all")[2]


def test_a_shell_that_is_another_is_not_reset(run, pci):
    """There, register 0x14 of BAR 2 would be anything."""
    for offset, device in ((0, "0x903f"), (0x100000, "0x9039")):
        pci.set_registers(register_image(), offset)
        (pci.folder(CARD) / "device").write_text(f"{device}\n")
        before = pci.bar.read_bytes()
        status, _, err = run("reset", f"{URL}?offset={offset}", "--all")
        assert status == 1
        assert "are not behind OpenNIC" in err
        assert pci.bar.read_bytes() == before


def test_a_reset_takes_no_engine_away_from_others(run, pci, tmp_path):
    """The shell resets all engines of the card; one of them has a controller."""
    pci.add_box(nodes=2)
    pci.write_bar(0x18, b"\x01")
    second = f"{URL}?offset=0x102000"
    with open_device(second, sysfs=pci.root, locks=tmp_path):
        status, _, err = run("reset", URL, "--all")
    assert status == 1
    assert f"{second} registers is in use by process {os.getpid()}" in err
    assert pci.bar.read_bytes()[0x14:0x18] == bytes(4)
    assert run("reset", URL, "--all")[0] == 0


def test_switches_that_are_not_taken_are_reported(run, monkeypatch):
    monkeypatch.setattr("afflux_drivers.device.window.RegisterWindow.write", lambda *_: None)
    for words in (["--host-path", "off"], ["--output", "discard"]):
        status, out, err = run("configure", URL, *words, "--force")
        assert (status, out) == (1, "")
        assert "was written" in err


def test_ctrl_c_is_no_crash(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("afflux.commands.device.show.describe", interrupted)
    assert run("show", URL) == (130, "", "afflux: interrupted\n")


def test_jobs_that_there_are_not_need_no_reset(run):
    assert run("reset", URL) == (0, f"{URL}: no jobs\n", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["show", "tcp://10.0.0.9"], "expected udp://ADDRESS"),
        (["show", URL, "--timeout", "0"], "not a number of seconds"),
        (
            ["counters", URL, "--watch", "1", "--times", "0"],
            "'0' is not a whole number of at least 1",
        ),
        (
            ["counters", URL, "--watch", "1", "--times", "-1"],
            "'-1' is not a whole number of at least 1",
        ),
        (["frobnicate", URL], "invalid choice"),
    ],
)
def test_wrong_words_end_at_once(run, words, reason):
    status, _, err = run(*words)
    assert status == 2
    assert reason in err


@pytest.mark.parametrize(
    "words", [["--watch", "0"], ["--watch", "nan"], ["--times", "3"]], ids=" ".join
)
def test_wrong_times_end_at_once(run, words):
    status, _, err = run("counters", URL, *words)
    assert status == 2
    assert words[0] in err


def create_job(engine, number):
    for name, value in (
        ("job_index", number),
        ("job_workers", 2),
        ("job_lanes", 4),
        ("job_slot_base", 8 * number),
        ("job_slot_count", 8),
        ("job_credit", 4),
        ("job_command", registers.Command.CREATE),
    ):
        engine.write(registers.address_of(name), value)


def test_an_appliance_behind_a_real_socket(run, board, tmp_path):
    url = f"udp://127.0.0.1:{board.port}"
    key = "--key-file", str(tmp_path / "key")
    create_job(board.registers.engine, 2)
    values = json.loads(run("show", url, *key, "--json", "--jobs", "--registers")[1])
    assert values["kind"] == "appliance"
    assert values["board"]["name"] == "test board"
    assert values["board"]["controller"] == "127.0.0.2"
    assert values["board"]["mac"] == "02:af:fa:00:00:09"
    assert values["build"]["slots"] == 64
    assert values["jobs"] == [{"job": 2, "parent_joined": False}]
    assert values["registers"]["management_identity"]["value"] == management.IDENTITY
    # Only to read: what this does to the board is counted, and nothing is written.
    board.registers.writes.clear()
    found = json.loads(run("counters", url, *key, "--json", "--all")[1])
    assert found["management_executed"] > 100
    assert len(found) == len(
        registers.COUNTERS + registers.NODE_COUNTERS + management.MANAGEMENT_COUNTERS
    )
    assert board.registers.writes == []
    # Behind a MAC that counts what it loses there are three registers more.
    assert "port_identity" not in values["registers"]
    board.registers.values |= {0x880: registers.PORT_IDENTITY, 0x884: 7, 0x888: 2}
    more = json.loads(run("counters", url, *key, "--json", "--all")[1])
    assert set(more) - set(found) == set(registers.PORT_COUNTERS)
    assert (more["port_rx_dropped"], more["port_tx_cut"]) == (7, 2)
    values = json.loads(run("show", url, *key, "--json", "--registers")[1])
    assert values["registers"]["port_rx_dropped"]["value"] == 7
    assert run("configure", url, *key, "--port", "5000")[0] == 1, "a job exists"
    status, _, err = run("configure", url, *key, "--output", "discard")
    assert status == 1
    assert "job(s) 2 exist: their workers would lose the engine" in err
    control = registers.address_of("transmit_control")
    assert board.registers.engine.read(control) == 0
    # Giving it back alone does no harm.
    assert run("configure", url, *key, "--output", "send", "--host-path", "on")[0] == 0
    assert run("configure", url, *key, "--output", "discard", "--force")[0] == 0
    assert board.registers.engine.read(control) == 1
    assert run("configure", url, *key, "--output", "send")[0] == 0
    assert run("reset", url, *key) == (0, f"{url}: ended job(s) 2\n", "")
    assert run("configure", url, *key, "--port", "5000")[0] == 0
    assert board.registers.read(registers.address_of("local_port")) == 5000
    status, _, err = run("configure", url, *key, "--address", "10.0.0.9")
    assert status == 1
    assert "an appliance has its MAC and IPv4 address from its settings" in err
    # Nothing that would cut it off from its controller.
    jobs = board.registers.read(registers.address_of("build_jobs"))
    own = json.loads(run("show", url, *key, "--json")[1])["board"]["port"]
    for port in (own, own - jobs):
        status, _, err = run("configure", url, *key, "--port", str(port))
        assert status == 1
        assert (
            f"UDP ports {port} to {port + jobs} would be the engine's, but {own} is for its" in err
        )
    assert run("configure", url, *key, "--port", str(own - jobs - 1))[0] == 0
    status, _, err = run("configure", url, *key, "--host-path", "off")
    assert status == 1
    assert "an appliance has its management where a host would be" in err
    assert run("configure", url, *key, "--host-path", "on")[0] == 0


def test_an_appliance_is_reset_as_a_whole(run, board, tmp_path):
    url = f"udp://127.0.0.1:{board.port}"
    board.registers.values[0x804] = 0
    status, out, _ = run("reset", url, "--all", "--key-file", str(tmp_path / "key"))
    assert (status, out) == (0, f"{url}: reset; it has the addresses of its settings again\n")
    assert 0x804 not in board.registers.values


def test_lists_a_board_without_its_key(run, board):
    host = f"127.0.0.1:{board.port}"
    status, out, _ = run("list", host, "--timeout", "0.2")
    assert status == 1
    assert "answers; without its key nothing more is known" in out


def test_the_key_may_be_in_a_file_that_the_environment_names(run, board, tmp_path, monkeypatch):
    monkeypatch.setenv("AFFLUX_DEVICE_KEY_FILE", str(tmp_path / "key"))
    host = f"127.0.0.1:{board.port}"
    status, out, _ = run("list", host, "--json")
    assert status == 0
    assert json.loads(out)[-1]["what"] == "appliance test board"
    (tmp_path / "key").write_text("0" * 31 + "1")
    status, _, err = run("show", f"udp://{host}", "--timeout", "0.3")
    assert status == 1
    assert "none under this key" in err
    (tmp_path / "key").chmod(0o644)
    assert "has mode 0644" in run("show", f"udp://{host}")[2]


def test_a_board_that_is_silent_or_without_a_key_is_an_error_in_time(run, board, tmp_path):
    board.silent = True
    url = f"udp://127.0.0.1:{board.port}"
    status, _, err = run("show", url, "--key-file", str(tmp_path / "key"), "--timeout", "0.2")
    assert status == 1
    assert "no answer within 0.2 s" in err
    assert "--key-file" in run("show", url)[2]
