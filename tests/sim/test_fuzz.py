"""The fuzzer: frames as scapy builds them, a short run on the engine, and a bug that it finds."""

import random

import pytest
from amaranth.hdl import Module
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.engine.admit import Admit
from tests.checks.engine_checks import BUILDS, DROPS, open_engine
from tests.fuzz.answers import read_answer
from tests.fuzz.fuzzer import BUILD, Fuzzer
from tests.scenarios.afflux_layer import Afflux
from tests.scenarios.packing import HEADER, Peer, pack_frame, repaired, sealed
from tests.support.overriding import found_in_engine

ENGINE = Peer(bytes.fromhex("02affa000001"), bytes((10, 0, 0, 9)), 4700)
WORKER = Peer(bytes.fromhex("020000000102"), bytes((10, 1, 2, 3)), 50001)


def packed(blocks: int, checked: bool) -> bytes:
    choose = random.Random(blocks)
    header = HEADER.pack(0x20, 0x21, 3, 4, 500, (1 << blocks) - 1, 2**31 + 5, 2**63 + 9, 77)
    return pack_frame(WORKER, ENGINE, header + choose.randbytes(64 + 256 * blocks), checked=checked)


@pytest.mark.parametrize("checked", [True, False])
def test_frames_are_as_scapy_builds_them(checked: bool) -> None:
    frame = packed(2, checked)
    ether = Ether(src="02:00:00:00:01:02", dst="02:af:fa:00:00:01")
    udp = UDP(sport=50001, dport=4700)
    if not checked:
        udp.chksum = 0
    packet = Afflux(
        version=2, type=0, opcode=2, dtype=1, job=3, worker=4, slot=500, present=3,
        round=2**31 + 5, key=2**63 + 9, operation=77,
        words=[int.from_bytes(frame[at : at + 4], "little") for at in range(64, 128, 4)],
    )  # fmt: skip
    built = ether / IP(src="10.1.2.3", dst="10.0.0.9", flags="DF", id=0) / udp / packet
    assert bytes(built / frame[128:]) == frame


def test_repair_makes_both_checksums_right() -> None:
    frame = bytearray(packed(1, True))
    frame[200] ^= 1
    frame[22] ^= 4
    again = Ether(repaired(bytes(frame)))
    right = again.copy()
    del right[IP].chksum, right[UDP].chksum
    rebuilt = Ether(bytes(right))
    assert (again[IP].chksum, again[UDP].chksum) == (rebuilt[IP].chksum, rebuilt[UDP].chksum)


@pytest.mark.parametrize("at", [6, 13, 14, 17, 22, 24, 26, 39, 42])
def test_a_malformed_answer_is_seen(at: int) -> None:
    header = HEADER.pack(0x28, 0, 0, 1, 2, 1, 3, 4, 5)
    right = sealed(pack_frame(ENGINE, WORKER, header + bytes(64 + 256), checked=False))
    assert read_answer(right, ENGINE, 4).slot == 2
    wrong = bytearray(right)
    wrong[at] ^= 0x20
    with pytest.raises(AssertionError):
        read_answer(bytes(wrong), ENGINE, 4)


@pytest.mark.parametrize(
    ("bus_bits", "frames"),
    [(32, 12_000), (512, 4_000), pytest.param(512, 12_000, marks=pytest.mark.long)],
)
def test_a_short_run(bus_bits: int, frames: int) -> None:
    """All is well, and the traffic was of every kind.

    On the engines of other tests, whose models are there; `make fuzz` has sizes of its own.
    """
    with open_engine(bus_bits) as engine:
        report = Fuzzer(engine, seed=3, batch=500, build=BUILDS[bus_bits]).run(frames)
    never = {name for name, count in report.counters.items() if count == 0}
    assert never <= DROPS
    assert report.results > frames // 24


@pytest.mark.slow
@pytest.mark.long
def test_a_bug_is_found() -> None:
    """One slot too many for a job."""

    def one_slot_more(m: Module, admit: Admit) -> None:
        frame, job = admit.cycle1.frame, admit.cycle1.job
        m.d.sync += admit.cycle2.checks.slot.eq(frame.header.slot <= job.count)

    with found_in_engine(Admit, one_slot_more, 512, BUILD) as engine:
        Fuzzer(engine, seed=3).run(60_000)
