"""Registers in a BAR and in a file: what is checked before the first access, and at each."""

import os
import subprocess
import sys
import threading
from typing import cast

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.device.box import box_counters, describe_box
from afflux_drivers.device.counters import read_counter
from afflux_drivers.device.device import open_device
from afflux_drivers.device.discovery import find_cards
from afflux_drivers.device.errors import DeviceBusy, DeviceFailed, DeviceGone
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.lock import DeviceLock, card_of, registers_of
from afflux_drivers.registers import Registers
from afflux_hdl.contract import box_registers, registers
from tests.support.drivers.fake_pci import BAR_BYTES, CARD, FakePci, register_image
from tests.support.management_board import KEY, BoardOnSocket

LOCAL_PORT = registers.address_of("local_port")
URL = f"pcie://{CARD}"


@pytest.fixture
def pci(tmp_path):
    return FakePci(tmp_path / "sys")


@pytest.fixture
def opened(pci, tmp_path):
    """Return a function that opens the card, and closes it when the test ends."""
    devices = []

    def open_it(url=URL, **options):
        devices.append(open_device(url, sysfs=pci.root, locks=tmp_path, **options))
        return devices[-1]

    yield open_it
    for device in devices:
        device.close()


def test_reads_and_writes_the_registers_of_a_card(pci, opened):
    device = opened()
    assert device.has_node
    assert device.read(registers.address_of("build_slots")) == 512
    device.write(LOCAL_PORT, 4700)
    assert device.read(LOCAL_PORT) == 4700
    content = pci.bar.read_bytes()
    assert content[0x100000 + LOCAL_PORT :][:4] == (4700).to_bytes(4, "little")
    assert content[0x100000:][:LOCAL_PORT] == register_image()[:LOCAL_PORT]


def test_bar_and_offset_are_those_of_the_url(pci, opened):
    pci.set_registers(register_image({"build_slots": 77}), 0x200000)
    device = opened(f"{URL}?offset=0x200000")
    assert device.read(registers.address_of("build_slots")) == 77


def test_a_file_stands_in_for_a_bar(tmp_path):
    path = tmp_path / "bar"
    path.write_bytes(bytes(0x40) + register_image())
    with open_device(f"file://{path}?offset=0x40", locks=tmp_path) as device:
        device.write(LOCAL_PORT, 0x1234)
        assert device.read(LOCAL_PORT) == 0x1234
    assert path.read_bytes()[0x40 + LOCAL_PORT :][:2] == b"\x34\x12"


def test_an_engine_without_a_node_will_do(tmp_path):
    path = tmp_path / "bar"
    path.write_bytes(register_image({"node_identity": 0}))
    with open_device(f"file://{path}", locks=tmp_path) as device:
        assert not device.has_node


@pytest.mark.parametrize(
    ("address", "size"), [(2, 8), (-4, 8), (8, 8), (6, 8), (0, 2), (1 << 62, 8)]
)
def test_no_access_leaves_the_window_or_is_two(address, size):
    window = np.zeros(size, np.uint8)
    # Negative ones are none to the binding.
    expected = (IndexError, TypeError)
    with pytest.raises(expected):
        _native.read_register(window, address)
    with pytest.raises(expected):
        _native.write_register(window, address, 1)
    assert not window.any()


@pytest.mark.parametrize("address", [-4, 2, 0xFFD, 0x1000])
def test_a_register_that_there_is_not_is_named(opened, address):
    device = opened()
    with pytest.raises(DeviceFailed, match=f"no 32-bit register at {address:#x}"):
        device.read(address)
    with pytest.raises(DeviceFailed, match=f"no 32-bit register at {address:#x}"):
        device.write(address, 0)


def test_a_value_that_is_too_wide_is_refused(opened):
    with pytest.raises(ValueError, match="0x100000000 has more than 32 bits"):
        opened().write(LOCAL_PORT, 1 << 32)


def test_what_was_opened_for_reading_changes_nothing(pci, opened):
    before = pci.bar.read_bytes()
    device = opened(exclusive=False)
    with pytest.raises(DeviceFailed, match="opened for reading only"):
        device.write(LOCAL_PORT, 1)
    assert pci.bar.read_bytes() == before


def test_nor_does_an_appliance_that_was_opened_for_reading(tmp_path):
    with BoardOnSocket() as board:
        url = f"udp://127.0.0.1:{board.port}"
        with open_device(url, key=KEY, exclusive=False, locks=tmp_path) as device:
            with pytest.raises(DeviceFailed, match="opened for reading only"):
                device.write(LOCAL_PORT, 1)
            # Another may change it meanwhile.
            with open_device(url, key=KEY, locks=tmp_path) as other:
                other.write(LOCAL_PORT, 2)
        assert board.registers.writes == [(LOCAL_PORT, 2)]
        with pytest.raises(ValueError, match="AFFLUX_DEVICE_KEY_FILE"):
            open_device(url, locks=tmp_path)


def test_a_closed_device_is_an_error_and_no_crash(opened):
    device = opened()
    device.close()
    with pytest.raises(DeviceFailed, match="is closed"):
        device.read(0)
    device.close()


def test_closing_waits_for_those_who_read(opened):
    device = opened()
    errors = []

    def read():
        try:
            while True:
                device.read(0)
        except DeviceFailed as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    device.close()
    for thread in threads:
        thread.join(10)
    assert [error.endswith("is closed") for error in errors] == [True] * 4


def test_a_card_that_is_gone_is_recognised(pci, opened):
    device = opened()
    pci.kill()
    with pytest.raises(DeviceGone, match=rf"{CARD}: register 0x2c reads as ones: .*AER"):
        device.read(LOCAL_PORT)
    with pytest.raises(DeviceGone, match="warm"):
        opened(exclusive=False)


def test_a_register_that_has_only_ones_is_no_dead_card(pci, opened):
    device = opened()
    device.write(registers.address_of("local_address"), 0xFFFF_FFFF)
    assert device.read(registers.address_of("local_address")) == 0xFFFF_FFFF


def test_a_configuration_space_of_ones_is_a_dead_card(pci, opened):
    pci.set_config(CARD, 0, b"\xff" * 64)
    with pytest.raises(DeviceGone, match="configuration space reads as ones"):
        opened()


def test_memory_must_be_enabled(pci, opened):
    pci.set_config(CARD, 4, b"\x45\x05")
    with pytest.raises(DeviceFailed, match=r"memory space is not enabled.*10ee:903f.*/enable"):
        opened()


def test_what_is_no_engine_of_ours_is_shown(pci, opened):
    pci.set_registers(b"\xef\xbe\xad\xde" * 1024)
    with pytest.raises(DeviceFailed, match="identity reads 0xdeadbeef, not 0x41464c58"):
        opened()


def test_a_function_that_there_is_not(opened):
    with pytest.raises(DeviceFailed, match=r"0000:3c:00.0: there is no such PCIe function"):
        opened("pcie://3c:00.0")


@pytest.mark.parametrize(
    ("url", "has"), [(f"{URL}?bar=1", 0), (f"{URL}?offset={BAR_BYTES - 0xFFC:#x}", BAR_BYTES)]
)
def test_a_bar_that_is_too_small(opened, url, has):
    with pytest.raises(DeviceFailed, match=f"has {has} bytes of memory"):
        opened(url)


def test_a_bar_that_cannot_be_opened(pci, opened):
    pci.bar.unlink()
    with pytest.raises(DeviceFailed, match=r"cannot open .*resource2: No such file.*root"):
        opened()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(bytes(0xFFF)), "has 4095 bytes, the registers at 0x0 need"),
        (os.mkfifo, "cannot map"),
    ],
)
def test_a_file_that_cannot_stand_in(tmp_path, make, reason):
    path = tmp_path / "bar"
    make(path)
    with pytest.raises(DeviceFailed, match=reason):
        open_device(f"file://{path}", locks=tmp_path)


def test_one_process_changes_a_device_at_a_time(opened, tmp_path):
    first = opened()
    with pytest.raises(DeviceBusy, match=rf"{URL} .*in use by process {os.getpid()} .*python"):
        opened()
    # Others may look, and change another engine of the card.
    assert opened(exclusive=False).read(0) == registers.IDENTITY
    first.close()
    opened()


def test_nobody_loads_a_card_that_is_in_use(opened, tmp_path):
    reader = opened(exclusive=False)
    name = card_of(DeviceUrl.parse(URL))
    with pytest.raises(DeviceBusy):
        DeviceLock(name, directory=tmp_path)
    reader.close()
    lock = DeviceLock(name, directory=tmp_path)
    with pytest.raises(DeviceBusy, match="in use by process"):
        opened(exclusive=False)
    lock.close()


def test_a_file_whose_name_is_no_text_stands_in_too(tmp_path):
    (tmp_path / "bar\udcff").write_bytes(register_image())
    with open_device(f"file://{tmp_path}/bar%ff", locks=tmp_path) as device:
        assert device.read(registers.address_of("identity")) == registers.IDENTITY


def test_a_file_has_one_lock_by_whatever_name(tmp_path):
    (tmp_path / "bar").write_bytes(register_image())
    (tmp_path / "link").symlink_to("bar")
    with (
        open_device(f"file://{tmp_path}/bar", locks=tmp_path),
        pytest.raises(DeviceBusy),
    ):
        open_device(f"file://{tmp_path}/link", locks=tmp_path)


def test_a_failure_to_open_frees_the_locks(pci, opened):
    pci.kill()
    with pytest.raises(DeviceGone):
        opened()
    pci.set_registers(register_image())
    opened()


TAKER = """
import sys, time
from pathlib import Path
from afflux_drivers.device.errors import DeviceBusy
from afflux_drivers.device.lock import DeviceLock
folder, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
taken = 0
while time.monotonic() < until:
    try:
        lock = DeviceLock("x", directory=folder)
    except DeviceBusy:
        continue
    # Two that are in here at once would both find or both make the file.
    (folder / "inside").touch(exist_ok=False)
    (folder / "inside").unlink()
    lock.close()
    taken += 1
print(taken)
"""


def test_locks_leave_no_files_and_still_keep_others_out(tmp_path):
    """A process that opens a lock's file while it is removed has not got the lock."""
    command = [sys.executable, "-c", TAKER, str(tmp_path), "1.0"]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [taker.communicate(timeout=60)[0] for taker in takers]
    assert [taker.returncode for taker in takers] == [0, 0, 0]
    assert sum(map(int, counts)) > 10
    shared = [DeviceLock("x", shared=True, directory=tmp_path) for _ in range(2)]
    shared[0].close()
    with pytest.raises(DeviceBusy):
        DeviceLock("x", directory=tmp_path)
    shared[1].close()
    assert list(tmp_path.iterdir()) == []


def path_of_a_lock(folder):
    lock = DeviceLock("x", directory=folder)
    (path,) = folder.glob("*.lock")
    lock.close()
    return path


def test_a_lock_is_no_way_to_another_file(tmp_path):
    path = path_of_a_lock(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(DeviceFailed, match="cannot open its lock"):
        DeviceLock("x", directory=tmp_path)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("make", [os.link, lambda victim, path: os.mkfifo(path)])
def test_a_lock_is_no_other_name_of_a_file(tmp_path, make):
    path = path_of_a_lock(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    make(victim, path)
    with pytest.raises(DeviceFailed, match="was not made by this program"):
        DeviceLock("x", directory=tmp_path)
    assert victim.read_text() == "precious"


def test_finds_every_node_of_a_box(pci, opened, tmp_path):
    assert describe_box(opened(exclusive=False), pci.root) is None
    assert box_counters(opened(exclusive=False), pci.root) == {}
    pci.add_box()
    found = list(find_cards(pci.root, tmp_path))
    assert [str(each.url) for each in found] == [URL, f"{URL}?offset=0x102000"]
    assert all(each.build_time for each in found)
    device = opened(f"{URL}?offset=0x102000", exclusive=False)
    assert describe_box(device, pci.root) == {"ports": 2, "nodes": 2, "functions": 1}
    place = box_registers.box_counter_address("tx_dropped", 1, ports=2)
    pci.write_bar(0x100000 + place, (7).to_bytes(4, "little"))
    place = box_registers.box_counter_address("c2h_frames", 0, ports=2)
    pci.write_bar(0x100000 + place, (9).to_bytes(4, "little"))
    counters = box_counters(device, pci.root)
    assert {name: value for name, value in counters.items() if value} == {
        "port1_tx_dropped": 7,
        "host0_c2h_frames": 9,
    }
    assert len(counters) == 2 * len(box_registers.PORT_COUNTERS) + len(box_registers.HOST_COUNTERS)


def test_finds_the_cards_with_an_engine(pci, tmp_path):
    (found,) = find_cards(pci.root, tmp_path)
    assert (str(found.url), found.shell.name, found.build_time) == (URL, "OpenNIC", 1_790_000_000)
    pci.set_registers(bytes(0x1000))
    (found,) = find_cards(pci.root, tmp_path)
    assert found.build_time is None
    assert "identity reads 0x00000000" in found.reason
    # The bridge is none of ours; nor is a card of somebody else.
    (pci.folder(CARD) / "device").write_text("0x9039\n")
    assert list(find_cards(pci.root, tmp_path)) == []
    assert list(find_cards(tmp_path / "none", tmp_path)) == []


def test_a_card_that_is_loaded_is_not_looked_at(pci, tmp_path, monkeypatch):
    """Not even to see whether it has a box: what is off the bus may hang a host that reads it."""
    monkeypatch.setattr("afflux_drivers.device.box.open_bar", None)
    lock = DeviceLock(card_of(DeviceUrl.parse(URL)), directory=tmp_path)
    (found,) = find_cards(pci.root, tmp_path)
    lock.close()
    assert found.build_time is None
    assert "in use by process" in found.reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("udp://localhost:4699", "udp://127.0.0.1"),
        ("udp://127.1", "udp://127.0.0.1"),
        (f"file:///sys/bus/pci/devices/{CARD}/resource2?offset=0x100000", f"pcie://{CARD}"),
        (f"file:///sys/bus/pci/devices/{CARD}/resource0_wc", f"pcie://{CARD}?bar=0&offset=0"),
    ],
)
def test_registers_have_one_name(one, other):
    assert registers_of(DeviceUrl.parse(one)) == registers_of(DeviceUrl.parse(other))


def test_a_bar_by_its_file_is_the_cards(pci, opened, tmp_path):
    file = f"file://{pci.bar}?offset=0x100000"
    opened(file)
    with pytest.raises(DeviceBusy):
        opened()
    with pytest.raises(DeviceBusy):
        DeviceLock(card_of(DeviceUrl.parse(URL)), directory=tmp_path)


def test_all_functions_are_one_card():
    assert {card_of(DeviceUrl.parse(f"pcie://0000:3b:00.{n}")) for n in range(8)} == {
        "pcie://0000:3b:00"
    }


class Racing:
    """A counter that grows by so much between any two reads."""

    def __init__(self, value, step):
        self.value, self.step, self.reads = value, step, 0

    def read(self, address):
        self.value, self.reads = self.value + self.step, self.reads + 1
        return self.value >> 32 if address == 4 else self.value & 0xFFFF_FFFF


@pytest.mark.parametrize("start", [0, *((1 << 32) - n for n in (1, 2, 3)), (5 << 32) - 2])
@pytest.mark.parametrize("step", [0, 1, 1 << 31, 3 << 32])
def test_a_counter_is_read_in_three_reads_however_fast_it_grows(start, step):
    port = Racing(start, step)
    value = read_counter(cast(Registers, port), 0)
    assert start + step <= value <= port.value
    assert port.reads == 3
