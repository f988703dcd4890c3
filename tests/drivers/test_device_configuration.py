"""Jobs, addresses and resets of a device, on the registers of the engine in software."""

import secrets

import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.device.configuration import (
    address_of_text,
    mac_of_text,
    reset_jobs,
    reset_user_logic,
    set_local,
)
from afflux_drivers.device.counters import difference, engine_counters
from afflux_drivers.device.description import describe, jobs, local_addresses
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.device.location import DeviceUrl
from afflux_hdl.contract import registers
from tests.support.drivers.fake_pci import CARD, FakePci, register_image

URL = DeviceUrl("file", "/engine")
MAC = 0x02AF_F100_0009


class Engine:
    """The registers of an engine in software, with a record of writes."""

    def __init__(self):
        self.engine = SoftEngine(jobs=4, slots=64)
        self.writes = []
        self.stuck = set()
        self.busy = False

    def read(self, address):
        if self.busy and address == registers.address_of("job_busy"):
            return 1
        return self.engine.read(address) if address < registers.NODE_BASE else 0

    def write(self, address, value):
        name = next(each.name for each in registers.REGISTERS if each.address == address)
        self.writes.append((name, value))
        if name not in self.stuck:
            self.engine.write(address, value)

    def close(self):
        pass

    def create(self, number):
        values = {
            "job_index": number,
            "job_key_low": secrets.randbits(32),
            "job_key_high": secrets.randbits(32),
            "job_workers": 2,
            "job_lanes": 4,
            "job_slot_base": 8 * number,
            "job_slot_count": 8,
            "job_round": 0,
            "job_credit": 4,
            "job_command": registers.Command.CREATE,
        }
        for name, value in values.items():
            self.engine.write(registers.address_of(name), value)
        assert self.engine.read(registers.address_of("job_enabled"))


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def device(engine):
    return Device(URL, engine)


def test_finds_the_jobs_and_leaves_the_index_as_it_was(engine, device):
    for number in (3, 1):
        engine.create(number)
    device.write(registers.address_of("job_index"), 2)
    assert [each["job"] for each in jobs(device)] == [1, 3]
    assert device.read(registers.address_of("job_index")) == 2


def test_ends_all_jobs(engine, device):
    for number in (0, 2):
        engine.create(number)
    assert reset_jobs(device) == [0, 2]
    assert jobs(device) == []
    assert reset_jobs(device) == []


def test_a_command_that_does_not_end_is_an_error(engine, device, monkeypatch):
    monkeypatch.setattr("afflux_drivers.device.description._BUSY_TIMEOUT_S", 0.01)
    engine.busy = True
    engine.writes.clear()
    with pytest.raises(DeviceFailed, match="job_busy"):
        jobs(device)
    assert engine.writes == []


def test_sets_addresses_while_the_engine_has_none(engine, device):
    set_local(device, mac=MAC, address=0x0A00_0009, port=4700)
    assert engine.writes[-5:] == [
        ("local_address", 0),
        ("local_mac_low", MAC & 0xFFFF_FFFF),
        ("local_mac_high", MAC >> 32),
        ("local_port", 4700),
        ("local_address", 0x0A00_0009),
    ]
    assert local_addresses(device) == {
        "mac": "02:af:f1:00:00:09",
        "address": "10.0.0.9",
        "port": 4700,
    }
    set_local(device, port=5000)
    assert local_addresses(device)["port"] == 5000
    assert local_addresses(device)["address"] == "10.0.0.9"
    assert describe(device)["local"]["mac"] == "02:af:f1:00:00:09"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"address": 0x0A00_0009}, "needs a MAC address"),
        ({"mac": MAC, "address": 0x0A00_0009, "port": 0}, "from 1 to 65531, not 0"),
        ({"mac": MAC, "address": 0x0A00_0009, "port": 65532}, "from 1 to 65531, not 65532"),
        ({"port": 1 << 16}, "not 65536"),
    ],
)
def test_what_cannot_be_set_changes_nothing(engine, device, wanted, reason):
    with pytest.raises(DeviceFailed, match=reason):
        set_local(device, **wanted)
    assert engine.writes == []


def test_the_last_port_can_be_set(device):
    set_local(device, mac=MAC, address=0x0A00_0009, port=65531)


def test_running_jobs_keep_their_engine(engine, device):
    engine.create(1)
    with pytest.raises(DeviceFailed, match=r"job\(s\) 1 exist"):
        set_local(device, mac=MAC)
    assert not any(name.startswith("local") for name, _ in engine.writes)
    set_local(device, mac=MAC, although_jobs_run=True)


def test_what_was_written_is_read_back(engine, device):
    engine.stuck = {"local_port"}
    with pytest.raises(DeviceFailed, match="local_port reads 0x0 after 0x7 was written"):
        set_local(device, mac=MAC, port=7)


@pytest.mark.parametrize("text", ["02:af:f1:00:00:09", "02-AF-F1-00-00-09"])
def test_reads_a_mac_address(text):
    assert mac_of_text(text) == MAC


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("03:af:f1:00:00:09", "of a group"),
        ("ff:ff:ff:ff:ff:ff", "of a group"),
        ("00:00:00:00:00:00", "nobody's"),
        ("02:af:f1:00:00", "not a MAC address"),
        ("02:af-f1:00:00:09", "not a MAC address"),
        ("02aff1000009", "not a MAC address"),
    ],
)
def test_refuses_what_is_no_hosts_mac_address(text, reason):
    with pytest.raises(ValueError, match=reason):
        mac_of_text(text)


def test_reads_an_address():
    assert address_of_text("10.0.0.9") == 0x0A00_0009
    assert address_of_text("223.255.255.255") == 0xDFFF_FFFF


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "239.1.2.3",
        "255.255.255.255",
        "x",
        "fd00::9",
    ],
)
def test_refuses_what_is_no_hosts_address(text):
    with pytest.raises(ValueError, match=r"not an (IPv4 )?address"):
        address_of_text(text)


def test_differences_of_counters(device):
    zero = engine_counters(device)
    assert set(zero) == {each.name for each in registers.COUNTERS}
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 7}) == {"a": 0, "b": 5}
    assert difference({"a": 9, "b": 2}, {"a": 1, "b": 7}) is None
    # Of 32 bits: gone round, not begun anew.
    for name in ("management_frames", "port0_tx_frames", "host3_c2h_frames"):
        assert difference({name: (1 << 32) - 2}, {name: 3}) == {name: 5}


def test_the_shell_resets_the_engine(tmp_path, monkeypatch):
    pci = FakePci(tmp_path)
    url = DeviceUrl.parse(f"pcie://{CARD}")
    monkeypatch.setattr("afflux_drivers.device.configuration._RESET_TIMEOUT_S", 0.01)
    with pytest.raises(DeviceFailed, match=r"OpenNIC does not report the end .* 0x18 of BAR 2"):
        reset_user_logic(url, sysfs=tmp_path)
    with pci.bar.open("r+b") as file:
        file.seek(0x18)
        file.write(b"\x01")
    reset_user_logic(url, sysfs=tmp_path)
    content = pci.bar.read_bytes()
    assert content[0x14:0x18] == b"\x01\0\0\0"
    # Nothing else was written to.
    assert content[:0x14] == bytes(0x14)
    assert content[0x100000:][:0x1000] == register_image()
