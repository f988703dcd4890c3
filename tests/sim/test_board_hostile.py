"""Everything that a network should not send, at the pins of a board.

Each frame is counted once, none leaves spoilt, and the board goes on as if nothing had been.
"""

import random
from collections.abc import Iterator

import pytest
from scapy.layers.inet import ICMP, IP, UDP, IPOption
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from afflux_drivers.device.udp import UdpRegisters
from afflux_hdl.contract import management, registers
from afflux_hdl.contract.management import MessageType
from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.verilated_board import BoardClocks, Fault, VerilatedBoard
from tests.checks.board_checks import BoardAsEngine, counter_of
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS, CONTROLLER
from tests.scenarios.cases import Round
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_frames import arp_request, echo_request
from tests.scenarios.performer import perform
from tests.support.call_transport import CallTransport

pytestmark = pytest.mark.slow

EVERYBODY, GROUP, PAUSE = "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:fb", "01:80:c2:00:00:01"
NEIGHBOUR = "02:00:0b:00:00:07"
UNTRACED = 5
"""Bytes, with check sequence, of the shortest frame that the MAC can mark."""


def message(choose: random.Random, kind: int, size: int = management.MESSAGE_BYTES) -> bytes:
    """Return what looks like a request, with a tag by chance."""
    text = management.MAGIC + bytes([management.VERSION, kind, 0, 0])
    return (text + choose.randbytes(size))[:size]


def datagrams(choose: random.Random) -> Iterator[Packet]:
    """Yield packets from all kinds of senders to all kinds of places."""
    sources = (CONTROLLER, ENGINE_ADDRESS, "255.255.255.255", "224.0.0.1", "0.0.0.0", "10.0.0.7")
    macs = (NEIGHBOUR, ENGINE_MAC, EVERYBODY, GROUP)
    for source in sources:
        for mac in macs:
            to_us = Ether(src=mac, dst=ENGINE_MAC) / IP(src=source, dst=ENGINE_ADDRESS)
            ports = (management.PORT, ENGINE_PORT, ENGINE_PORT + 1, 68, 9)
            for port in ports:
                body = Raw(message(choose, choose.randrange(5)))
                yield to_us / UDP(sport=choose.choice((0, 5000)), dport=port) / body
            yield to_us / ICMP() / Raw(choose.randbytes(choose.randrange(60)))
            yield to_us / ICMP(chksum=1) / Raw(bytes(30))
    to_us = Ether(src=NEIGHBOUR, dst=ENGINE_MAC) / IP(src=CONTROLLER, dst=ENGINE_ADDRESS)
    for size in (0, 1, 41, 43, 1400):
        yield to_us / UDP(sport=5, dport=management.PORT) / Raw(message(choose, 2, size))
    asked = Raw(message(choose, MessageType.READ))
    for lie in ({"len": 0}, {"len": 8}, {"len": 49}, {"len": 51}, {"len": 65535}, {"chksum": 0}):
        yield to_us / UDP(sport=5, dport=management.PORT, **lie) / asked
    # A HELLO whose challenge is 0.
    hello = management.MAGIC + bytes([management.VERSION, MessageType.HELLO]) + bytes(38)
    yield to_us / UDP(sport=5, dport=management.PORT) / Raw(hello)
    for fields in (
        *({"len": 20}, {"len": 0}, {"len": 65535}, {"chksum": 1}, {"version": 6}, {"ihl": 4}),
        *(
            {"flags": "MF"},
            {"frag": 3},
            {"flags": "evil"},
            {"options": [IPOption(b"\x94\x04\0\0")]},
        ),
    ):
        to = Ether(src=NEIGHBOUR, dst=ENGINE_MAC) / IP(src=CONTROLLER, dst=ENGINE_ADDRESS, **fields)
        for port in (management.PORT, ENGINE_PORT):
            yield to / UDP(sport=5, dport=port) / asked
    for tags in (1, 2):
        outer: Packet = Ether(src=NEIGHBOUR, dst=ENGINE_MAC)
        for tag in range(tags):
            outer = outer / Dot1Q(vlan=tag)
        for port in (management.PORT, ENGINE_PORT):
            yield outer / IP(src=CONTROLLER, dst=ENGINE_ADDRESS) / UDP(dport=port) / asked


def others(choose: random.Random) -> Iterator[bytes]:
    """Yield frames that are no such packets."""
    for operation in (1, 2, 3):
        for source in (CONTROLLER, ENGINE_ADDRESS, "0.0.0.0"):
            for mac in (NEIGHBOUR, GROUP):
                poison = ARP(op=operation, hwsrc=mac, psrc=source, pdst=ENGINE_ADDRESS)
                yield bytes(Ether(src=mac, dst=EVERYBODY) / poison).ljust(60, b"\0")
    yield bytes(Ether(src=NEIGHBOUR, dst=PAUSE, type=0x8808) / Raw(b"\0\1\xff\xff")).ljust(
        60, b"\0"
    )
    for type_ in (0, 46, 1500, 0x0801, 0x86DD, 0x88F7, 0xFFFF):
        dst = choose.choice((ENGINE_MAC, EVERYBODY, GROUP))
        yield bytes(Ether(src=NEIGHBOUR, dst=dst, type=type_) / Raw(choose.randbytes(60)))
    # As long as may be, and longer.
    for size in (1514, 1992, 1995, 1996, 1997, 2000, 4096, 9000):
        yield bytes.fromhex(ENGINE_MAC.replace(":", "")) + choose.randbytes(size - 6)


def hostile(choose: random.Random) -> list[tuple[bytes, Fault]]:
    """Return frames in any order, some spoilt, and runts of every length."""
    found = [(bytes(packet), Fault.NONE) for packet in datagrams(choose)]
    found += [(frame, Fault.NONE) for frame in others(choose)]
    faults = (Fault.WRONG_FCS, Fault.SYMBOL_ERROR)
    found += [(choose.choice(found)[0], fault) for fault in faults for _ in range(20)]
    for frame in (arp_request(), echo_request(bytes(40)), found[0][0]):
        found += [(frame[:size], Fault.NO_PADDING) for size in range(1, 60)]
    choose.shuffle(found)
    return found


def rounds(job: Job) -> Actions[None]:
    """Sum, on a board that has counted other things before."""
    director = Director(**BOARD_BUILD)
    yield from director.configure()
    yield from director.create(job)
    current = [Round(job, slot, 0, random.Random(slot)) for slot in range(job.slots)]
    results = yield from director.flood([frame for each in current for frame in each.frames])
    for slot, each in enumerate(current):
        each.check([result for result in results if result.slot == slot], range(job.workers))


def test_whatever_comes_is_counted_once_and_changes_nothing() -> None:
    clocks = BoardClocks(receive_ppm=100.0, transmit_ppm=-100.0, seed=5)
    with VerilatedBoard(board_parameters(**BOARD_BUILD), BOARD_SETTINGS, clocks) as made:
        board = BoardAsEngine(made)
        choose = random.Random(11)
        frames = hostile(choose)
        requests = board.read(management.management_counter_address("management_executed"))
        before = counter_of(board, "network_frames_in")
        gaps = [choose.choice((1, 5, 8, 12, 12, 96)) for _ in frames]
        made.send([f for f, _ in frames], faults=[fault for _, fault in frames], gaps=gaps)
        made.run(20e-3, until_quiet=200e-6)
        # Nobody gets an answer but one host, each time.
        assert not [frame for frame in made.receive() if frame[0] & 1]

        # A frame of fewer bytes is gone without a trace; each request since is one more.
        traced = sum(len(frame) + 4 >= UNTRACED for frame, _ in frames)
        assert counter_of(board, "network_frames_in") == before + traced + 1
        counted = {
            each.name: counter_of(board, each.name) for each in registers.NODE_FRAME_COUNTERS
        }
        reads = list(counted).index("to_host") + 1
        total = sum(counted.values())
        assert total - reads == before + traced + 1, counted
        assert counted["bad_frames"] > 100 and counted["host_off"] > 10
        assert counted["to_engine"] > 40 and counted["echo_replies"] > 4

        # Nothing was carried out that was not asked for, and all that came is accounted for.
        def own(name: str) -> int:
            return board.read(management.management_counter_address(name))

        names = [each.name for each in management.MANAGEMENT_COUNTERS]
        names = names[: names.index("dhcp_sent")]
        values = {name: own(name) for name in names}
        executed = names.index("management_executed")
        assert sum(values.values()) - values["management_frames"] == values["management_frames"] + (
            executed - 1
        ), values
        assert values["management_executed"] - requests < 60

        statistics = made.statistics()
        assert statistics.spoilt == statistics.malformed == statistics.overflowed == 0
        assert not statistics.fault
        perform(board, rounds(Job(workers=4, lanes=2, slots=4)))


def test_a_storm_of_broadcasts_at_full_rate_delays_no_request() -> None:
    """1.4 million frames in a second: each request is answered at its first attempt."""
    clocks = BoardClocks(receive_ppm=100.0, transmit_ppm=-100.0, seed=6)
    storm = [frame for frame in others(random.Random(2)) if len(frame) == 60 and frame[0] & 1]
    storm = [frame for frame in storm if frame[38:42] != bytes(map(int, ENGINE_ADDRESS.split(".")))]
    storm += [arp_request(pdst="10.0.0.8"), arp_request(pdst="10.0.0.250")]
    with VerilatedBoard(board_parameters(**BOARD_BUILD), BOARD_SETTINGS, clocks) as made:
        board = BoardAsEngine(made)
        answers = 0

        def amid(payload: bytes) -> list[bytes]:
            nonlocal answers
            made.send(storm * 100)
            made.send([board.management_frame(payload)])
            made.send(storm * 40)
            found = board.exchange_on_the_wire()
            answers += len(found)
            return found

        with UdpRegisters(
            ENGINE_ADDRESS, key=BOARD_SETTINGS.key, transport=CallTransport(amid), timeout_s=30.0
        ) as port:
            for name in ("identity", "local_port", "build_slots"):
                port.read(registers.address_of(name))
        # The HELLO and three reads.
        assert answers == 4
        assert counter_of(board, "host_overflow") == 0
        assert counter_of(board, "host_off") >= 4 * 140 * len(storm)
