"""Each part of the node alone, beside a plain statement of what it must do."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from operator import lt
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib import packet_fifo
from afflux_hdl.node import arp, classify, echo, egress
from afflux_hdl.node.classify import Destination
from afflux_hdl.node.parameters import NodeParameters
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC
from tests.scenarios.node_frames import LOCAL, arp_reply, arp_request, echo_reply, echo_request
from tests.support.part_player import pace, play
from tests.support.refusals import refused

PORT = 4700
LOCAL_PORT = {"local.port": int.from_bytes(PORT.to_bytes(2, "big"), "little")}
WIDTHS = (32, 64, 128, 256, 512)
FATES = ("committed", "overflowed", "refused")


def draw_frames(choose: random.Random, number: int, largest: int) -> list[tuple[bytes, bool]]:
    return [
        (choose.randbytes(choose.randrange(1, largest)), choose.random() < 0.2)
        for _ in range(number)
    ]


def check_fifo(part: Callable[..., Any]) -> None:
    """Good frames come out whole and in order, bad ones never, and lost ones are counted."""
    choose = random.Random(1)
    for bus_bits in (32, 128):
        frames = draw_frames(choose, 40, 120)
        good = [frame for frame, error in frames if not error]
        fifo = part(bus_bits=bus_bits, depth_bytes=4096, lossy=True)
        played = play(fifo, frames, marks=FATES, takes=pace(0.8, 2))
        assert played.plain == good
        assert list(played.marks.values()) == [len(good), 0, len(frames) - len(good)]
        # Nobody takes anything: the first ones that fit stay, the others go whole.
        size = bus_bits // 8
        fifo = part(bus_bits=bus_bits, depth_bytes=512, lossy=True)
        last_in = sum(-(-len(frame) // size) for frame, _ in frames)
        played = play(fifo, frames, marks=FATES, takes=partial(lt, last_in))
        room, kept = 512 // size, []
        for frame, error in frames:
            need = -(-len(frame) // size)
            if need <= room and not error:
                kept.append(frame)
                room -= need
        assert played.plain == kept
        lost = len(good) - len(kept)
        assert list(played.marks.values()) == [len(kept), lost, len(frames) - len(good)]
        # The one that stalls loses only what could never fit.
        large = choose.randbytes(513)
        exact = choose.randbytes(512)
        mixed = [*frames[:5], (large, False), (exact, False), (large * 3, False), *frames[5:10]]
        fifo = part(bus_bits=bus_bits, depth_bytes=512, lossy=False)
        played = play(fifo, mixed, marks=FATES, takes=pace(0.5, 3), cycles_after=600)
        assert played.plain == [f for f, error in mixed if not error and len(f) <= 512]
        assert played.marks["overflowed"] == 2


def check_egress(part: type) -> None:
    """Whole frames, each source's in order, without an empty cycle; the first has its share."""
    choose = random.Random(4)
    built = partial(part, bus_bits=32, sources=3, frame_beats_max=16)

    def draw(n: int, number: int, largest: int) -> list[tuple[bytes, bool]]:
        lengths = [choose.randrange(3, largest) for _ in range(number)]
        return [(bytes([n]) + choose.randbytes(length), False) for length in lengths]

    for share, sizes in ((1.0, (60, 60, 60)), (0.6, (60, 60, 60)), (1.0, (8, 16, 16))):
        sources = [draw(n, 60 if n == 0 else 12, size) for n, size in enumerate(sizes)]
        played = play(built(), *sources, takes=pace(share, 5))
        for n, source in enumerate(sources):
            assert [f for f in played.plain if f[0] == n] == [frame for frame, _ in source]
        if share == 1.0:
            assert played.cycles == list(range(1, 1 + len(played.cycles)))
        # All always have a frame waiting until the first has none left. The others take strict
        # turns, and behind each of their frames are `SHARE` times as many beats of the first, and
        # of its last frame no more than it takes.
        frames = played.plain
        until = max(at for at, frame in enumerate(frames) if frame[0] == 0)
        owners = [frame[0] for frame in frames[:until] if frame[0]]
        assert owners == [1, 2] * (len(owners) // 2) + [1] * (len(owners) % 2), owners
        behind = {at: 0 for at, frame in enumerate(frames[:until]) if frame[0]}
        before_last = dict(behind)
        latest = None
        for at, frame in enumerate(frames[:until]):
            if frame[0]:
                latest = at
            elif latest is not None:
                before_last[latest] = behind[latest]
                behind[latest] += -(-len(frame) // 4)
        assert len(behind) > 3
        for at in list(behind)[:-1]:
            least = egress.SHARE * -(-len(frames[at]) // 4)
            assert before_last[at] < least <= behind[at], (at, least, behind[at])
    # A source whose frames come while no other has one sends at once.
    for n in range(3):
        alone = [draw(0, 5, 20) if n == each else [] for each in range(3)]
        late = play(built(), *alone, cycles_after=5)
        assert late.plain == [frame for frame, _ in alone[n]]
        assert late.cycles == list(range(1, 1 + len(late.cycles)))


GROUPS = ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01")
NO_HOSTS = ("0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255")
HOSTS = ("1.0.0.0", "127.0.0.1", "128.0.0.0", "192.0.2.1", "223.255.255.255")


def to_address(frame: bytes, address: bytes) -> bytes:
    """Return an IPv4 or ARP frame with another target address."""
    at = 38 if frame[12:14] == b"\x08\x06" else 30
    return frame[:at] + address + frame[at + 4 :] if len(frame) > at + 4 else frame


def cases() -> list[tuple[bytes, Destination]]:
    ours = Ether(src="02:00:0b:00:00:07", dst=ENGINE_MAC)
    ip = IP(src="10.0.0.77", dst=ENGINE_ADDRESS)
    body = Raw(bytes(64))

    def port(number: int) -> bytes:
        return bytes(ours / ip / UDP(sport=9, dport=number) / body)

    engine: Any = Destination.ENGINE
    host: Any = Destination.HOST
    return [
        *((port(PORT + n), engine) for n in range(3)),
        (port(PORT - 1), host),
        (port(PORT + 3), host),
        (port(PORT)[:42], engine),
        (port(PORT)[:41], host),
        # All fragments of a datagram go one way.
        (bytes(ours / IP(dst=ENGINE_ADDRESS, flags="MF") / UDP(dport=PORT) / body), host),
        (bytes(ours / IP(dst=ENGINE_ADDRESS, frag=1) / UDP(dport=PORT) / body), host),
        (bytes(ours / Dot1Q(vlan=1) / ip / UDP(dport=PORT) / body), host),
        (bytes(Ether(dst="02:af:fa:00:00:02") / ip / UDP(dport=PORT) / body), host),
        (bytes(ours / IP(dst="10.0.0.8") / UDP(dport=PORT) / body), host),
        (arp_request(), Destination.ARP),
        (arp_request(pdst="10.0.0.8"), host),
        (arp_request(psrc=ENGINE_ADDRESS), host),
        (echo_request(b""), Destination.ECHO),
        (echo_request(bytes(1476)), Destination.ECHO),
        (echo_request(bytes(1477)), host),
        (echo_request(b"", len=27), host),
        (
            bytes(ours / IP(src="10.0.0.77", dst=ENGINE_ADDRESS, flags="DF") / ICMP() / body),
            Destination.ECHO,
        ),
        (bytes(ours / IP(dst=ENGINE_ADDRESS, flags="evil") / ICMP() / body), host),
        (bytes(ours / ip / ICMP(type=0) / body), host),
        # An answer would go to many: the host has to see to it. The engine counts such frames.
        *((arp_request(hwsrc=mac), host) for mac in GROUPS),
        *((bytes(Ether(src=mac, dst=ENGINE_MAC) / ip / ICMP() / body), host) for mac in GROUPS),
        *((bytes(ours / IP(src=s, dst=ENGINE_ADDRESS) / ICMP() / body), host) for s in NO_HOSTS),
        *(
            (bytes(ours / IP(src=s, dst=ENGINE_ADDRESS) / ICMP() / body), Destination.ECHO)
            for s in HOSTS
        ),
        *(
            (bytes(ours / IP(src=s, dst=ENGINE_ADDRESS) / UDP(dport=PORT) / body), engine)
            for s in NO_HOSTS
        ),
        (b"\x01", host),
    ]


def check_classify(part: type) -> None:
    """Every frame keeps its bytes and its place, and goes where the rules say."""
    for bus_bits, share in ((32, 0.8), (64, 1.0), (128, 1.0), (256, 0.9), (512, 1.0)):
        built = part(Parameters(bus_bits=bus_bits, workers=2, lanes=1, jobs=2, slots=2))
        wanted = cases()
        random.Random(bus_bits).shuffle(wanted)
        played = play(
            built,
            [(frame, False) for frame, _ in wanted],
            inputs=LOCAL | LOCAL_PORT | {"host_path": 1},
            mark_of="o_to",
            offers=pace(share, 6),
        )
        assert played.frames == [(frame, to.value) for frame, to in wanted]
        # Before there is an address nothing is for the node, whatever it is addressed to.
        unset = part(Parameters(bus_bits=bus_bits, workers=2, lanes=1, jobs=2, slots=2))
        frames = [to_address(frame, bytes(4)) for frame, _ in wanted]
        played = play(
            unset,
            [(frame, False) for frame in frames],
            inputs=LOCAL | LOCAL_PORT | {"host_path": 1, "local.address": 0},
            mark_of="o_to",
        )
        assert played.frames == [(frame, Destination.HOST.value) for frame in frames]


def managed_cases() -> list[tuple[bytes, Destination]]:
    """Frames, and where a management in place of the host lets them go."""
    ours = Ether(src="02:00:0b:00:00:07", dst=ENGINE_MAC)
    others = Ether(src="02:00:0b:00:00:07", dst="02:00:0b:00:00:08")
    all_ = Ether(src="02:00:0b:00:00:07", dst="ff:ff:ff:ff:ff:ff")
    group = Ether(src="02:00:0b:00:00:07", dst="01:00:5e:00:00:fb")
    here, everywhere = IP(dst=ENGINE_ADDRESS), IP(dst="255.255.255.255")
    asked, dhcp, served = UDP(dport=4699), UDP(sport=67, dport=68), UDP(sport=68, dport=67)
    host: Any = Destination.HOST
    nobody: Any = Destination.NOBODY
    built = [
        (ours / here / asked, host),
        (ours / here / UDP(dport=9), host),
        (ours / here / dhcp, host),
        (ours / IP(dst="10.0.0.99") / dhcp, host),
        (all_ / everywhere / dhcp, host),
        (all_ / IP(dst="10.0.0.99") / dhcp, host),
        (all_ / everywhere / served, nobody),
        (all_ / here / asked, nobody),
        (group / everywhere / dhcp, nobody),
        (group / IP(dst="224.0.0.251") / UDP(dport=5353), nobody),
        # The management's addresses need not be the engine's.
        (others / here / asked, host),
        (ours / IP(dst="10.0.0.99") / asked, host),
        (ours / Dot1Q(vlan=1) / here / asked, nobody),
        (ours / IP(dst=ENGINE_ADDRESS, flags="MF") / asked, nobody),
        (ours / IP(dst=ENGINE_ADDRESS, frag=1) / asked, nobody),
        (all_ / IP(dst="255.255.255.255", flags="MF") / dhcp, nobody),
        (ours / IP(dst=ENGINE_ADDRESS, proto=6) / asked, nobody),
        (all_ / IP(dst="255.255.255.255", proto=6) / dhcp, nobody),
        (ours / here / ICMP(type=0), nobody),
    ]
    body = Raw(bytes(range(30)))
    return [
        *((bytes(frame / body), to) for frame, to in built),
        (bytes(ours / here / asked)[:41], nobody),
        (bytes(all_ / everywhere / dhcp)[:41], nobody),
        (arp_request(pdst="10.0.0.8"), nobody),
        (arp_request(), Destination.ARP),
        (echo_request(b""), Destination.ECHO),
        (bytes(ours / here / UDP(dport=PORT) / body), Destination.ENGINE),
        (b"\x01", nobody),
    ]


def check_managed(part: type) -> None:
    """See that only what a management may have a use for takes room in its buffer."""
    for bus_bits in (32, 512):
        parameters = Parameters(bus_bits=bus_bits, workers=2, lanes=1, jobs=2, slots=2)
        wanted = managed_cases()
        random.Random(bus_bits).shuffle(wanted)
        frames = [(frame, False) for frame, _ in wanted]
        inputs = LOCAL | LOCAL_PORT | {"host_path": 1}
        played = play(part(parameters, managed=True), frames, inputs=inputs, mark_of="o_to")
        assert played.frames == [(frame, to.value) for frame, to in wanted]
        # Without an address it is the same, but for what the node itself would take.
        played = play(
            part(parameters, managed=True),
            frames,
            inputs=inputs | {"local.address": 0},
            mark_of="o_to",
        )
        came = [frame for frame, to in played.frames if to == Destination.HOST.value]
        taken = (Destination.HOST, Destination.ENGINE)
        assert came == [frame for frame, to in wanted if to in taken]
        # With the switch off nothing passes.
        played = play(
            part(parameters, managed=True), frames, inputs=inputs | {"host_path": 0}, mark_of="o_to"
        )
        assert not [frame for frame, to in played.frames if to == Destination.HOST.value]


def check_echo(part: Callable[..., Any], widths: Sequence[int] = WIDTHS) -> None:
    """Right requests come back right, wrong ones never."""
    choose = random.Random(7)
    for bus_bits in widths:
        requests, good = [], []
        for size in (0, 1, 2, 17, 18, 19, 50, 63, 64, 200):
            request = echo_request(choose.randbytes(size), tos=choose.randrange(256))
            good.append(request)
            requests.append((request, False))
            for place in (24 + choose.randrange(2), 36 + choose.randrange(6 + size)):
                wrong = bytearray(request)
                wrong[place] ^= 1 << choose.randrange(8)
                requests.append((bytes(wrong), False))
            requests.append((request, True))
        # Checksums to which the reply's 0x0800 more is added with a carry all the way round, or
        # just without one, whichever octet is summed as the upper one.
        for wanted in (0xF7FF, 0xF800, 0xFFFE, 0xF8FF, 0xFEFF):
            zero = int.from_bytes(echo_request(b"ab", icmp={"id": 0, "seq": 0})[36:38], "big")
            numbers: dict[str, object] = {"id": (zero - wanted) % 0xFFFF, "seq": 0}
            request = echo_request(b"ab", icmp=numbers)
            assert int.from_bytes(request[36:38], "big") == wanted
            good.append(request)
            requests.append((request, False))
        cut = echo_request(bytes(range(100)))
        requests += [(cut[:-1], False), (echo_request(bytes(4)), False)]
        good.append(echo_request(bytes(4)))
        played = play(
            part(bus_bits=bus_bits, buffer_bytes=4096),
            requests,
            inputs=LOCAL,
            marks=("replied", "bad", "dropped"),
            offers=pace(0.4, 8),
        )
        assert played.plain == [echo_reply(request) for request in good]
        bad = len(requests) - len(good) - 10
        assert played.marks == {"replied": len(good), "bad": bad, "dropped": 0}


def check_short_echo(part: type) -> None:
    """Check the same in short steps, at the ends of the range of widths."""
    check_echo(partial(part, short_steps=True), (WIDTHS[0], WIDTHS[-1]))


def check_short_echo_between(part: type) -> None:
    """Check it at the other widths."""
    check_echo(partial(part, short_steps=True), WIDTHS[1:-1])


def check_late_fifo(part: type) -> None:
    """Check the same if `o.ready` comes late in a cycle."""
    check_fifo(partial(part, late_ready=True))


def check_arp(part: type) -> None:
    """Check that requests are answered as RFC 826 says, and those beyond the queue counted."""
    for bus_bits in WIDTHS:
        requests = [arp_request(f"02:00:00:00:00:{n:02x}", f"10.0.0.{n}") for n in range(24)]
        # Nothing is taken while they arrive.
        end = 24 * -(-60 * 8 // bus_bits)
        played = play(
            part(bus_bits=bus_bits),
            [(request, n == 3) for n, request in enumerate(requests)],
            inputs=LOCAL,
            marks=("replied", "dropped"),
            takes=partial(lt, end),
            cycles_after=400,
        )
        waiting = [request for n, request in enumerate(requests) if n != 3]
        number = len(played.frames)
        assert number >= arp.ARP_WAITING
        assert played.plain == [arp_reply(request) for request in waiting[:number]]
        assert played.marks == {"replied": number, "dropped": 23 - number}


CHECKS: dict[str, tuple[Any, str, Callable[[type], None]]] = {
    "fifo": (packet_fifo, "PacketFifo", check_fifo),
    "egress": (egress, "Egress", check_egress),
    "classify": (classify, "Classify", check_classify),
    "managed": (classify, "Classify", check_managed),
    "echo": (echo, "Echo", check_echo),
    "short echo": (echo, "Echo", check_short_echo),
    "short echo, other widths": (echo, "Echo", check_short_echo_between),
    "late fifo": (packet_fifo, "PacketFifo", check_late_fifo),
    "arp": (arp, "Arp", check_arp),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name == "short echo, other widths" else name
        for name in CHECKS
    ],
)
def test_part_as_it_is_passes(name: str) -> None:
    module, part, check = CHECKS[name]
    check(getattr(module, part))


def test_sizes_must_fit() -> None:
    for depth in (4, 12, 1000):
        with refused(f"not {depth}"):
            packet_fifo.PacketFifo(bus_bits=64, depth_bytes=depth, lossy=True)
    for size in (1024, 3000):
        with pytest.raises(ValueError, match=f"host_buffer_bytes .* not {size}"):
            NodeParameters(host_buffer_bytes=size)
