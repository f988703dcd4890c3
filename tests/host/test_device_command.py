"""The command `afflux device`, on a folder that stands in for sysfs and a file for a BAR."""

import json
import os
import threading

import pytest

from afflux.commands import cli
from afflux_drivers.device.device import open_device
from afflux_hdl.contract import registers
from tests.support.drivers.fake_pci import CARD, FakePci, register_image

URL = f"pcie://{CARD}"


@pytest.fixture
def pci(tmp_path):
    return FakePci(tmp_path / "sys")


@pytest.fixture
def run(pci, tmp_path, capsys, monkeypatch):
    """Return a function that runs the command and returns its status, output and errors."""
    monkeypatch.delenv("AFFLUX_DEVICE_KEY_FILE", raising=False)

    def run_it(*words):
        words = ["device", *words, "--sysfs", str(pci.root), "--locks", str(tmp_path)]
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run_it


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


def test_a_board_that_is_named_and_has_no_key_is_an_error(run):
    status, out, _ = run("list", "10.0.0.9")
    assert status == 1
    assert "udp://10.0.0.9" in out
    assert "--key-file" in out


def test_shows_a_card(run, pci):
    before = pci.bar.read_bytes()
    status, out, _ = run("show", URL, "--registers")
    assert status == 0
    values = dict(row.split(None, 1) for row in out.partition("\n\n")[0].splitlines())
    assert values["url"] == URL
    assert values["release"] == "0.1.0"
    assert values["built"] == "2026-09-21 14:13:20 UTC"
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


def test_jobs_that_there_are_not_need_no_reset(run):
    assert run("reset", URL) == (0, f"{URL}: no jobs\n", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["show", "tcp://10.0.0.9"], "expected udp://ADDRESS"),
        (["show", URL, "--timeout", "0"], "not a number of seconds"),
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
    assert status == 1
    assert words[0] in err
