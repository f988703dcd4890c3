"""The golden management: SipHash by its authors' vectors, and each rule of docs/management.md."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.management import GoldenManagement
from afflux_sim.golden.siphash import siphash_2_4
from tests.support.management_board import KEY, Registers, settings_for

# The first of the vectors of the authors' reference code: key 00, 01, … 0f, message 00, 01, …
VECTORS = (
    "310e0edd47db6f72",
    "fd67dc93c539f874",
    "5a4fa9d909806c0d",
    "2d7efbd796666785",
    "b7877127e09427cf",
    "8da699cd64557618",
    "cee3fe586e46c9cb",
    "37d1018bf50002ab",
    "6224939a79f5f593",
)
PAPER = "e545be4961ca29a1"
"""Of 15 octets, as in appendix A of the paper."""

BOARD, CONTROLLER = bytes([10, 0, 0, 9]), bytes([10, 0, 0, 1])
HELLO, READ, WRITE = 1, 2, 3
CHALLENGE = bytes(range(1, 9))


def test_siphash():
    key = bytes(range(16))
    for length, code in enumerate(VECTORS):
        assert siphash_2_4(key, bytes(range(length))).hex() == code
    assert siphash_2_4(key, bytes(range(15))).hex() == PAPER


def golden():
    settings = settings_for("10.0.0.9", controller="10.0.0.1").to_bytes()
    return GoldenManagement(settings, 0x1122334455667788, Registers())


def request(board, kind, address=0, value=0, *, sequence=1, session=None, to=BOARD):
    if kind == HELLO:
        return b"AM\1\1" + bytes(30) + CHALLENGE
    head = bytes([1, kind, 0, 0]) + address.to_bytes(4, "little")
    head += (board.session if session is None else session).to_bytes(8, "little")
    head += sequence.to_bytes(8, "little")
    word = value.to_bytes(4, "little") + to
    tag = siphash_2_4(KEY, head + word)
    pad = siphash_2_4(KEY, tag)
    return b"AM" + head + bytes(a ^ b for a, b in zip(word, pad, strict=True)) + tag


def frame(payload, *, source="10.0.0.1", mac="02:00:00:00:00:01", **ip):
    built = (
        Ether(src=mac, dst="02:af:fa:00:00:09")
        / IP(src=source, dst="10.0.0.9", **ip)
        / UDP(sport=50000, dport=4699)
        / payload
    )
    return bytes(built)


def test_each_request_is_carried_out_once():
    board = golden()
    first = request(board, WRITE, 0x40, 7)
    answers = [board.receive(frame(first)) for _ in range(3)]
    assert answers[0] is not None and answers.count(answers[0]) == 3
    assert board.node.writes[4:] == [(0x40, 7)]
    assert (board.counters["management_executed"], board.counters["management_repeats"]) == (1, 2)
    # Another with the number is refused, and the next number is carried out.
    taken = board.receive(frame(request(board, WRITE, 0x40, 8)))
    assert taken[42 + 4] == 2
    assert board.receive(frame(request(board, READ, 0x40, sequence=2)))[42 + 4] == 0
    assert board.receive(frame(request(board, READ, 0x40, sequence=4))) is None
    assert board.counters["management_ahead"] == 1


def test_the_history_ends():
    board = golden()
    payloads = [request(board, READ, 0, sequence=n) for n in range(1, 67)]
    for payload in payloads:
        board.judge(payload)
    assert board.judge(payloads[1])[1][4] == 3
    assert board.judge(payloads[2])[1][4] == 0
    assert board.judge(request(board, READ, 0, sequence=0))[1][4] == 3


def test_a_session_that_is_over():
    board = golden()
    old = request(board, WRITE, 0x40, 7)
    again = golden()
    again.session += 1
    answer = again.judge(old)[1]
    assert answer[4] == 4
    assert int.from_bytes(answer[10:18], "little") == again.session
    assert again.node.writes[4:] == []


def test_frames_are_answered_as_frames():
    board = golden()
    answer = Ether(board.receive(frame(request(board, HELLO))))
    assert (answer.src, answer.dst) == ("02:af:fa:00:00:09", "02:00:00:00:00:01")
    assert (answer[IP].src, answer[IP].dst) == ("10.0.0.9", "10.0.0.1")
    assert (answer[UDP].sport, answer[UDP].dport, answer[UDP].len) == (4699, 50000, 50)
    assert len(bytes(answer)) == 84
    checksum = answer[IP].chksum
    del answer[IP].chksum
    assert Ether(bytes(answer))[IP].chksum == checksum


@pytest.mark.parametrize(
    ("change", "counter"),
    [
        (lambda f: f[:41], "management_not_ours"),
        (lambda f: b"\x02" + bytes(5) + f[6:], "management_not_ours"),
        (lambda f: f[:20] + b"\x20\x00" + f[22:], "management_not_ours"),
        (lambda f: f[:36] + b"\x12\x5c" + f[38:], "management_not_ours"),
        (lambda f: f[:6] + b"\x01" + f[7:], "management_bad_source"),
        (lambda f: f[:29] + b"\x02" + f[30:], "management_bad_source"),
        (lambda f: f[:-1], "management_malformed"),
        (lambda f: f[:24] + b"\0\0" + f[26:], "management_malformed"),
        (lambda f: f[:60] + bytes([f[60] ^ 1]) + f[61:], "management_malformed"),
        (lambda f: f[:40] + b"\0\0" + f[42:45] + b"\x07" + f[46:], "management_malformed"),
        (lambda f: f[:40] + b"\0\0" + f[42:60] + bytes([f[60] ^ 1]) + f[61:], "management_forged"),
    ],
)
def test_what_is_dropped(change, counter):
    board = golden()
    assert board.receive(change(frame(request(board, WRITE, 0x40, 7)))) is None
    assert board.counters == dict.fromkeys(board.counters, 0) | {
        "management_frames": 1,
        counter: 1,
    }
    assert board.node.writes[4:] == []


def test_to_another_board():
    board = golden()
    assert board.judge(request(board, WRITE, 0x40, 7, to=b"\x0a\0\0\x08"))[0] == "management_forged"


def test_the_rate():
    board = golden()
    answered = [board.judge(request(board, HELLO))[1] is not None for _ in range(70)]
    assert answered == [True] * 64 + [False] * 6
    board.pass_time(2 * 4096)
    assert [board.judge(request(board, HELLO))[0] for _ in range(3)] == [
        "management_hellos",
        "management_hellos",
        "management_limited",
    ]
    # New requests have no rate.
    assert board.judge(request(board, READ))[0] == "management_executed"
    assert board.judge(request(board, READ))[0] == "management_limited"


def test_own_registers():
    board = golden()
    numbers = iter(range(1, 100))

    def access(kind, address, value=0):
        answer = board.judge(request(board, kind, address, value, sequence=next(numbers)))[1]
        pad = siphash_2_4(KEY, answer[34:])
        return answer[4], int.from_bytes(
            bytes(a ^ b for a, b in zip(answer[26:30], pad, strict=False)), "little"
        )

    assert access(READ, 0x1000) == (0, 0x41464C4D)
    assert access(READ, 0x1014) == (0, 0x0A000009)
    assert access(READ, 0x1020) == (0, int.from_bytes(b"test", "little"))
    assert access(READ, 0x2000) == (1, 0)
    assert access(READ, 0x0F8) == (1, 0)
    assert access(WRITE, 0x1000, 1) == (1, 0)
    assert access(WRITE, 0x103C, 1) == (1, 0)
    assert board.resets == 0
    assert access(WRITE, 0x103C, 0x52534554) == (0, 0)
    assert board.resets == 1


def test_settings_that_are_damaged():
    settings = settings_for("10.0.0.9").to_bytes()
    assert not GoldenManagement(settings, 1, Registers()).fault
    for at in range(64):
        damaged = settings[:at] + bytes([settings[at] ^ 4]) + settings[at + 1 :]
        board = GoldenManagement(damaged, 1, Registers())
        assert board.fault
        assert board.receive(frame(request(board, HELLO))) is None
        assert board.node.writes == []
