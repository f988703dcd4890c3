"""URLs of devices: what is one, its one form, and what is wrong with the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux_drivers.device.location import DeviceUrl


@pytest.mark.parametrize(
    ("text", "form", "url"),
    [
        ("udp://10.0.0.9", "udp://10.0.0.9", DeviceUrl("udp", "10.0.0.9", 4699)),
        ("udp://10.0.0.9:4699", "udp://10.0.0.9", DeviceUrl("udp", "10.0.0.9", 4699)),
        ("udp://board:77", "udp://board:77", DeviceUrl("udp", "board", 77)),
        (
            "pcie://0000:3B:00.0",
            "pcie://0000:3b:00.0",
            DeviceUrl("pcie", "0000:3b:00.0", bar=2, offset=0x100000),
        ),
        (
            "pcie://3b:00.1?bar=0&offset=4096",
            "pcie://0000:3b:00.1?bar=0&offset=0x1000",
            DeviceUrl("pcie", "0000:3b:00.1", bar=0, offset=0x1000),
        ),
        (
            "pcie://10000:01:00.0?bar=2",
            "pcie://10000:01:00.0",
            DeviceUrl("pcie", "10000:01:00.0", bar=2, offset=0x100000),
        ),
        ("file:///dev/uio0", "file:///dev/uio0", DeviceUrl("file", "/dev/uio0")),
        (
            "file:///a%20b?offset=0x40",
            "file:///a%20b?offset=0x40",
            DeviceUrl("file", "/a b", offset=0x40),
        ),
        # Bytes that are not text, as a shell gives them and as a URL has them.
        ("file:///bar\udcff", "file:///bar%FF", DeviceUrl("file", "/bar\udcff")),
        ("file:///bar%ff%C3%A4", "file:///bar%FF%C3%A4", DeviceUrl("file", "/bar\udcff\u00e4")),
    ],
)
def test_reads_a_url_and_gives_it_back_in_one_form(text, form, url):
    assert DeviceUrl.parse(text) == url
    assert str(url) == form
    assert DeviceUrl.parse(form) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not the URL of a device"),
        ("10.0.0.9", "not the URL of a device"),
        ("tcp://10.0.0.9", "not the URL of a device"),
        ("udp://", "no address"),
        ("udp://[fd00::9]", "IPv4 only"),
        ("udp://fd00::9", "IPv4 only"),
        ("udp://10.0.0.9:0", "from 1 to 65535"),
        ("udp://10.0.0.9:65536", "from 1 to 65535"),
        ("udp://10.0.0.9/x", "no path"),
        ("udp://10.0.0.9?bar=2", "'bar' is not known here"),
        ("udp://user@10.0.0.9", "no address"),
        ("pcie://3b:00", "not a PCIe function"),
        ("pcie://0000:3b:20.0", "not a PCIe function"),
        ("pcie://0000:3b:00.8", "not a PCIe function"),
        ("pcie://0000:3b:00.0/x", "not a PCIe function"),
        ("pcie://0000:3b:00.0?bar=6", "at least 0 and less than 6"),
        ("pcie://0000:3b:00.0?bar=-1", "at least 0"),
        ("pcie://0000:3b:00.0?offset=0x100002", "multiple of 4"),
        ("pcie://0000:3b:00.0?offset=one", "not a number"),
        ("pcie://0000:3b:00.0?bar=1&bar=2", "twice"),
        ("pcie://0000:3b:00.0?bar", "expected"),
        ("file://host/path", "three slashes"),
        ("file://", "must be absolute"),
        ("file:///path#x", "ends with #x"),
        ("file:///path?size=3", "'size' is not known"),
    ],
)
def test_names_the_url_and_what_is_wrong_with_it(text, reason):
    with pytest.raises(ValueError, match="expected udp://ADDRESS") as caught:
        DeviceUrl.parse(text)
    assert repr(text) in str(caught.value)
    assert reason in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_refused(text):
    for start in ("", "udp://", "pcie://", "file:///"):
        try:
            url = DeviceUrl.parse(start + text)
        except ValueError:
            continue
        assert DeviceUrl.parse(str(url)) == url
