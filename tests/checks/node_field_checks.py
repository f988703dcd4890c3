"""Checks of a node's fields, counters and sizes: every bit of them in use, and every event alone.

Surviving mutants have led to them: what all frames of a test have alike, nobody has looked at.
"""

import random
import struct
from collections.abc import Callable

from afflux_hdl.contract.registers import (
    NODE_COUNTERS,
    NODE_IDENTITY,
    address_of,
    node_address_of,
)
from afflux_hdl.node.arp import ARP_BURST
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.checks.node_checks import NodePair, read_counter
from tests.scenarios.golden_node import HEADERS_BYTES
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_frames import arp_request, echo_request
from tests.scenarios.packing import checksum, with_ip_checksum

__all__ = [
    "check_any_address",
    "check_any_port",
    "check_each_size",
    "check_events_alone",
    "check_fields_of_requests",
    "check_stated_build",
]

MAC = bytes.fromhex(ENGINE_MAC.replace(":", ""))
ADDRESS = bytes(map(int, ENGINE_ADDRESS.split(".")))
EVENTS = 5
"""The first three events carry through all bits of counters that start late."""


def any_echo_request(choose: random.Random) -> bytes:
    """Return a right echo request of any host: each field that may be anything is."""
    sizes = (0, 1, 2, choose.randrange(500), choose.randrange(500), choose.randrange(1000, 1473))
    message = bytearray(choose.randbytes(8 + choose.choice(sizes)))
    message[:4] = b"\x08\x00\x00\x00"
    if choose.random() < 0.2:
        # One word alone: sums that are all zeros or all ones are among them.
        message[4:] = bytes(len(message) - 4)
        message[4:6] = choose.choice((b"\x00\x00", b"\xf7\xff", b"\xff\xff", b"\xf7\xfe"))
    message[2:4] = checksum(bytes(message)).to_bytes(2, "big")
    source = bytes([choose.choice((1, 10, 127, 128, 223, choose.randrange(1, 224)))])
    fragment, lifetime = choose.choice((0, 0x4000)), choose.randrange(256)
    fields = (choose.getrandbits(16), fragment, lifetime, 1, 0)
    header = struct.pack(">BBHHHBBH", 0x45, choose.randrange(256), 20 + len(message), *fields)
    mac = bytes([choose.randrange(256) & 0xFE]) + choose.randbytes(5)
    frame = MAC + mac + b"\x08\x00" + header + source + choose.randbytes(3) + ADDRESS + message
    # Behind the datagram may be anything too.
    padding = choose.choice((0, 0, 1, 3, 70))
    return with_ip_checksum(frame + choose.randbytes(max(60 - len(frame), padding)))


def any_arp_request(choose: random.Random) -> bytes:
    """Return a request for the node's address by any host."""
    mac = bytes([choose.randrange(256) & 0xFE]) + choose.randbytes(5)
    to = choose.choice((b"\xff" * 6, MAC))
    asked = b"\x00\x01\x08\x00\x06\x04\x00\x01" + mac + choose.randbytes(4) + choose.randbytes(6)
    return (to + choose.randbytes(6) + b"\x08\x06" + asked + ADDRESS).ljust(60, b"\x55")


def _spoilt(choose: random.Random, frame: bytes) -> bytes:
    """Return a frame with one bit wrong, or cut."""
    if choose.random() < 0.2:
        return frame[: choose.randrange(HEADERS_BYTES, len(frame))]
    wrong = bytearray(frame)
    wrong[choose.randrange(len(frame))] ^= 1 << choose.randrange(8)
    return bytes(wrong)


def check_fields_of_requests(node: VerilatedNode, built: NodeParameters, rounds: int = 12) -> None:
    """Check ARP and echo requests in which each field that may be anything is, and wrong ones."""
    choose = random.Random(41)
    for _ in range(rounds):
        # Each round is within the rates of answers.
        node.reset()
        pair = NodePair(node, built)
        pair.configure()
        for _ in range(ARP_BURST):
            # One by one, so that none finds the buffer full.
            frame = choose.choice((any_echo_request, any_echo_request, any_arp_request))(choose)
            if choose.random() < 0.25:
                frame = _spoilt(choose, frame)
            pair.play([frame], pace=NodePace(network_gaps=choose.choice((0.0, 0.3))))
        pair.check_counters()
        assert not pair.missing["arp"] + pair.missing["echo"]


def check_stated_build(node: VerilatedNode, built: NodeParameters) -> None:
    """Read what the node says of itself."""
    engine = built.engine
    stated = {
        **{f"build_{name}": getattr(engine, name) for name in ("bus_bits", "workers", "lanes")},
        **{f"build_{name}": getattr(engine, name) for name in ("jobs", "slots")},
    }
    for name, value in stated.items():
        assert node.read(address_of(name)) == value, name
    stated = {
        "node_identity": NODE_IDENTITY,
        "host_path": 1,
        "build_host_buffer": built.host_buffer_bytes,
        "build_echo_buffer": built.echo_buffer_bytes,
    }
    for name, value in stated.items():
        assert node.read(node_address_of(name)) == value, name


def check_any_port(node: VerilatedNode, built: NodeParameters) -> None:
    """Give the engine any port: it gets frames to its ports, and none to those that are near."""
    choose = random.Random(44)
    jobs = built.engine.jobs
    probe = Job(workers=1, lanes=1, slots=1).probe(0, 0, 1)
    for _ in range(6):
        port = choose.getrandbits(16)
        node.reset()
        NodePair(node, built).configure()
        node.write(address_of("local_port"), port)
        near = [(port + n) % 2**16 for n in range(-2, jobs + 3)]
        near += [port ^ 1 << bit for bit in range(16)]
        near += [(port + jobs) % 2**16 ^ 1 << bit for bit in range(16)]
        for other in near:
            before = read_counter(node, "to_engine")
            frame = probe[:36] + other.to_bytes(2, "big") + probe[38:]
            to_host = node.play([frame], [])[1]
            within = (other - port) % 2**16 <= jobs
            assert to_host == ([] if within else [frame]), (other, port)
            assert read_counter(node, "to_engine") - before == within


def check_each_size(node: VerilatedNode, built: NodeParameters) -> None:
    """Let a frame of each size in and out: its bytes are counted, whatever its last beat holds."""
    choose = random.Random(42)
    pair = NodePair(node, built)
    pair.configure()
    for size in range(1, 2 * built.engine.bus_bits // 8 + 20):
        before = pair.counters()["network_bytes_out"]
        # For another host: its first octet is none of the node's.
        pair.play([b"\x06" + choose.randbytes(size - 1)], [choose.randbytes(size)])
        assert pair.counters()["network_bytes_out"] - before == size
    pair.check_counters()


def check_events_alone(node: VerilatedNode, built: NodeParameters) -> None:
    """Let each event happen by itself, some times, and read all counters after each.

    They are compared with what they are after a reset, not with what they were before: one that is
    wrong from the beginning shows.
    """
    other = b"\x06" * 70
    large = built.host_buffer_bytes + 1
    wrong = bytearray(echo_request(b"wrong"))
    wrong[45] ^= 1
    probe = Job(workers=1, lanes=1, slots=1).probe(0, 0, 1)
    events: dict[str, Callable[[NodePair], None]] = {
        "to_engine": lambda to: to.play([probe]),
        "to_host": lambda to: to.play([other]),
        "host_overflow": lambda to: to.play([b"\x06" * large]),
        "arp_replies": lambda to: to.play([arp_request()]),
        "echo_replies": lambda to: to.play([echo_request(b"right")]),
        "echo_bad": lambda to: to.play([bytes(wrong)]),
        "bad_frames": lambda to: to.play([other], network_errors=[True]),
        "from_host": lambda to: to.play([], [other]),
        "from_host_oversize": lambda to: to.play([], [b"\x33" * large]),
        "from_host_bad": lambda to: to.play([], [other], host_errors=[True]),
        "host_off": lambda to: to.play([other]),
        "from_host_off": lambda to: to.play([], [other]),
    }
    node.reset()
    pair = NodePair(node, built)
    pair.expect_zeros()
    pair.configure()
    for name, event in events.items():
        pair.set_host_path("off" not in name)
        for _ in range(EVENTS):
            event(pair)
            pair.check_counters()
        missed = pair.missing if name == "host_overflow" else pair.golden.counters
        assert missed[name] >= EVENTS, name
    # Beyond the rate nobody is answered any more.
    pair.set_host_path(True)
    for _ in range(2 * ARP_BURST):
        pair.play([arp_request()])
        pair.check_counters()
    assert pair.missing["arp"] >= EVENTS
    _discards_alone(node, built)
    assert len(events) + len(("replies_dropped", "from_host_discarded")) + 4 == len(NODE_COUNTERS)


def _discards_alone(node: VerilatedNode, built: NodeParameters) -> None:
    """Check the same of frames that are discarded since the link is down."""
    node.reset()
    node.pace(NodePace(network_ready=0.0))
    half = b"\x33" * (built.host_buffer_bytes // 2)
    # Two fill the buffer, and some beats stand behind it.
    node.play([], [half] * 3, drain=False)
    while not node.read(address_of("transmit_state")):
        node.play([b"\x06" * 1500] * 4, [], drain=False)
    kept = read_counter(node, "from_host")
    assert kept in (2, 3)
    for offered in range(4, 4 + 2 * EVENTS):
        node.play([], [half], drain=False)
        assert read_counter(node, "from_host") == kept
        assert read_counter(node, "from_host_discarded") == offered - kept


def check_any_address(node: VerilatedNode, built: NodeParameters) -> None:
    """Set addresses of one bit, and none: the node is asked for each, and there is none at zero."""
    choose = random.Random(43)
    for number in range(33):
        address = (1 << number >> 1).to_bytes(4, "big")
        node.reset()
        pair = NodePair(node, built)
        pair.configure(address)
        asked = bytearray(any_arp_request(choose))
        asked[38:42] = address
        ping = bytearray(any_echo_request(choose))
        ping[30:34] = address
        pair.play([bytes(asked), with_ip_checksum(bytes(ping))])
        pair.check_counters()
        assert pair.golden.counters["to_host"] == (0 if number else 2)
        assert pair.golden.counters["arp_replies"] == (1 if number else 0)
