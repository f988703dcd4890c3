"""The DHCP client beside a server by scapy: leases, silence, and what no server should say."""

import random
from itertools import pairwise

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.contract import management, registers
from afflux_hdl.management import dhcp, dhcp_frames
from afflux_hdl.management import program as program_module
from afflux_hdl.management.instructions import Assembler
from afflux_hdl.management.management import Management
from afflux_hdl.management.memory_map import variables
from afflux_hdl.management.program import build_program
from afflux_sim.golden.management import GoldenManagement
from tests.support.dhcp_server import SERVER_MAC, DhcpServer, options_of
from tests.support.management_bench import BenchTop, ManagementBench, build_bench
from tests.support.management_board import Registers, settings_for
from tests.support.management_frames import HELLO, READ, request, request_frame
from tests.support.planting import names_with
from tests.support.sequencer_twin import Halted, Twin

SETTINGS = settings_for(None, controller="10.0.0.1")
# So that a second has 16 periods, and leases take no time to run.
CLOCK_HZ = 16 * 4096
MAC = "02:af:fa:00:00:09"
LOCAL_ADDRESS = registers.address_of("local_address")


class Client:
    """A board's management on its own wire."""

    def __init__(self, seed=1, settings=SETTINGS):
        built = build_program(settings, clock_hz=CLOCK_HZ, entropy_blocks=8, dhcp=True)
        self.twin = Twin(built.instructions, built.data, Registers(), seed=seed)
        self.seconds = 0
        self.twin.run()

    def wait(self, seconds):
        """Let time pass; return what is sent, with the second in which that happens."""
        found = []
        for _ in range(seconds):
            self.seconds += 1
            found += [(self.seconds, frame) for frame in self.twin.pass_periods(16)]
        return found

    def until(self, seconds):
        """Let time pass until something is sent."""
        for _ in range(seconds):
            for _, frame in self.wait(1):
                return frame
        raise AssertionError(f"nothing was sent within {seconds} s")

    def bind(self, server):
        """Get an address."""
        discover = self.until(3)
        (asked,) = self.twin.feed(server.answer(discover))
        assert self.twin.feed(server.answer(asked)) == []
        assert self.has_address()
        return asked

    def has_address(self):
        return self.twin.configured

    def counter(self, name):
        at = (management.management_counter_address(name) - management.MANAGEMENT_COUNTER_BASE) // 2
        return self.twin.data[address_of("counters") + at]

    def shown(self, name):
        at = address_of("shown") + (management.management_address_of(name) - 0x1000) // 2
        return self.twin.data[at] | self.twin.data[at + 1] << 16

    @property
    def state(self):
        return self.twin.data[address_of("dhcp_state")]

    @property
    def address(self):
        return self.twin.registers.values.get(LOCAL_ADDRESS)


def address_of(name):
    """Return where the program keeps a variable."""
    assembler = Assembler([0] * 32)
    variables(assembler)
    return assembler[name]


def check_lease():
    """Discover, request, bind, renew, rebind, lose, and begin anew."""
    server, client = DhcpServer(), Client()
    assert not client.has_address()
    discover = client.until(3)
    message = Ether(discover)
    assert (message.src, message.dst) == (MAC, "ff:ff:ff:ff:ff:ff")
    assert (message[IP].src, message[IP].dst) == ("0.0.0.0", "255.255.255.255")
    assert (message[UDP].sport, message[UDP].dport) == (68, 67)
    assert message[BOOTP].chaddr[:6] == bytes.fromhex("02affa000009")
    assert message[BOOTP].ciaddr == "0.0.0.0"
    options = options_of(message)
    assert options["message-type"] == 1
    assert options["max_dhcp_size"] == 576
    assert "requested_addr" not in options
    assert len(discover) % 4 == 0
    del message[IP].chksum
    assert bytes(message)[24:26] == discover[24:26]

    (asked,) = client.twin.feed(server.answer(discover))
    wanted = Ether(asked)
    assert wanted[BOOTP].xid == message[BOOTP].xid
    assert options_of(wanted)["message-type"] == 3
    assert options_of(wanted)["requested_addr"] == "10.0.0.9"
    assert options_of(wanted)["server_id"] == "10.0.0.254"
    assert (wanted[IP].src, wanted[BOOTP].ciaddr) == ("0.0.0.0", "0.0.0.0")
    assert not client.has_address()
    # Offers of others come too late.
    assert client.twin.feed(DhcpServer("10.0.0.8", own="10.0.0.253").answer(discover)) == []
    assert client.twin.feed(server.answer(asked)) == []
    assert client.has_address()
    assert client.address == 0x0A000009
    assert client.shown("board_address") == 0x0A000009
    assert client.shown("board_server") == 0x0A0000FE
    assert client.shown("board_lease") == 120
    assert client.shown("board_flags") == 1
    assert (client.counter("dhcp_sent"), client.counter("dhcp_taken")) == (2, 2)
    assert client.counter("dhcp_ignored") == 1

    # Requests are answered at that address.
    golden = GoldenManagement(settings_for("10.0.0.9").to_bytes(), 0, Registers())
    assert client.twin.feed(request_frame(request(golden, HELLO)))
    session = golden.session
    assert client.twin.feed(request_frame(request(golden, HELLO), to="10.0.0.8")) == []

    # T1: half of it. To the server alone, by the way that its answer has come.
    writes = len(client.twin.registers.writes)
    begun = client.seconds
    renewal = Ether(client.until(70))
    assert client.seconds - begun == 60
    assert (renewal.dst, renewal[IP].src, renewal[IP].dst) == (SERVER_MAC, "10.0.0.9", server.own)
    assert renewal[BOOTP].ciaddr == "10.0.0.9"
    assert renewal[BOOTP].xid != message[BOOTP].xid
    options = options_of(renewal)
    assert options["message-type"] == 3
    assert "requested_addr" not in options and "server_id" not in options
    server.lease_s = 160
    assert client.twin.feed(server.answer(bytes(renewal))) == []
    assert client.shown("board_lease") == 160
    # Nothing has changed for anybody else.
    assert len(client.twin.registers.writes) == writes
    assert client.has_address() and session == golden.session

    # Silence: T1 again, T2 to everybody, and the end.
    begun = client.seconds
    sent = client.wait(159)
    assert [second - begun for second, _ in sent] == [80, 140]
    rebinding = Ether(sent[1][1])
    assert (rebinding.dst, rebinding[IP].dst) == ("ff:ff:ff:ff:ff:ff", "255.255.255.255")
    assert (rebinding[IP].src, rebinding[BOOTP].ciaddr) == ("10.0.0.9", "10.0.0.9")
    assert client.has_address()
    assert client.shown("board_lease") == 1
    client.wait(1)
    assert not client.has_address()
    assert (client.address, client.shown("board_address"), client.counter("dhcp_lost")) == (0, 0, 1)
    assert client.twin.feed(request_frame(request(golden, HELLO))) == []
    assert options_of(Ether(client.until(3)))["message-type"] == 1


def test_a_lease():
    check_lease()


def test_any_server_may_rebind():
    server, client = DhcpServer(), Client()
    client.bind(server)
    sent = client.wait(106)
    rebinding = sent[-1][1]
    other = DhcpServer(own="10.0.0.253", broadcast=True)
    assert client.state == 6
    client.twin.feed(other.answer(rebinding))
    assert client.state == 4
    assert client.shown("board_server") == 0x0A0000FD
    assert client.counter("dhcp_lost") == 0


def test_another_server_may_not_renew():
    server, client = DhcpServer(), Client()
    client.bind(server)
    renewal = client.until(61)
    other = DhcpServer(own="10.0.0.253")
    client.twin.feed(other.answer(renewal))
    assert (client.state, client.counter("dhcp_ignored")) == (5, 1)


@pytest.mark.parametrize("state", ["requesting", "renewing", "rebinding"])
@pytest.mark.parametrize("how", ["nak", "another address"])
def test_what_is_denied(state, how):
    server, client = DhcpServer(), Client()
    discover = client.until(3)
    (asked,) = client.twin.feed(server.answer(discover))
    if state != "requesting":
        client.twin.feed(server.answer(asked))
        asked = client.wait(61 if state == "renewing" else 106)[-1][1]
    kind, address = ("nak", server.address) if how == "nak" else ("ack", "10.0.0.10")
    server.address = address
    assert client.twin.feed(server.message(Ether(asked), kind)) == []
    assert client.state == 1
    assert not client.has_address()
    assert client.counter("dhcp_lost") == (state != "requesting")
    assert client.address == 0
    # And again from the beginning, now with what the server has.
    client.bind(server)
    assert client.address == 0x0A000009 + (how != "nak")


@pytest.mark.parametrize("seed", range(3))
def test_silence(seed):
    client = Client(seed)
    times = [second for second, _ in client.wait(330)]
    assert 1 <= times[0] <= 2
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) >= 6
    for gap, base in zip(gaps, (4, 8, 16, 32, 64, 64, 64), strict=False):
        assert abs(gap - base) <= 1


def test_chance_differs():
    assert len({tuple(second for second, _ in Client(seed).wait(70)) for seed in range(8)}) > 2
    assert len({Ether(Client(seed).until(3))[BOOTP].xid for seed in range(8)}) == 8


def test_a_server_that_offers_and_goes():
    server, client = DhcpServer(), Client()
    assert client.twin.feed(server.answer(client.until(3)))
    sent = client.wait(80)
    kinds = [options_of(Ether(frame))["message-type"] for _, frame in sent]
    # Asked three times more; then all begins anew.
    assert kinds[:4] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("times", "first", "second"),
    [
        (None, 60, 105),
        ((30, 100), 30, 100),
        ((100, 30), 60, 105),
        ((30, 120), 60, 105),
        ((30, 30), 60, 105),
        ((0, 100), 60, 105),
        ((70000, 80000), 60, 105),
    ],
)
def test_times(times, first, second):
    server, client = DhcpServer(times=times), Client()
    client.bind(server)
    begun = client.seconds
    sent = [at - begun for at, _ in client.wait(second + 1)]
    assert (sent[0], sent[-1]) == (first, second)
    assert all(later - earlier >= 60 or later == second for earlier, later in pairwise(sent))


def test_long_leases():
    server, client = DhcpServer(lease_s=86_400), Client()
    client.bind(server)
    t1, t2 = address_of("dhcp_t1"), address_of("dhcp_t2")
    words = client.twin.data
    assert words[t1] | words[t1 + 1] << 16 == 43_200
    assert words[t2] | words[t2 + 1] << 16 == 75_600
    client.wait(10)
    assert words[t2] | words[t2 + 1] << 16 == 75_590
    # Across the words of a number.
    for at in (address_of("shown") + 26, t1, t2):
        words[at : at + 2] = [0, 2]
    client.wait(1)
    for at in (address_of("shown") + 26, t1, t2):
        assert words[at : at + 2] == [0xFFFF, 1]


def test_a_lease_for_ever():
    server, client = DhcpServer(lease_s=0xFFFF_FFFF), Client()
    client.bind(server)
    assert client.wait(400) == []
    assert client.shown("board_lease") == 0xFFFF_FFFF
    assert client.has_address()


def check_hostile():
    """In each state, wrong messages change nothing, and right ones are taken."""
    server, client = DhcpServer(), Client()
    discover = client.until(3)
    asked = discover
    for state, kind in (("selecting", "offer"), ("requesting", "ack")):
        if state == "requesting":
            (asked,) = client.twin.feed(server.answer(discover))
        for what, frame in server.hostile(Ether(asked), kind):
            before = (
                client.state,
                client.counter("dhcp_ignored") + client.counter("management_not_ours"),
            )
            assert client.twin.feed(frame) == [], (state, what)
            assert client.state == before[0], (state, what)
            ignored = client.counter("dhcp_ignored") + client.counter("management_not_ours")
            assert ignored == before[1] + 1, (state, what)
            assert not client.has_address()
    assert client.twin.feed(server.answer(asked)) == []
    assert client.has_address()


def test_hostile_servers():
    check_hostile()


@pytest.mark.parametrize("step", [pytest.param(3, marks=pytest.mark.long), 7])
def test_every_bit_counts(step):
    """A frame with one bit flipped is never taken for another message."""
    server, client = DhcpServer(), Client()
    discover = client.until(3)
    offer = server.answer(discover)
    ignored = 0
    for bit in range(8 * 14, 8 * len(offer), step):
        flipped = bytearray(offer)
        flipped[bit // 8] ^= 1 << bit % 8
        assert client.twin.feed(bytes(flipped)) == [], bit
        ignored += 1
    assert client.state == 2
    frames = client.counter("dhcp_ignored") + client.counter("management_not_ours")
    assert frames == ignored
    assert client.twin.feed(offer)


def check_options(count):
    """Feed offers with so many random options: none is taken; those that may be there are."""
    server, client, choose = DhcpServer(), Client(), random.Random(5)
    discover = Ether(client.until(3))
    for _ in range(count):
        raw = choose.randbytes(choose.randrange(1, 250))
        frame = server.message(discover, "offer", options=[raw])
        client.twin.feed(frame)
        assert client.state == 2
    # Options that may stand between: pads, unknown options, odd places, and more after the end.
    before = ("pad", ("param_req_list", [1, 2, 3]), "pad", ("vendor_class_id", b"x" * 33))
    for padding in (b"", b"\xff", b"\xff\xff\xff"):
        other = Client()
        found = other.until(3)
        assert other.twin.feed(server.answer(found, before=before) + padding)
        assert other.state == 3


@pytest.mark.parametrize("count", [pytest.param(300, marks=pytest.mark.long), 100])
def test_random_options(count):
    check_options(count)


def test_marked_frames_are_not_ours():
    server, client = DhcpServer(), Client()
    client.twin.feed(server.answer(client.until(3)), bad=True)
    assert (client.state, client.counter("management_not_ours")) == (2, 1)


def test_settings_with_an_address_have_no_client():
    client = Client(settings=settings_for("10.0.0.9", controller="10.0.0.1"))
    assert client.has_address()
    assert client.wait(200) == []
    server = DhcpServer()
    client.twin.feed(server.answer(Client().until(3)))
    assert client.counter("management_not_ours") == 1
    assert client.counter("dhcp_ignored") == 0


BUGS = {
    "xid": (dhcp_frames, 'expect(p["dhcp_xid"], p["dhcp_xid"] + 1)', "p.take()\n    p.take()"),
    "cookie": (
        dhcp_frames,
        "expect(*(p.constant(as_sent(word)) for word in _COOKIE))",
        "p.take()\n    p.take()",
    ),
    "client": (dhcp_frames, "expect(MAC, MAC + 1, MAC + 2)", "[p.take() for _ in range(3)]"),
    "lease": (dhcp_frames, "_LEASE_LEAST_S = 60", "_LEASE_LEAST_S = 59"),
    "controller": (
        dhcp_frames,
        'p.or_(p["t"])\n    p.jump_zero("dhcp_unacceptable")',
        'p.or_(p["t"])',
    ),
    "truncated": (
        dhcp_frames,
        'p.load(p["in_short"])\n    p.jump_not_zero("dhcp_refuse")',
        "",
    ),
    "odd length": (
        dhcp_frames,
        'p.load(p["in_odd"])\n    p.jump_zero("dhcp_even")',
        'p.jump("dhcp_even")',
    ),
    "server": (
        dhcp_frames,
        'p.xor(p["dhcp_server"] + n)\n        p.jump_not_zero("dhcp_refuse")',
        'p.xor(p["dhcp_server"] + n)',
    ),
    "checksum": (
        dhcp_frames,
        'p.call("udp_right")\n    p.jump_not_zero("dhcp_refuse")',
        'p.call("udp_right")',
    ),
    "T2 of the lease": (
        dhcp,
        'p.call("halve")\n    p.call("halve")\n    p.load(lease)',
        'p.call("halve")\n    p.load(lease)',
    ),
    "the lease never ends": (dhcp, 'p.jump_zero("dhcp_lost")', ""),
    "waits do not grow": (dhcp, 'p.add(p["dhcp_timer"])\n    p.jump', "p.jump"),
}

# What takes longest to be found.
SLOW_BUGS = {"odd length", "server", "waits do not grow"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name in SLOW_BUGS else name for name in BUGS],
)
def test_planted_bugs_are_caught(name, monkeypatch):
    module, right, wrong = BUGS[name]
    planted = names_with(module, right, wrong)
    for part in module.__all__:
        owner = program_module if module is dhcp else dhcp
        monkeypatch.setattr(owner, part, planted[part])
    with pytest.raises((AssertionError, Halted)):
        check_lease()
        check_hostile()
        check_options(300)
        test_silence(1)
        test_another_server_may_not_renew()


@pytest.mark.long
def test_the_gateware_gets_an_address():
    management_part = Management(
        settings=SETTINGS, clock_hz=1e6, dhcp=True, entropy_blocks=8, entropy_spacing_bits=0
    )
    path = build_bench(BenchTop(management_part))
    values = Registers()
    second = 1_000_000
    with ManagementBench(path, values) as bench:
        bench.set_pace(1, gaps=5, stalls=3)
        bench.reset()
        server = DhcpServer()
        (discover,) = bench.run(after=2 * second + 10_000)
        (asked,) = bench.run([server.answer(discover)], after=20_000)
        assert bench.pins.configured == 0
        for what, frame in server.hostile(Ether(asked), "ack"):
            assert bench.run([frame], after=20_000) == [], what
        assert bench.pins.configured == 0
        assert bench.run([server.answer(asked)], after=20_000) == []
        assert bench.pins.configured == 1
        assert values.values[LOCAL_ADDRESS] == 0x0A000009
        golden = GoldenManagement(
            settings_for("10.0.0.9", controller="10.0.0.1").to_bytes(), 0, Registers()
        )
        (answer,) = bench.run([request_frame(request(golden, HELLO))], after=3_000)
        golden.session = int.from_bytes(answer[52:60], "little")
        (answer,) = bench.run([request_frame(request(golden, READ, 0x1038))], after=3_000)
        # Until T1, a minute later, nothing is sent; then a request to the server alone.
        assert bench.run(after=58 * second) == []
        (renewal,) = bench.run(after=3 * second)
        assert Ether(renewal).dst == SERVER_MAC
        assert Ether(renewal)[DHCP].options[0] == ("message-type", 3)
