"""The contract of the management: settings, layouts, and SipHash beside the golden model's."""

import random

import pytest

from afflux_hdl.contract import management, registers
from afflux_hdl.contract.management import Settings
from afflux_hdl.contract.siphash import siphash
from afflux_sim.golden.siphash import siphash_2_4
from tests.support.management_board import KEY, settings_for


def test_siphash():
    choose = random.Random(1)
    for length in (*range(50), 255, 256, 300):
        key, message = choose.randbytes(16), choose.randbytes(length)
        assert siphash(key, message).to_bytes(8, "little") == siphash_2_4(key, message)
    with pytest.raises(ValueError, match="has 16 bytes, not 3"):
        siphash(b"abc", b"")


@pytest.mark.parametrize("fields", [management.MESSAGE, management.SETTINGS_FIELDS])
def test_fields_follow_one_another(fields):
    end = 0
    for field in fields:
        assert field.offset == end
        end += field.size
    assert end == (
        management.MESSAGE_BYTES if fields is management.MESSAGE else management.SETTINGS_BYTES
    )


def test_addresses_do_not_collide():
    own = [each.address for each in management.MANAGEMENT_REGISTERS]
    own += [
        management.management_counter_address(each.name) for each in management.MANAGEMENT_COUNTERS
    ]
    assert len(set(own)) == len(own)
    assert all(address >= management.MANAGEMENT_BASE and address % 4 == 0 for address in own)
    others = [each.address for each in (*registers.REGISTERS, *registers.NODE_REGISTERS)]
    assert max(others) < management.MANAGEMENT_BASE
    with pytest.raises(KeyError, match="no register of the management is called 'speed'"):
        management.management_address_of("speed")
    with pytest.raises(KeyError, match="no counter of the management"):
        management.management_counter_address("speed")


def test_settings_there_and_back():
    for settings in (
        settings_for("10.0.0.9"),
        settings_for("192.168.1.200", name="", port=1, engine_port=65279, mac=0xFEFFFFFFFFFF),
        settings_for(None, name="x" * 16),
    ):
        assert Settings.from_bytes(settings.to_bytes()) == settings
        assert repr(KEY) not in repr(settings) and KEY.hex() not in repr(settings)


def test_damaged_settings():
    data = settings_for("10.0.0.9").to_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="settings"):
            Settings.from_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="64 bytes, not 63"):
        Settings.from_bytes(data[:-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mac": 0}, "MAC address of one host"),
        ({"mac": 0x0100_0000_0001}, "MAC address of one host, not 0x010000000001"),
        ({"mac": 1 << 48}, "MAC address of one host"),
        ({"address": "10.0.0"}, "address must be an IPv4 address such as 10.0.0.9, not '10.0.0'"),
        ({"address": "224.0.0.1"}, "address 224.0.0.1 is not an address that one host"),
        ({"address": "0.0.0.0"}, "address 0.0.0.0 is not"),
        ({"controller": "255.255.255.255"}, "controller 255.255.255.255 is not"),
        ({"controller": "10.0.0.9"}, "address and controller are both 10.0.0.9"),
        ({"key": b"x" * 15}, "key must have 16 bytes, not 15"),
        ({"key": bytes(16)}, "key must not be all zeros"),
        ({"port": 0}, "port must be 1 to 65535, not 0"),
        ({"engine_port": 65536}, "engine_port must be 1 to 65535, not 65536"),
        ({"engine_port": 65280}, "engine_port must be 1 to 65279, not 65280: the 256 ports that"),
        ({"port": 4700}, "port 4700 is the engine's: its jobs are at 4700 to 4956"),
        ({"port": 4956}, "port 4956 is the engine's: its jobs are at 4700 to 4956"),
        ({"address": None, "engine_port": 68}, "engine_port must be more than 68 with DHCP"),
        ({"port": 4955}, "port 4955 is the engine's"),
        ({"port": 68}, "port 68 is that of DHCP clients"),
        ({"name": "x" * 17}, "name must have up to 16"),
        ({"name": "Zürich"}, "name must have up to 16"),
        ({"name": "a\nb"}, "name must have up to 16"),
    ],
)
def test_settings_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        settings_for(**({"address": "10.0.0.9"} | change))
