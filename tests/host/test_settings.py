"""Environment variables and URLs as values."""

import logging
import re
from pathlib import Path

import pytest

from afflux.group.settings import variables as settings
from afflux.group.settings.aggregator_url import AggregatorUrl, lanes_to, local_address_towards
from afflux.group.settings.variables import Settings, SettingsError
from afflux_drivers.sockets import MulticastGroup
from afflux_sim.rtl.waves import Waves

REPO = Path(__file__).resolve().parents[2]
GROUP = MulticastGroup("239.1.2.3", 4701)


def test_defaults():
    assert Settings.from_environment({}) == Settings()


def test_values():
    got = Settings.from_environment(
        {"AFFLUX_AGGREGATOR": "udp://h:1", "AFFLUX_LANES": "5", "AFFLUX_PEER_TIMEOUT": "2.5"}
    )
    assert got == Settings(aggregator=AggregatorUrl("udp", "h", 1), lanes=5, peer_timeout_s=2.5)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("AFFLUX_AGGREGATOR", "tcp://h", "did you mean udp://h?"),
        ("AFFLUX_LANES", "0", "an integer from 1 to 16"),
        ("AFFLUX_LANES", "many", "an integer from 1 to 16"),
        ("AFFLUX_SLOTS", "513", "an integer from 1 to 512"),
        ("AFFLUX_PEER_TIMEOUT", "0", "a positive number of seconds"),
        ("AFFLUX_PEER_TIMEOUT", "nan", "a positive number of seconds"),
        ("AFFLUX_PEER_TIMEOUT", "soon", "a positive number of seconds"),
        ("AFFLUX_TEST_LOSS", "1", "at least 0 and less than 1"),
        ("AFFLUX_TEST_LOSS", "-0.1", "at least 0 and less than 1"),
        ("AFFLUX_TEST_LOSS", "nan", "at least 0 and less than 1"),
        ("AFFLUX_TEST_LOSS", "much", "at least 0 and less than 1"),
        ("AFFLUX_ADAPTER", "rust", "auto, native or python"),
        ("AFFLUX_TEST_SEED", "1.5", "an integer from 0"),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(name, text, allowed):
    with pytest.raises(SettingsError, match=re.escape(f"{name}={text!r}: ")) as caught:
        Settings.from_environment({name: text})
    assert allowed in str(caught.value)


def test_the_loss_switch_is_read_once_and_handed_down():
    found = Settings.from_environment({"AFFLUX_TEST_LOSS": "0.25", "AFFLUX_TEST_SEED": "9"})
    assert (found.test_loss, found.test_seed) == (0.25, 9)
    # Below the host nothing looks at the environment.
    readers = [
        path.name
        for path in (REPO / "drivers/afflux_drivers").rglob("*.py")
        if re.search(r"\benviron\b|getenv", path.read_text(encoding="utf-8"))
    ]
    assert readers == []


def test_unknown_variables_are_reported(caplog, monkeypatch):
    monkeypatch.setattr(settings, "_warned", set())
    with caplog.at_level(logging.WARNING, logger="afflux"):
        Settings.from_environment({"AFFLUX_SLOT": "3", "OTHER": "x"})
        Settings.from_environment({"AFFLUX_SLOT": "3"})
    assert [record.args[0] for record in caplog.records] == ["AFFLUX_SLOT"]


def test_every_variable_is_in_the_table_with_its_default():
    rows = dict(re.findall(r"^\| (AFFLUX_\w+) \| ([^|]+) \|", settings.__doc__, re.MULTILINE))
    assert set(rows) == set(settings.VARIABLES) | settings.READ_ELSEWHERE
    for name, (field, _) in settings.VARIABLES.items():
        default = getattr(Settings(), field)
        if default is not None:
            shown = rows[name].rpartition(", ")[2].strip()
            numeric = isinstance(default, int | float)
            assert shown in (str(default), f"{default:g}" if numeric else "")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("auto", AggregatorUrl("auto")),
        ("shm://", AggregatorUrl("shm")),
        ("soft://", AggregatorUrl("soft")),
        ("rtl://", AggregatorUrl("rtl")),
        ("rtl://?bus_bits=32", AggregatorUrl("rtl", bus_bits=32)),
        ("soft://?group=239.1.2.3:4701", AggregatorUrl("soft", group=GROUP)),
        (
            "rtl://?group=239.1.2.3:4701&bus_bits=32",
            AggregatorUrl("rtl", bus_bits=32, group=GROUP),
        ),
        ("rtl://?waves=/x/y.fst", AggregatorUrl("rtl", waves=Waves(Path("/x/y.fst")))),
        (
            "rtl://?bus_bits=32&waves=y.vcd&waves_window=5:9",
            AggregatorUrl("rtl", bus_bits=32, waves=Waves(Path("y.vcd"), 5, 9)),
        ),
        ("udp://10.0.0.9", AggregatorUrl("udp", "10.0.0.9", 4700)),
        ("udp://h:9?parent=up", AggregatorUrl("udp", "h", 9, parent=("up", 4700))),
        ("udp://h?parent=10.0.0.1:8", AggregatorUrl("udp", "h", 4700, parent=("10.0.0.1", 8))),
        ("udp://host:99", AggregatorUrl("udp", "host", 99)),
    ],
)
def test_urls(url, want):
    found = AggregatorUrl.parse(url)
    assert found == want
    assert AggregatorUrl.parse(str(found)) == want


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("auto", "auto"),
        ("rtl://?bus_bits=512", "rtl://"),
        ("rtl://?group=239.1.2.3:4701&bus_bits=32", "rtl://?bus_bits=32&group=239.1.2.3:4701"),
        ("rtl://?waves_window=5:&waves=/x/y.fst", "rtl://?waves=/x/y.fst&waves_window=5:"),
        ("rtl://?waves=a%26b.vcd&waves_window=0:", "rtl://?waves=a%26b.vcd"),
        ("udp://h", "udp://h:4700"),
        ("udp://h:9?parent=up", "udp://h:9?parent=up:4700"),
        ("udp://[::1]:9", "udp://[::1]:9"),
    ],
)
def test_a_url_is_shown_in_one_way(url, shown):
    assert str(AggregatorUrl.parse(url)) == shown


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
        *("rtl://?waves=", "rtl://?waves=x", "rtl://?waves=x.vcd&waves_window=9"),
        *("rtl://?waves_window=1:2", "soft://?waves=x.vcd", "rtl://?waves=x.vcd&waves_window=3:2"),
        *("soft://?group=", "soft://?group=10.0.0.1:4701", "udp://h?group=239.1.2.3:4701"),
        *("udp://h?parent=", "udp://h?parent=x:0", "udp://h?parent=x:y", "udp://h?parent=x/y"),
        *("soft://?parent=h", "udp://u@h", "udp://h:99999", "udp://h?parent=u@h"),
    ],
)
def test_wrong_urls(url):
    with pytest.raises(ValueError, match=r"; (expected|did you mean|known are) "):
        AggregatorUrl.parse(url)
    with pytest.raises(SettingsError, match=re.escape(f"AFFLUX_AGGREGATOR={url!r}: ")):
        Settings.from_environment({"AFFLUX_AGGREGATOR": url})


def test_the_way_to_this_host_is_loopback():
    assert lanes_to("127.0.0.1", 4700) == 16
    assert local_address_towards("127.0.0.1") == "127.0.0.1"
    assert local_address_towards("no-such-host.invalid") == "127.0.0.1"
