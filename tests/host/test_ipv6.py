"""Addresses of IPv6 as users give them, and as hosts have them."""

import re
from pathlib import Path

import pytest

from afflux.commands import serve
from afflux.commands.info import interfaces
from afflux.group.settings import host_address
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.ipv6_addresses import ipv6_addresses, link_local_addresses
from afflux.group.settings.variables import Settings, SettingsError
from tests.support.host import serving


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("udp://[::1]", AggregatorUrl("udp", "::1", 4700)),
        ("udp://[fd00::1]:9", AggregatorUrl("udp", "fd00::1", 9)),
        # One address, however it is written: ranks compare them.
        ("udp://[FD00:0::01]:9", AggregatorUrl("udp", "fd00::1", 9)),
        ("udp://[fe80::1%eth0]", AggregatorUrl("udp", "fe80::1%eth0", 4700)),
        ("udp://[fe80::1%25eth0]", AggregatorUrl("udp", "fe80::1%eth0", 4700)),
        ("udp://h?parent=[fd00::9]:8", AggregatorUrl("udp", "h", 4700, parent=("fd00::9", 8))),
        (
            "udp://[fd00::1],udp://10.0.0.1:8",
            AggregatorUrl("udp", "fd00::1", 4700, others=(("10.0.0.1", 8),)),
        ),
    ],
)
def test_urls(url, want):
    found = AggregatorUrl.parse(url)
    assert found == want
    assert AggregatorUrl.parse(str(found)) == want


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("udp://fd00::1", "'fd00::1' has several colons: an IPv6 address stands in brackets"),
        ("udp://fd00::1:4700", "'fd00::1:4700' has several colons"),
        ("udp://h?parent=fd00::1", "'fd00::1' has several colons"),
        ("udp://[fe80::1]:4700", "'fe80::1' is a link-local address"),
        ("udp://[ff02::1]:4700", "'ff02::1' is a multicast address"),
        ("udp://[fd00::g]:4700", "IPv6|does not appear to be an IPv4 or IPv6 address"),
        ("udp://[fd00::1", "IPv6"),
        ("udp://h?parent=[10.0.0.1]", r"'10\.0\.0\.1' is not an IPv6 address"),
        ("udp://[fd00::1]:0", r"'\[fd00::1\]:0' has the port 0: it must be from 1 to 65535"),
        ("udp://[fd00::1]:x", r"'\[fd00::1\]:x' is not a host or host:port"),
    ],
)
def test_wrong_urls_are_named_with_what_is_wrong(url, why):
    start = re.escape(f"AFFLUX_AGGREGATOR={url!r}: ")
    with pytest.raises(
        SettingsError, match=f"{start}.*({why}).*; (expected|did you mean|known are)"
    ):
        Settings.from_environment({"AFFLUX_AGGREGATOR": url})


TABLE = """\
fd770000000000000000000000000009 02 40 00 01 eth0
fd770000000000000000000000000001 02 40 00 80 eth0
fe800000000000000000000000000001 02 40 20 80 eth0
fe800000000000000000000000000002 03 40 20 80 eth1
fd770000000000000000000000000003 04 40 00 c0 eth2
fd770000000000000000000000000004 04 40 00 88 eth2
fd780000000000000000000000000005 04 40 00 80 eth2
00000000000000000000000000000001 01 80 10 80 lo
"""


def test_addresses_that_mean_something_elsewhere(tmp_path, monkeypatch):
    table = tmp_path / "if_inet6"
    table.write_text(TABLE)
    # A temporary one comes last; tentative and failed ones are not in use.
    addresses = {"eth0": ["fd77::1", "fd77::9"], "eth2": ["fd78::5"]}
    assert ipv6_addresses(table) == addresses
    assert link_local_addresses(table) == {"eth0": "fe80::1", "eth1": "fe80::2"}
    assert ipv6_addresses(Path(tmp_path / "none")) == {}
    monkeypatch.setattr(host_address, "ipv6_addresses", lambda: addresses)
    monkeypatch.setattr(host_address, "link_local_addresses", lambda: link_local_addresses(table))
    monkeypatch.setattr(host_address.socket, "if_nameindex", list)
    find = host_address.address_of_interface
    assert find("eth2") == "fd78::5"
    assert find("fd77::/16") == "fd77::1"
    assert find("fd77::9") == "fd77::9"
    assert find("fd77::8/125") == "fd77::9"
    with pytest.raises(OSError, match=r"AFFLUX_INTERFACE=eth1: .* only eth0 fd77::1, eth2 fd78::5; "
                       "eth1 has the link-local address fe80::2"):  # fmt: skip
        find("eth1")
    with pytest.raises(OSError, match=r"AFFLUX_INTERFACE=fd99::/64: "):
        find("fd99::/64")


SERVE = (str(Path(serve.__file__)),)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("rtl --host ::1", "--host ::1: the engine rtl has IPv4 only"),
        (
            "node --host fd00::1 --network-tap a --host-tap b",
            "--host fd00::1: the engine node has IPv4 only",
        ),
        ("soft --host [::1]", "--host [::1]: here an address stands without brackets"),
        (
            "soft --host fe80::1 --port 0",
            "[fe80::1]:0: fe80::1 is a link-local address, to which an interface must be named: "
            "fe80::1%eth0, for example",
        ),
    ],
)
def test_what_an_aggregator_cannot_listen_at(options, why):
    process, line = serving.start(engine=options.split(), program=SERVE)
    assert serving.finish(process) == 1
    assert line == f"afflux: cannot serve: {why}\n"


def test_an_interface_is_shown_with_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(interfaces, "ipv6_addresses", lambda: {"ghost0": ["fd77::1", "fd77::9"]})
    for name in ("ghost0", "ghost1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mtu").write_text("1400")
    (shown, bare) = interfaces.read_interfaces(tmp_path)
    assert (shown.address, shown.lanes) == ("fd77::1", 4)
    assert (bare.address, bare.lanes) == ("", 5)
