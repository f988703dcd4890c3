"""Environment variables and URLs as values."""

import logging
import re

import pytest

from afflux import settings
from afflux.group.aggregator_url import Location, lanes_to, local_address_towards
from afflux.settings import Settings, SettingsError


def test_defaults():
    assert Settings.from_environment({}) == Settings()


def test_values():
    got = Settings.from_environment(
        {"AFFLUX_AGGREGATOR": "udp://h:1", "AFFLUX_LANES": "5", "AFFLUX_PEER_TIMEOUT": "2.5"}
    )
    assert got == Settings(aggregator="udp://h:1", lanes=5, peer_timeout_s=2.5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AFFLUX_LANES", "0"),
        ("AFFLUX_LANES", "many"),
        ("AFFLUX_SLOTS", "513"),
        ("AFFLUX_PEER_TIMEOUT", "0"),
        ("AFFLUX_PEER_TIMEOUT", "nan"),
        ("AFFLUX_TEST_LOSS", "1"),
        ("AFFLUX_TEST_LOSS", "-0.1"),
    ],
)
def test_wrong_values_are_named(name, text):
    with pytest.raises(SettingsError, match=re.escape(f"{name}={text!r}")):
        Settings.from_environment({name: text})


def test_unknown_variables_are_reported(caplog, monkeypatch):
    monkeypatch.setattr(settings, "_warned", set())
    with caplog.at_level(logging.WARNING, logger="afflux"):
        Settings.from_environment({"AFFLUX_SLOT": "3", "OTHER": "x"})
        Settings.from_environment({"AFFLUX_SLOT": "3"})
    assert [record.args[0] for record in caplog.records] == ["AFFLUX_SLOT"]


def test_every_variable_is_in_the_table_with_its_default():
    rows = dict(re.findall(r"^\| (AFFLUX_\w+) \| ([^|]+) \|", settings.__doc__, re.MULTILINE))
    assert set(rows) == set(settings._VARIABLES) | settings.BUILD_VARIABLES
    for name, (field, _) in settings._VARIABLES.items():
        default = getattr(Settings(), field)
        if default is not None:
            shown = rows[name].rpartition(", ")[2].strip()
            assert shown in (str(default), default if default == "auto" else f"{default:g}")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("auto", Location("auto")),
        ("shm://", Location("shm")),
        ("soft://", Location("soft")),
        ("rtl://", Location("rtl")),
        ("rtl://?bus_bits=32", Location("rtl", bus_bits=32)),
        ("soft://?group=239.1.2.3:4701", Location("soft", group="239.1.2.3:4701")),
        (
            "rtl://?group=239.1.2.3:4701&bus_bits=32",
            Location("rtl", bus_bits=32, group="239.1.2.3:4701"),
        ),
        ("udp://10.0.0.9", Location("udp", "10.0.0.9", 4700)),
        ("udp://h:9?parent=up", Location("udp", "h", 9, parent=("up", 4700))),
        ("udp://h?parent=10.0.0.1:8", Location("udp", "h", 4700, parent=("10.0.0.1", 8))),
        ("udp://host:99", Location("udp", "host", 99)),
    ],
)
def test_urls(url, want):
    assert Location.parse(url) == want


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "soft",
            "auto://",
            "shm://h",
            "shm://?group=239.1.2.3:4701",
            "http://x",
            "udp://",
            "udp://h:0",
            "udp://h/x",
            "soft://h",
            "rtl://?x=1",
        ),
        *("soft://?group=", "soft://?group=10.0.0.1:4701", "udp://h?group=239.1.2.3:4701"),
        *("udp://h?parent=", "udp://h?parent=x:0", "udp://h?parent=x:y", "udp://h?parent=x/y"),
        *("soft://?parent=h", "udp://u@h", "udp://h:99999", "udp://h?parent=u@h"),
    ],
)
def test_wrong_urls(url):
    with pytest.raises(SettingsError, match="AFFLUX_AGGREGATOR"):
        Location.parse(url)


def test_the_way_to_this_host_is_loopback():
    assert lanes_to("127.0.0.1", 4700) == 16
    assert local_address_towards("127.0.0.1") == "127.0.0.1"
    assert local_address_towards("no-such-host.invalid") == "127.0.0.1"
