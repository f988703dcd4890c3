"""How many bytes more a rank may send to save a hop."""

import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from afflux.group.forming.one_hop import one_hop_bytes

LOOPBACK = "127.0.0.1"
"""Its speed is not known, so it counts as 10 Gbit/s: 1,250 bytes in a microsecond."""


def stream(microseconds: int) -> Any:
    info = bytes(148) + struct.pack("=I", microseconds)
    return SimpleNamespace(getsockopt=lambda level, option, size: info[:size])


@pytest.mark.parametrize(
    ("trips_us", "expected"),
    [
        ([], 50_000),
        ([20], 62_500),
        ([20, 100, 60], 112_500),
        ([0xFFFF_FFFF], 50_000),  # no sample
        ([10_000_000], 1 << 20),
    ],
)
def test_it_goes_by_the_longest_round_trip(trips_us, expected):
    assert one_hop_bytes(map(stream, trips_us), LOOPBACK) == expected


@pytest.mark.parametrize(("mbit", "expected"), [(1000, 16 << 10), (100_000, 625_000), (0, 62_500)])
def test_it_goes_by_the_port(monkeypatch, mbit, expected):
    monkeypatch.setattr("afflux.group.forming.one_hop.link_mbit", lambda address: mbit)
    assert one_hop_bytes([stream(20)], LOOPBACK) == expected


def test_linux_measures_round_trips():
    with (
        socket.create_server((LOOPBACK, 0)) as listener,
        socket.create_connection(listener.getsockname()) as tcp,
    ):
        accepted, _ = listener.accept()
        with accepted:
            # Below a second on any machine.
            assert 50_000 <= one_hop_bytes([tcp, accepted], LOOPBACK) <= 1 << 20


def test_a_kernel_that_says_less_is_no_error():
    short: Any = SimpleNamespace(getsockopt=lambda level, option, size: bytes(104))
    assert one_hop_bytes([short], LOOPBACK) == 50_000
