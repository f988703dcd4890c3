"""Checks of a node in process: each drives it, compares with the golden node, raises if not.

They take the node as it is handed to them, so that the same check runs on the node as it is, on two
simulations of it at once, and on mutants.
"""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Protocol

from afflux_hdl.contract.registers import (
    COUNTERS,
    NODE_COUNTER_BASE,
    NODE_COUNTERS,
    NODE_REGISTERS,
    REGISTERS,
    Access,
    address_of,
    counter_address,
    node_address_of,
    node_counter_address,
)
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.arp import ARP_BURST
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.checks.engine_checks import BUILDS
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import PARTIAL_DTYPES, WINDOWS, Build, Director
from tests.scenarios.golden_node import GoldenNode, Sent, count_missing, echo_reply_of
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_cases import every_case
from tests.scenarios.node_frames import (
    PEER_ADDRESS,
    PEER_MAC,
    arp_reply,
    arp_request,
    draw_question,
    echo_request,
    random_host_frame,
)
from tests.scenarios.packing import with_ip_checksum
from tests.scenarios.performer import paces, perform

__all__ = [
    "NodeAsEngine",
    "NodeModel",
    "NodePair",
    "build_of",
    "node_parameters",
    "read_counter",
]

SMALL_BUFFERS = {"host_buffer_bytes": 2048, "echo_buffer_bytes": 2048}
"""Small, so that they are full at times. A frame of 1,514 bytes still fits."""

OKAY, SLVERR = 0, 2
ARP_WAITING = 16


class NodeModel(Protocol):
    """The interface of a node for these checks: a Verilated one, or one in a box of a shell."""

    def pace(self, pace: NodePace) -> None:
        """Say how later plays offer and take beats."""

    def play(
        self,
        from_network: Sequence[bytes],
        from_host: Sequence[bytes],
        *,
        network_errors: Sequence[bool] | None = None,
        host_errors: Sequence[bool] | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Play frames at both ports until the node is idle; return what it has sent."""

    def read(self, address: int) -> int:
        """Value of a register."""

    def write(self, address: int, value: int) -> None:
        """Write a register."""

    def reset(self) -> None:
        """Reset the node."""


class NodeAsEngine:
    """A node behind the interface of an engine, for checks of an engine: its host is silent."""

    def __init__(self, node: VerilatedNode) -> None:
        self._node = node

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        self._node.pace(
            NodePace(
                seed=stimulus.seed,
                network_gaps=stimulus.gap_share,
                network_ready=stimulus.ready_share,
            )
        )
        return self._node.play(frames, [], stimulus.drain, network_errors=mac_errors)[0]

    def read(self, address: int) -> int:
        return self._node.read(address)

    def write(self, address: int, value: int) -> None:
        self._node.write(address, value)

    def reset(self) -> None:
        self._node.reset()


class NodePair:
    """A node and its golden twin, which are given the same.

    Attributes:
        golden: The twin.
        missing: Answers that found no room or were beyond their rate, by name, and frames that the
            host did not take in time.
    """

    def __init__(self, node: NodeModel, built: NodeParameters) -> None:
        self._node = node
        self._built = built
        self.golden = self._new_golden()
        self.missing: Counter[str] = Counter()
        self._before = self.counters()

    def _new_golden(self) -> GoldenNode:
        built = self._built
        mac = bytes.fromhex(ENGINE_MAC.replace(":", ""))
        engine = GoldenEngine(
            **build_of(built),
            mac=mac,
            address=ENGINE_ADDRESS,
            port=ENGINE_PORT,
            partials=PARTIAL_DTYPES,
            windows=WINDOWS,
        )
        beat_bytes = built.engine.bus_bits // 8
        return GoldenNode(engine, built.engine.jobs, built.host_buffer_bytes, beat_bytes)

    def expect_zeros(self) -> None:
        """Compare counters with 0 from now on, not with what they were: a reset has just been."""
        self._before = dict.fromkeys(self._before, 0)

    def configure(self, own: bytes = bytes(map(int, ENGINE_ADDRESS.split(".")))) -> None:
        """Set the node's addresses; `own` is its IPv4 address."""
        mac = int(ENGINE_MAC.replace(":", ""), 16)
        address = int.from_bytes(own, "big")
        self.golden.move(".".join(map(str, own)))
        for name, value in (
            ("local_mac_low", mac % 2**32),
            ("local_mac_high", mac >> 32),
            ("local_address", address),
            ("local_port", ENGINE_PORT),
        ):
            self._node.write(address_of(name), value)

    def start_again(self) -> None:
        """Reset the node."""
        self._node.reset()
        # The end of a frame that the reset has cut off leaves before anything else.
        self._node.play([], [])
        self._before = self.counters()
        self.golden = self._new_golden()
        self.missing.clear()
        self.configure()

    def set_host_path(self, on: bool) -> None:
        self._node.write(node_address_of("host_path"), on)
        self.golden.host_path = on

    def play(
        self,
        from_network: Sequence[bytes],
        from_host: Sequence[bytes] = (),
        network_errors: Sequence[bool] | None = None,
        host_errors: Sequence[bool] | None = None,
        pace: NodePace | None = None,
    ) -> None:
        """Play until the node is idle, and compare what has left.

        Frames without room are missing: answers, and frames for a host that does not take them.
        """
        golden = self.golden
        golden.sent = Sent()
        for frame, error in _marked(from_network, network_errors):
            golden.from_network(frame, error)
        for frame, error in _marked(from_host, host_errors):
            golden.from_host(frame, error)
        self._node.pace(pace or NodePace())
        to_network, to_host = self._node.play(
            from_network, from_host, network_errors=network_errors, host_errors=host_errors
        )
        sent = golden.sent
        golden.counters["network_frames_out"] += len(to_network)
        golden.counters["network_bytes_out"] += sum(map(len, to_network))
        self.missing["host_overflow"] += count_missing(to_host, sent.to_host)
        remaining = Counter(to_network)
        for name in ("arp", "echo", "engine", "from_host"):
            expected: list[bytes] = getattr(sent, name)
            own = set(expected)
            got = [frame for frame in to_network if frame in own]
            left_out = count_missing(got, expected)
            assert not left_out or name in ("arp", "echo"), f"{left_out} frames of {name} missing"
            self.missing[name] += left_out
            remaining -= Counter(got)
        assert not remaining, f"{remaining.total()} frames to the network that nobody has caused"

    def check_counters(self) -> None:
        """Every frame has been counted once, as what became of it."""
        got = {name: value - self._before[name] for name, value in self.counters().items()}
        expected = Counter(self.golden.counters)
        missing = self.missing
        expected["to_host"] -= missing["host_overflow"]
        expected["host_overflow"] = missing["host_overflow"]
        expected["arp_replies"] -= missing["arp"]
        expected["echo_replies"] -= missing["echo"]
        expected["replies_dropped"] = missing["arp"] + missing["echo"]
        different = {
            name: f"{got[name]}, not {expected[name]}"
            for name in got
            if got[name] != expected[name]
        }
        assert not different, f"counters: {different}"

    def counters(self) -> dict[str, int]:
        """All counters of the node."""
        return {each.name: read_counter(self._node, each.name) for each in NODE_COUNTERS}


def read_counter(node: NodeModel, name: str) -> int:
    """Return a counter of the node."""
    low = node.read(node_counter_address(name))
    return node.read(node_counter_address(name) + 4) << 32 | low


def _marked(frames: Sequence[bytes], errors: Sequence[bool] | None) -> list[tuple[bytes, bool]]:
    return list(zip(frames, errors or [False] * len(frames), strict=True))


def check_traffic(node: VerilatedNode, built: NodeParameters, plays: int = 40) -> None:
    """Frames of all kinds and sizes at both ports at once, at every pace; marks at both ports."""
    choose = random.Random(21)
    pair = NodePair(node, built)
    pair.configure()
    for play in range(plays):
        if play % 10 == 9:
            # So many answers are due at once as after a reset only.
            pair.check_counters()
            pair.start_again()
        down = [
            draw_question(choose) if choose.random() < 0.4 else random_host_frame(choose, 600)
            for _ in range(choose.randrange(14))
        ]
        size, most = built.engine.bus_bits // 8, built.host_buffer_bytes
        sizes = (1, size, size + 1, 60, 300, 1514, most, most + 1)
        up = [choose.randbytes(choose.choice(sizes)) for _ in range(choose.randrange(6))]
        pace = NodePace(
            seed=choose.getrandbits(32),
            network_gaps=choose.choice((0.0, 0.3, 0.8)),
            host_gaps=choose.choice((0.0, 0.3)),
            network_ready=choose.choice((1.0, 0.6, 0.15)),
            host_ready=choose.choice((1.0, 0.6, 0.1)),
        )
        marks = [[choose.random() < 0.08 for _ in frames] for frames in (down, up)]
        pair.play(down, up, marks[0], marks[1], pace)
    pair.check_counters()
    # Too large and marked as well, and one that is only too large.
    large = [b"\x33" * (built.host_buffer_bytes + 1)] * 2
    pair.play([], large, host_errors=[True, False])
    pair.check_counters()
    for on in (False, True):
        pair.set_host_path(on)
        pair.play([random_host_frame(choose) for _ in range(9)], [b"\x33" * 90] * 3)
    pair.check_counters()


def near_frames() -> list[bytes]:
    """Return one frame of each kind that the node looks for, and all that differ in one bit.

    Of IPv4 those with a right checksum too: a field that is compared in too few bits shows.
    """
    job = Job(workers=1, lanes=1, slots=1)
    bases = [job.probe(0, 0, 1), arp_request(), arp_request(to=ENGINE_MAC), echo_request(b"abcd")]
    near = list(bases)
    for base in bases:
        for at, bit in product(range(42), range(8)):
            changed = base[:at] + bytes([base[at] ^ 1 << bit]) + base[at + 1 :]
            near.append(changed)
            if base[12:14] == b"\x08\x00" and 14 <= at < 34:
                near.append(with_ip_checksum(changed))
    ports = [(ENGINE_PORT + n) % 2**16 for n in range(-2, 8)]
    near += [bases[0][:36] + port.to_bytes(2, "big") + bases[0][38:] for port in ports]
    near += [base[:size] for base in bases for size in (1, 20, 33, 41, 42, 43)]
    # Echo requests of any size that is answered, and larger ones.
    near += [echo_request(bytes(size)) for size in (400, 511, 512, 980, 1023, 1024, 1400, 1472)]
    lengths = (0, 27, 28, 29, 1503, 1504, 1505, 2**15, 2**16 - 1)
    for length in lengths:
        frame = bases[3][:16] + length.to_bytes(2, "big") + bases[3][18:]
        near.append(with_ip_checksum(frame.ljust(60, b"\0")))
    return near


def check_near_headers(node: VerilatedNode, built: NodeParameters) -> None:
    """Each bit of each header that decides, wrong alone: to the host, or counted as what it is."""
    frames, to_host = near_frames(), 0
    for first in range(0, len(frames), ARP_BURST):
        # So few that all that ask are within the rates of answers, and none finds a buffer full.
        node.reset()
        pair = NodePair(node, built)
        pair.configure()
        for at in range(first, min(first + ARP_BURST, len(frames)), 6):
            pair.play(frames[at : min(at + 6, first + ARP_BURST)])
        pair.check_counters()
        assert not pair.missing["arp"] + pair.missing["echo"]
        to_host += pair.golden.counters["to_host"]
    assert to_host > 500


def check_asked_addresses(node: VerilatedNode, built: NodeParameters) -> None:
    """Ask by ARP for the node at any address that it may have, and at those next to it."""
    choose = random.Random(26)
    peer = bytes.fromhex(PEER_MAC.replace(":", "")), bytes(map(int, PEER_ADDRESS.split(".")))
    for _ in range(8):
        mac = bytes([choose.getrandbits(8) & 0xFE]) + choose.randbytes(5)
        address = bytes([choose.randrange(1, 127)]) + choose.randbytes(3)
        node.reset()
        for name, value in (
            ("local_mac_low", int.from_bytes(mac, "big") % 2**32),
            ("local_mac_high", int.from_bytes(mac, "big") >> 32),
            ("local_address", int.from_bytes(address, "big")),
        ):
            node.write(address_of(name), value)
        asked = [address]
        for bit in range(32):
            near = (int.from_bytes(address, "big") ^ 1 << bit).to_bytes(4, "big")
            asked.append(near)
        for target in asked:
            request = arp_request(pdst=".".join(map(str, target)))
            reply = peer[0] + mac + request[12:20] + b"\0\2" + mac + address + peer[0] + peer[1]
            to_network, to_host = node.play([request], [])
            if target == address:
                assert (to_network, to_host) == ([reply.ljust(60, b"\0")], [])
            else:
                assert (to_network, to_host) == ([], [request])


def check_rooms(node: VerilatedNode, built: NodeParameters) -> None:
    """While nobody takes anything, as much waits as fits, whole, and no more; then it leaves."""
    pair = NodePair(node, built)
    pair.configure()
    stuck = NodePace(network_ready=0.0, host_ready=0.0)
    choose = random.Random(22)
    for _ in range(2):
        before = pair.counters()
        arps = [arp_request(f"02:00:0b:00:01:{n:02x}", f"10.0.1.{n}") for n in range(40)]
        echoes = [echo_request(choose.randbytes(150)) for _ in range(40)]
        hosts = [b"\x33" + choose.randbytes(choose.randrange(59, 300)) for _ in range(40)]
        node.pace(stuck)
        mixed = [frame for three in zip(arps, echoes, hosts, strict=True) for frame in three]
        out = node.play(mixed, [], drain=False)
        node.pace(NodePace())
        more = node.play([], [])
        to_network, to_host = out[0] + more[0], out[1] + more[1]
        grown = {name: value - before[name] for name, value in pair.counters().items()}
        size = built.engine.bus_bits // 8
        room, fit = built.host_buffer_bytes // size, []
        for frame in hosts:
            beats = -(-len(frame) // size)
            if beats <= room:
                fit.append(frame)
                room -= beats
        # Besides what the buffer holds, a beat or two stand behind it.
        assert to_host[: len(fit) - 1] == fit[:-1]
        assert grown["to_host"] == len(to_host) and grown["host_overflow"] == 40 - len(to_host)
        assert grown["arp_replies"] + grown["echo_replies"] == len(to_network)
        assert grown["replies_dropped"] == 80 - len(to_network)
        of_arp = [frame for frame in to_network if frame[12:14] == b"\x08\x06"]
        for sent, asked in (
            (of_arp, [arp_reply(one) for one in arps]),
            ([frame for frame in to_network if frame not in of_arp], map(echo_reply_of, echoes)),
        ):
            # Those that were answered first are whole: nothing is written over what waits.
            count_missing(sent, [reply for reply in asked if reply is not None])
        assert ARP_WAITING <= grown["arp_replies"] <= ARP_WAITING + 2
        echo_room = built.echo_buffer_bytes // (-(-len(echoes[0]) // size) * size)
        assert echo_room <= grown["echo_replies"] <= echo_room + 2


def check_register_port(node: VerilatedNode) -> None:
    """Every address, with every strobe; reads and writes at once, each channel late or not."""
    choose = random.Random(23)
    every = (*REGISTERS, *NODE_REGISTERS)
    counters = [counter_address(each.name) for each in COUNTERS]
    counters += [node_counter_address(each.name) for each in NODE_COUNTERS]
    # Every readable register reads alike twice: nothing happens meanwhile.
    readable = {each.address for each in every} | {at + half for at in counters for half in (0, 4)}
    hidden = {each.address for each in every if each.access not in _READABLE}
    # Writes of a command would begin it.
    plain = {
        each.address: each
        for each in every
        if each.access is Access.READ_WRITE and each.name not in _WITH_EFFECTS
    }
    held = {at: node.read(at) for at in plain}

    def late() -> tuple[int, int, int, int, int]:
        a, b, c, d, e = (choose.choice((0, 0, 1, 7)) for _ in range(5))
        return a, b, c, d, e

    for address in range(0, NODE_COUNTER_BASE + 0x200, 4):
        answer = node.access(read=address + choose.randrange(4), delays=late())
        assert answer.read_response == (OKAY if address in readable else SLVERR), hex(address)
        if address not in readable or address in hidden:
            assert answer.data == 0, hex(address)
    for address in plain:
        for strobes in range(16):
            value = choose.getrandbits(32)
            answer = node.access(write=(address, value), strobes=strobes, delays=late())
            assert answer.write_response == (OKAY if strobes == 15 else SLVERR), hex(address)
            if strobes == 15:
                held[address] = value % 2 ** plain[address].width
            assert node.read(address) == held[address], hex(address)
    refused = [at for at in range(0, NODE_COUNTER_BASE + 0x200, 4) if at not in _writable()]
    for address in refused:
        other = choose.choice(list(plain))
        answer = node.access(write=(address, 2**32 - 1), read=other, delays=late())
        assert answer.write_response == SLVERR, hex(address)
        assert (answer.read_response, answer.data) == (OKAY, held[other])
    assert {at: node.read(at) for at in plain} == held
    node.write(node_address_of("host_path"), 1)


_WITH_EFFECTS = ("job_command", "transmit_control")
_READABLE = (Access.READ_ONLY, Access.READ_WRITE)


def _writable() -> set[int]:
    return {
        each.address
        for each in (*REGISTERS, *NODE_REGISTERS)
        if each.access is not Access.READ_ONLY
    }


def check_a_new_start(node: VerilatedNode, built: NodeParameters) -> None:
    """Reset it between any two beats: it leaves nothing behind but silence."""
    choose = random.Random(24)
    for _ in range(6):
        node.pace(NodePace(network_ready=0.3, host_ready=0.2, seed=choose.getrandbits(32)))
        down = [draw_question(choose) for _ in range(9)] + [random_host_frame(choose, 900)]
        node.play(down, [choose.randbytes(900)] * 3, drain=False)
        node.reset()
        node.pace(NodePace())
        assert node.play([], []) == ([], [])
        pair = NodePair(node, built)
        pair.configure()
        pair.play(down, [choose.randbytes(700)] * 2, pace=NodePace(network_gaps=0.9))
        pair.check_counters()


def check_cases_within(node: VerilatedNode, built: NodeParameters) -> None:
    """Play the cases of an engine through the node's ports and registers.

    All but those whose frames the node takes for itself.
    """
    build = build_of(built)
    workers, lanes = min(3, build["workers"]), min(2, build["lanes"])
    job = Job(number=1, workers=workers, lanes=lanes, slots=2, slot_base=3)
    director = Director(**build)
    perform(NodeAsEngine(node), every_case(director, job), paces(0.9, 0.1, 1))


def node_parameters(bus_bits: int) -> NodeParameters:
    """Of the node that is mutated, and simulated twice: around the engine of the tests."""
    return NodeParameters(engine=Parameters(bus_bits=bus_bits, **BUILDS[bus_bits]), **SMALL_BUFFERS)


def build_of(built: NodeParameters) -> Build:
    """Return what the engine within is built for."""
    engine = built.engine
    return {
        "workers": engine.workers,
        "lanes": engine.lanes,
        "jobs": engine.jobs,
        "slots": engine.slots,
    }
