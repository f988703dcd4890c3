"""The program of the management beside the golden model, by the sequencer's twin; and with bugs."""

import random

import pytest

from afflux_hdl.management import program as program_module
from afflux_hdl.management import requests as requests_module
from afflux_hdl.management.instructions import Assembler
from afflux_hdl.management.memory_map import variables
from afflux_hdl.management.program import build_program
from afflux_sim.golden.management import GoldenManagement
from afflux_sim.golden.siphash import siphash_2_4
from tests.support.management_board import Registers, settings_for
from tests.support.management_frames import (
    HELLO,
    READ,
    WRITE,
    random_frames,
    request,
    request_frame,
)
from tests.support.planting import names_with
from tests.support.sequencer_twin import Halted, Twin

SETTINGS = settings_for("10.0.0.9", controller="10.0.0.1")
START_WRITES = 4


def both(build=build_program, seed=1, **options):
    """Start the twin, and a golden board with the session that it tells."""
    fields = {"clock_hz": 1e6, "entropy_blocks": 8, "dhcp": False} | options
    built = build(SETTINGS, **fields)
    twin = Twin(built.instructions, built.data, Registers(), seed=seed)
    twin.run()
    golden = GoldenManagement(SETTINGS.to_bytes(), 0, Registers())
    asked = request_frame(request(golden, HELLO))
    (answer,) = twin.feed(asked)
    golden.session = int.from_bytes(answer[52:60], "little")
    assert golden.receive(asked) == answer
    return twin, golden


def check(build, seeds, frames=40):
    """Compare every answer and every access, in the order in which they came."""
    twin, golden = both(build)
    for seed in seeds:
        for frame, bad in random_frames(random.Random(seed), golden, frames):
            wanted = golden.receive(frame, bad)
            assert twin.feed(frame, bad) == ([wanted] if wanted else []), frame.hex(" ")
        twin.pass_periods(64)
        golden.pass_time(64 * 4096)
        golden.seconds = twin.periods * 4096 // 1_000_000
    assert twin.registers.writes == golden.node.writes
    assert twin.accepted == golden.counters["management_executed"]
    return twin, golden


def check_rules(build):
    """Look at what random frames seldom meet: the edges of numbers, history and tags."""
    twin, golden = both(build)

    def ask(payload):
        return frames(request_frame(payload))

    def frames(frame):
        wanted = golden.receive(frame)
        assert twin.feed(frame) == ([wanted] if wanted else [])
        twin.pass_periods(1)
        golden.pass_time(4096)
        return wanted

    first = request(golden, WRITE, 0x40, 1)
    for _ in range(3):
        ask(first)
    ask(request(golden, WRITE, 0x40, 2, sequence=1))
    ask(request(golden, WRITE, 0x40, 3, sequence=3))
    ask(request(golden, READ, 0x1114))
    # The frontier of the history.
    past = [first]
    while golden.latest < 130:
        past.append(request(golden, READ, 0x040))
        ask(past[-1])
    for back in (62, 63, 64, 65, 66):
        ask(past[-1 - back])
        ask(request(golden, READ, 0x800, sequence=golden.latest - back))
    # Each bit of the tag, of the session, and of what is under the tag.
    for bit in range(8 * 4, 8 * 42):
        flipped = bytearray(request(golden, WRITE, 0x44, bit))
        flipped[bit // 8] ^= 1 << bit % 8
        ask(bytes(flipped))
    for bit in range(64):
        ask(request(golden, WRITE, 0x44, bit, session=golden.session ^ 1 << bit))
    ask(request(golden, WRITE, 0x44, 5, to=bytes([10, 0, 0, 8])))
    # Each bit of the tag alone: what is enciphered depends on it, so only who has the key can.
    for bit in range(64):
        payload = request(golden, WRITE, 0x44, bit)
        tag = bytearray(payload[34:])
        pad = siphash_2_4(golden.key, bytes(tag))
        tag[bit // 8] ^= 1 << bit % 8
        other = siphash_2_4(golden.key, bytes(tag))
        word = bytes(a ^ b ^ c for a, b, c in zip(payload[26:34], pad, other, strict=True))
        ask(payload[:26] + word + bytes(tag))
    # An answer does not count as a request, and neither does a request of the kind of an answer.
    answer = ask(request(golden, READ, 0x40))
    ask(answer[42:])
    for kind in range(256):
        ask(request(golden, kind, 0x40) if kind != HELLO else answer[42:])
    # Faults that the UDP checksum alone can tell: a HELLO has no code.
    for bit in range(16):
        wrong = bytearray(request_frame(request(golden, HELLO)))
        wrong[40 + bit // 8] ^= 1 << bit % 8
        frames(bytes(wrong))
    # Padding that a frame lacks.
    for asked in (request(golden, HELLO, challenge=b"12345" + bytes(3)), b""):
        for length in range(70, 85):
            frames(request_frame(asked or request(golden, WRITE, 0x40), checksum=False)[:length])
    # Counters have 32 bits.
    for value in (0xFFFF, 0xFFFF_FFFF):
        golden.counters["management_executed"] = value
        at = program_address("counters") + 2 * list(golden.counters).index("management_executed")
        twin.data[at : at + 2] = [value & 0xFFFF, value >> 16]
        for _ in range(3):
            golden.counters["management_executed"] %= 1 << 32
            ask(request(golden, READ, 0x1118))
    # The sequence number has 64 bits.
    for latest in (0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF):
        golden.latest = latest
        for n in range(4):
            where = program_address("latest") + n
            twin.data[where] = latest >> 16 * n & 0xFFFF
        golden._history.clear()
        ask(request(golden, WRITE, 0x48, 1))
        ask(request(golden, WRITE, 0x48, 1, sequence=golden.latest))
        ask(request(golden, WRITE, 0x48, 2))
        ask(request(golden, WRITE, 0x48, 2, sequence=golden.latest + 1 + (1 << 48)))
    assert twin.registers.writes == golden.node.writes


def program_address(name):
    """Return where the program keeps a variable."""
    assembler = Assembler([0] * 32)
    variables(assembler)
    return assembler[name]


def test_random_frames():
    twin, golden = check(build_program, range(12))
    assert (
        all(golden.counters[name] > 5 for name in golden.counters if name.startswith("management"))
        or golden.counters["management_limited"] == 0
    )
    # No call is deeper than the stack.
    assert twin.deepest <= 6


def test_rules():
    check_rules(build_program)


BUGS = {
    "the first of a session is not looked for": (
        'p.and_(p["difference"] + n)\n    p.xor(p.constant(0xFFFF))',
        'p.and_(p["difference"] + n)\n    p.xor(p.constant(0xFFFE))',
    ),
    "tags are compared in 48 bits": (
        "for n in range(4):\n        p.get(Port.CODE + n)\n        p.xor(message + TAG_AT + n)",
        "for n in range(3):\n        p.get(Port.CODE + n)\n        p.xor(message + TAG_AT + n)",
    ),
    "tags are compared in 63 bits": (
        'p.or_(p["u"])\n        p.store(p["u"])\n    p.jump_not_zero("forged")',
        'p.or_(p["u"])\n        p.store(p["u"])\n    p.and_(p.constant(0x7FFF))\n'
        '    p.jump_not_zero("forged")',
    ),
    "only the last word of a tag is looked at": (
        'if n:\n            p.or_(p["u"])\n        p.store(p["u"])',
        "pass",
    ),
    "a repeat is carried out again": (
        'p.call("token")\n    p.jump_zero("limited")\n    p.call("answer")',
        'p.jump("new")\n    p.call("answer")',
    ),
    "the tag of a repeat is not looked at": (
        """p.load(X_NEXT)
        p.xor(message + TAG_AT + n)
        p.jump_not_zero("refuse")""",
        """p.load(X_NEXT)""",
    ),
    "the bit of answers is ignored": (
        "p.load(message + 1)\n    p.subtract(p.constant(management.VERSION",
        "p.load(message + 1)\n    p.and_(p.constant(0x7FFF))\n"
        "    p.subtract(p.constant(management.VERSION",
    ),
    "the session is looked at in three of four words": (
        """for n in range(4):
        p.load(message + SESSION_AT + n)""",
        """for n in range(3):
        p.load(message + SESSION_AT + n)""",
    ),
    "a number far ahead wraps": (
        """p.subtract_carry(message + SEQUENCE_AT + n)
        p.store(p["difference"] + n)
    p.jump_carry("not_new")""",
        """p.subtract_carry(message + SEQUENCE_AT + n)
        p.store(p["difference"] + n)
    p.load(p["difference"])
    p.xor(p.constant(0xFFFF))
    p.jump_zero("new")
    p.jump_carry("not_new")""",
    ),
    "the history is one too long": (
        "p.constant(management.HISTORY))\n    p.jump_carry",
        "p.constant(management.HISTORY + 1))\n    p.jump_carry",
    ),
    "the board's address is not looked at": (
        """p.xor(p["address"] + n)
        p.jump_not_zero("forged")""",
        """p.xor(p["address"] + n)""",
    ),
    "SLVERR is not seen": (
        'p.get(Port.AXI_WRITE)\n    p.jump_zero("done")',
        'p.get(Port.AXI_WRITE)\n    p.jump("done")',
    ),
    "the answer is not bound to its request": (
        '# Behind it, the request\'s tag.\n    p.call("block")',
        '# Behind it, the request\'s tag.\n    p.index(message + 1)\n    p.call("block")',
    ),
    "the controller is looked at in 16 bits": (
        'for n in range(2):\n        p.load(p["source"] + n)',
        'for n in range(1):\n        p.load(p["source"] + n)',
    ),
    "checksums are not verified": (
        'p.call("udp_right")\n    p.jump_not_zero("malformed")',
        'p.call("udp_right")',
    ),
    "the frame may end too early": (
        "p.take(whole=n == MESSAGE_WORDS - 1)",
        "p.take()",
    ),
    "an own register is one too many": (
        "p.subtract(p.constant(4 * len(management.MANAGEMENT_REGISTERS)))",
        "p.subtract(p.constant(4 * len(management.MANAGEMENT_REGISTERS) + 4))",
    ),
    "frames that the MAC marked count": (
        'p.skip()\n    p.jump_carry("not_ours")',
        "p.skip()",
    ),
}

# One or two of each kind: numbers and history, tags, what the answer is bound to, addresses.
NOW = {
    "the first of a session is not looked for",
    "only the last word of a tag is looked at",
    "a repeat is carried out again",
    "the tag of a repeat is not looked at",
    "the history is one too long",
    "the board's address is not looked at",
    "the answer is not bound to its request",
}


@pytest.mark.parametrize(
    "name", [name if name in NOW else pytest.param(name, marks=pytest.mark.long) for name in BUGS]
)
def test_planted_bugs_are_caught(name, monkeypatch):
    planted = names_with(requests_module, *BUGS[name])
    for part in requests_module.__all__:
        monkeypatch.setattr(program_module, part, planted[part])
    with pytest.raises((AssertionError, Halted, KeyError, IndexError)):
        check_rules(build_program)
        check(build_program, range(4))


def test_the_rate():
    twin, golden = both()
    frames = [request_frame(request(golden, HELLO)) for _ in range(70)]
    answered = [bool(twin.feed(frame)) for frame in frames]
    # One was asked before.
    assert answered == [True] * 63 + [False] * 7
    twin.pass_periods(2)
    assert [bool(twin.feed(frame)) for frame in frames[:3]] == [True, True, False]
    # It is never more than full, and new requests have no rate.
    twin.pass_periods(100)
    assert [bool(twin.feed(frame)) for frame in frames[:66]] == [True] * 64 + [False] * 2
    assert twin.feed(request_frame(request(golden, READ)))


def test_sessions_differ():
    sessions = {both(seed=seed)[1].session for seed in range(20)}
    assert len(sessions) == 20
    # Also if all but a few samples are the same.
    words = [0x1234] * 31

    def session_with(last):
        samples = iter([*words, last])
        built = build_program(SETTINGS, clock_hz=1e6, entropy_blocks=8, dhcp=False)
        twin = Twin(built.instructions, built.data, Registers(), samples=lambda: next(samples))
        twin.run()
        golden = GoldenManagement(SETTINGS.to_bytes(), 0, Registers())
        return twin.feed(request_frame(request(golden, HELLO)))[0][52:60]

    assert len({session_with(last) for last in range(20)}) == 20


@pytest.mark.parametrize("stuck", [0, 0xFFFF])
def test_a_stuck_source_gives_no_session(stuck):
    built = build_program(SETTINGS, clock_hz=1e6, entropy_blocks=8, dhcp=False)
    twin = Twin(built.instructions, built.data, Registers(), samples=lambda: stuck)
    with pytest.raises(Halted):
        twin.run()
    assert twin.fault and not twin.configured
    assert twin.registers.writes == []


def test_a_source_comes_to_itself():
    built = build_program(SETTINGS, clock_hz=1e6, entropy_blocks=8, dhcp=False)
    choose, words = random.Random(1), iter([0] * 40)
    twin = Twin(
        built.instructions,
        built.data,
        Registers(),
        samples=lambda: next(words, choose.getrandbits(16)),
    )
    twin.run()
    assert twin.configured and not twin.fault


def test_settings_that_are_damaged():
    built = build_program(SETTINGS, clock_hz=1e6, entropy_blocks=8, dhcp=False)
    for at in range(32):
        data = list(built.data)
        data[at] ^= 1 << at % 16
        twin = Twin(built.instructions, data, Registers())
        with pytest.raises(Halted):
            twin.run(20_000)
        assert twin.fault and not twin.configured
        assert twin.registers.writes == []
    without = build_program(
        settings_for(None, controller="10.0.0.1"), clock_hz=1e6, entropy_blocks=8, dhcp=False
    )
    twin = Twin(without.instructions, without.data, Registers())
    with pytest.raises(Halted):
        twin.run(20_000)
    assert twin.fault


def test_a_reset_forgets_all():
    twin, golden = both()
    old = request_frame(request(golden, WRITE, 0x40, 9))
    twin.feed(old)
    ordered = request_frame(request(golden, WRITE, 0x103C, 0x52534554, sequence=2))
    twin.feed(ordered)
    assert twin.resets == 0
    twin.pass_periods(4)
    assert twin.resets == 1
    twin.restart()
    twin.registers.writes.clear()
    twin.run()
    assert len(twin.registers.writes) == START_WRITES
    (answer,) = twin.feed(request_frame(request(golden, HELLO)))
    assert answer[60:68] == bytes(8)
    (answer,) = twin.feed(old)
    assert answer[46] == 4
    assert len(twin.registers.writes) == START_WRITES


def test_seconds():
    twin, golden = both(clock_hz=1e6)
    twin.pass_periods(1000)
    golden.seconds = 4
    frame = request_frame(request(golden, READ, 0x1030))
    assert twin.feed(frame) == [golden.receive(frame)]
