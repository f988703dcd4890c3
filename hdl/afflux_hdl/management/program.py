"""The program of the management: start, requests, answers (`docs/management.md`).

Words are two octets as on the wire, the first in the low bits, as everything here is little-endian
and the Internet's numbers are only compared and copied. `swapped` turns one round.

Tested: `tests/hdl/test_management.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from afflux_hdl.contract import management, registers
from afflux_hdl.contract.management import MessageType, Settings, Status
from afflux_hdl.management.dhcp import add_dhcp, start_dhcp
from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import *
from afflux_hdl.management.siphash import SipHashStep

__all__ = ["Program", "build_program", "data_of"]

@dataclass(frozen=True)
class Program:
    """What the sequencer carries out.

    Attributes:
        instructions: The program.
        data: Initial data: the settings, and from word 32 on what no settings change.
    """

    instructions: Sequence[int]
    data: Sequence[int]


def data_of(settings: Settings) -> list[int]:
    """Return the words that the data begin with."""
    octets = settings.to_bytes()
    return [
        int.from_bytes(octets[at : at + 2], "little") for at in range(0, len(octets), 2)
    ]


def build_program(
    settings: Settings, *, clock_hz: float, entropy_blocks: int, dhcp: bool
) -> Program:
    """Return the program and its data.

    Args:
        settings: What the data begin with; the program does not depend on it.
        clock_hz: Of the clock, for seconds.
        entropy_blocks: Blocks of 64 samples that make a session.
        dhcp: With the DHCP client.
    """
    p = Assembler(data_of(settings))
    variables(p)
    start(p, entropy_blocks=entropy_blocks, dhcp=dhcp)
    main(p, dhcp=dhcp)
    frame(p, dhcp=dhcp)
    requests(p)
    access(p)
    answer(p)
    subroutines(p)
    time(p, clock_hz=clock_hz, dhcp=dhcp)
    if dhcp:
        add_dhcp(p)
    instructions = p.finish()
    if len(p.data) > HISTORY_BASE:
        raise ValueError(f"{len(p.data)} words of data reach into the history")
    return Program(instructions, tuple(p.data))


def start(p: Assembler, *, entropy_blocks: int, dhcp: bool) -> None:
    """Clear the data, check the settings, draw the session, set the addresses."""
    p.load_constant(0)
    p.put(Port.STATUS)
    p.load_constant(p["shown"])
    p.label("clear")
    p.store(p["pointer"])
    p.special(Special.INDEX)
    p.load_constant(0)
    p.store(X)
    p.load(p["pointer"])
    p.add(p.constant(1))
    p.store(p["pointer"])
    p.xor(p.constant(p["end"]))
    _jump_again(p, "clear", p["pointer"])

    # The settings.
    p.load(0)
    p.xor(p.constant(int.from_bytes(b"AF", "little")))
    p.jump_not_zero("fault")
    p.load(1)
    p.xor(p.constant(int.from_bytes(b"S\1", "little")))
    p.jump_not_zero("fault")
    p.call("key")
    p.index(0)
    for _ in range(5):
        p.call("block")
    p.load_constant(40 << 8)
    p.call("last")
    for n in range(4):
        p.get(Port.CODE + n)
        p.xor(CHECK + n)
        p.jump_not_zero("fault")
    p.load(FLAGS)
    p.and_(p.constant(1))
    p.store(shown(p, "board_flags"))
    if not dhcp:
        p.jump_not_zero("fault")

    # The session.
    p.call("key")
    p.load_constant(entropy_blocks)
    p.store(p["left"])
    p.label("entropy")
    for n in range(4):
        p.get(Port.ENTROPY)
        p.store(p["message"] + n)
    p.index(p["message"])
    p.load(X_NEXT)
    for _ in range(3):
        p.or_(X_NEXT)
    p.jump_zero("stuck")
    p.index(p["message"])
    p.load(X_NEXT)
    for _ in range(3):
        p.and_(X_NEXT)
    p.xor(p.constant(0xFFFF))
    p.jump_zero("stuck")
    p.load_constant(0)
    p.put(Port.STATUS)
    p.index(p["message"])
    p.call("block")
    p.load(p["left"])
    p.subtract(p.constant(1))
    p.store(p["left"])
    p.jump_not_zero("entropy")
    p.load_constant((8 * entropy_blocks & 0xFF) << 8)
    p.call("last")
    for n in range(4):
        p.get(Port.CODE + n)
        p.store(p["session"] + n)
    p.load_constant(management.BURST)
    p.store(p["tokens"])
    p.get(Port.TIME)
    p.store(p["seen"])

    # What the registers show for ever.
    identity = shown(p, "management_identity")
    for n, half in enumerate((management.IDENTITY & 0xFFFF, management.IDENTITY >> 16)):
        p.load_constant(half)
        p.store(identity + n)
    p.load_constant(management.VERSION)
    p.store(shown(p, "management_version"))
    move(p, shown(p, "board_mac_low"), MAC + 2, MAC + 1, MAC, swap=True)
    move(p, shown(p, "board_controller"), CONTROLLER + 1, CONTROLLER, swap=True)
    move(p, shown(p, "board_port"), PORT, swap=True)
    move(p, shown(p, "board_name_0"), *range(NAME, NAME + 8))
    if dhcp:
        p.load(shown(p, "board_flags"))
        p.jump_not_zero("dhcp_start")
    move(p, p["address"], ADDRESS, ADDRESS + 1)
    p.call("announce")
    p.jump("main")
    if dhcp:
        p.label("dhcp_start")
        p.call("announce")
        start_dhcp(p)
        p.jump("main")

    p.label("stuck")
    p.load_constant(FAULT)
    p.put(Port.STATUS)
    p.jump("entropy")
    p.label("fault")
    p.load_constant(FAULT)
    p.put(Port.STATUS)
    p.label("halt")
    p.jump("halt")


def _jump_again(p: Assembler, label: str, variable: int) -> None:
    """Go to a label with a variable in A, unless A is 0."""
    done = p.new_label()
    p.jump_zero(done)
    p.load(variable)
    p.jump(label)
    p.label(done)


def main(p: Assembler, *, dhcp: bool) -> None:
    """Wait for frames, and for time to pass."""
    p.label("main")
    p.call("time")
    if dhcp:
        p.call("dhcp")
    p.get(Port.FRAME)
    p.jump_zero("main")
    count(p, "management_frames")
    p.jump("frame")
    # From here on X is at a counter.
    p.label("drop")
    p.skip()
    p.jump_no_carry("counted")
    p.label("stray")
    point_at_counter(p, "management_strays")
    p.label("counted")
    p.call("count")
    p.jump("main")
    p.label("drop_stray")
    p.skip()
    p.jump("stray")


def frame(p: Assembler, *, dhcp: bool) -> None:
    """Look at the headers of a frame."""
    p.label("frame")
    for n in range(3):
        p.take()
        if dhcp:
            p.store(p["t"])
        p.xor(MAC + n)
        if n:
            p.or_(p["not_mine"])
        p.store(p["not_mine"])
        if dhcp:
            p.load(p["t"])
            p.xor(p.constant(0xFFFF))
            if n:
                p.or_(p["not_everybody"])
            p.store(p["not_everybody"])
    if dhcp:
        mine = p.new_label()
        p.jump_zero(mine)
        p.load(p["not_mine"])
        p.jump_not_zero("drop_stray")
        p.label(mine)
    else:
        p.jump_not_zero("drop_stray")
    for n in range(3):
        p.take()
        p.store(p["peer_mac"] + n)
    p.take()
    p.xor(p.constant(as_sent(0x0800)))
    p.jump_not_zero("drop_stray")
    p.load_constant(0)
    p.put(Port.SUM)
    p.take()
    p.and_(p.constant(0x00FF))
    p.xor(p.constant(0x0045))
    p.jump_not_zero("drop_stray")
    p.take()
    p.store(p["ip_length"])
    p.take()
    p.take()
    p.and_(p.constant(as_sent(0xBFFF)))
    p.jump_not_zero("drop_stray")
    p.take()
    p.and_(p.constant(0xFF00))
    p.xor(p.constant(17 << 8))
    p.jump_not_zero("drop_stray")
    p.take()
    p.call("sum")
    p.store(p["ip_sum"])
    # The sum of the addresses counts in both checksums.
    p.load_constant(0)
    p.put(Port.SUM)
    for n in range(2):
        p.take()
        p.store(p["source"] + n)
    for n in range(2):
        p.take()
        p.xor(p["address"] + n)
        if n:
            p.or_(p["not_address"])
        p.store(p["not_address"])
    p.call("sum")
    p.add(p["ip_sum"])
    p.add_carry(p.constant(0))
    p.store(p["ip_sum"])
    p.take()
    p.store(p["peer_port"])
    p.take()
    p.store(p["t"])
    p.take()
    p.store(p["udp_length"])
    p.take(whole=True)
    p.store(p["udp_checksum"])
    p.jump_carry("drop_stray")
    p.load(p["address"])
    p.or_(p["address"] + 1)
    p.jump_zero("not_request")
    p.load(p["t"])
    p.xor(PORT)
    p.or_(p["not_mine"])
    p.or_(p["not_address"])
    p.jump_zero("request")
    p.label("not_request")
    if dhcp:
        p.load(p["t"])
        p.xor(p.constant(as_sent(68)))
        p.jump_zero("dhcp_frame")
    p.jump("drop_stray")


def requests(p: Assembler) -> None:
    """Judge a datagram to the management."""
    message = p["message"]
    p.label("drop_strangers")
    point_at_counter(p, "management_strangers")
    p.jump("drop")
    p.label("drop_malformed")
    point_at_counter(p, "management_malformed")
    p.jump("drop")
    for name in ("malformed", "forged", "ahead", "limited"):
        p.label(name)
        point_at_counter(p, f"management_{name}")
        p.jump("counted")

    p.label("request")
    for n in range(2):
        p.load(p["source"] + n)
        p.xor(CONTROLLER + n)
        p.jump_not_zero("drop_strangers")
    p.load(p["peer_port"])
    p.jump_zero("drop_strangers")
    p.load(p["peer_mac"])
    p.and_(p.constant(1))
    p.jump_not_zero("drop_strangers")
    for name, wanted in (
        ("ip_length", as_sent(IP_BYTES)),
        ("ip_sum", 0xFFFF),
        ("udp_length", as_sent(UDP_BYTES)),
    ):
        p.load(p[name])
        p.xor(p.constant(wanted))
        p.jump_not_zero("drop_malformed")
    p.index(message)
    for n in range(MESSAGE_WORDS):
        p.take(whole=n == MESSAGE_WORDS - 1)
        p.store(X_NEXT)
    p.jump_carry("drop_malformed")
    p.skip()
    p.jump_carry("stray")
    p.call("udp_right")
    p.jump_not_zero("malformed")
    p.load(message)
    p.xor(p.constant(int.from_bytes(management.MAGIC, "little")))
    p.or_(message + 2)
    p.jump_not_zero("malformed")
    p.load(message + 1)
    p.subtract(p.constant(management.VERSION | MessageType.HELLO << 8))
    p.jump_zero("hello")
    p.xor(p.constant(1 << 8))
    p.jump_zero("known")
    p.xor(p.constant(3 << 8))
    p.jump_not_zero("malformed")

    p.label("known")
    p.call("encipher")
    p.call("tag")
    p.load_constant(32 << 8)
    p.call("last")
    for n in range(4):
        p.get(Port.CODE + n)
        p.xor(message + TAG_AT + n)
        p.jump_not_zero("forged")
    for n in range(2):
        p.load(message + BOARD_AT + n)
        p.xor(p["address"] + n)
        p.jump_not_zero("forged")
    p.load_constant(Status.SESSION)
    p.store(p["status"])
    for n in range(4):
        p.load(message + SESSION_AT + n)
        p.xor(p["session"] + n)
        p.jump_not_zero("refuse")

    # How far behind the latest it is.
    for n in range(4):
        p.load(p["latest"] + n)
        if n == 0:
            p.subtract(message + SEQUENCE_AT)
        else:
            p.subtract_carry(message + SEQUENCE_AT + n)
        p.store(p["difference"] + n)
    p.jump_carry("not_new")
    p.load(p["difference"])
    for n in range(1, 4):
        p.and_(p["difference"] + n)
    p.xor(p.constant(0xFFFF))
    p.jump_zero("new")
    p.jump("ahead")

    p.label("not_new")
    p.load_constant(Status.FORGOTTEN)
    p.store(p["status"])
    p.load(p["difference"] + 1)
    p.or_(p["difference"] + 2)
    p.or_(p["difference"] + 3)
    p.jump_not_zero("refuse")
    p.load(p["difference"])
    p.subtract(p.constant(management.HISTORY))
    p.jump_carry("refuse")
    p.load(message + SEQUENCE_AT)
    for n in range(1, 4):
        p.or_(message + SEQUENCE_AT + n)
    p.jump_zero("refuse")
    p.load_constant(Status.TAKEN)
    p.store(p["status"])
    p.call("entry")
    for n in range(4):
        p.load(X_NEXT)
        p.xor(message + TAG_AT + n)
        p.jump_not_zero("refuse")
    for name, n in (("value", 0), ("value", 1), ("status", 0)):
        p.load(X_NEXT)
        p.store(p[name] + n)
    p.call("token")
    p.jump_zero("limited")
    p.call("answer")
    count(p, "management_repeats")
    p.jump("main")

    p.label("refuse")
    p.call("token")
    p.jump_zero("limited")
    p.call("no_value")
    p.call("answer_latest")
    count(p, "management_refused")
    p.jump("main")

    p.label("hello")
    p.index(message + ADDRESS_AT)
    p.load(X_NEXT)
    for _ in range(ADDRESS_AT + 1, TAG_AT):
        p.or_(X_NEXT)
    p.jump_not_zero("malformed")
    p.load(X_NEXT)
    for _ in range(3):
        p.or_(X_NEXT)
    p.jump_zero("malformed")
    p.call("token")
    p.jump_zero("limited")
    move(
        p,
        message + ADDRESS_AT,
        p.constant(management.IDENTITY & 0xFFFF),
        p.constant(management.IDENTITY >> 16),
    )
    p.load_constant(Status.DONE)
    p.store(p["status"])
    p.call("no_value")
    p.call("answer_latest")
    count(p, "management_hellos")
    p.jump("main")

    # A = 0 beyond the rate of answers.
    p.label("token")
    p.load(p["tokens"])
    p.jump_zero("return")
    p.subtract(p.constant(1))
    p.store(p["tokens"])
    p.load_constant(1)
    p.return_()


def access(p: Assembler) -> None:
    """Carry a new request out."""
    message = p["message"]
    p.label("new")
    move(p, p["latest"], *range(message + SEQUENCE_AT, message + SEQUENCE_AT + 4))
    p.call("no_value")
    p.load_constant(Status.REFUSED)
    p.store(p["status"])
    p.load(message + ADDRESS_AT + 1)
    p.jump_not_zero("remember")
    p.load(message + ADDRESS_AT)
    p.subtract(p.constant(management.MANAGEMENT_BASE))
    p.store(p["t"])
    p.jump_carry("own")

    # Of engine and node.
    p.load(message + 1)
    p.xor(p.constant(management.VERSION | MessageType.WRITE << 8))
    p.jump_zero("write")
    p.load(message + ADDRESS_AT)
    p.put(Port.AXI_READ)
    p.get(Port.SEND_LAST)
    p.store(p["u"])
    p.get(Port.AXI_DATA)
    p.store(p["value"])
    p.get(Port.AXI_READ)
    p.store(p["value"] + 1)
    p.load(p["u"])
    p.jump_zero("done")
    p.call("no_value")
    p.jump("remember")
    p.label("write")
    for n in range(2):
        p.load(message + VALUE_AT + n)
        p.put(Port.AXI_DATA)
    p.load(message + ADDRESS_AT)
    p.put(Port.AXI_WRITE)
    p.get(Port.AXI_WRITE)
    p.jump_zero("done")
    p.jump("remember")

    # Own ones.
    p.label("own")
    p.load(message + 1)
    p.xor(p.constant(management.VERSION | MessageType.WRITE << 8))
    p.jump_zero("own_write")
    p.load(p["t"])
    p.and_(p.constant(3))
    p.jump_not_zero("remember")
    p.load(p["t"])
    p.subtract(p.constant(4 * len(management.MANAGEMENT_REGISTERS)))
    p.jump_carry("counter")
    p.load(p["t"])
    p.special(Special.HALVE)
    p.add(p.constant(p["shown"]))
    p.label("found")
    p.special(Special.INDEX)
    for n in range(2):
        p.load(X_NEXT)
        p.store(p["value"] + n)
    p.label("done")
    p.load_constant(Status.DONE)
    p.store(p["status"])
    p.jump("remember")
    p.label("counter")
    base = management.MANAGEMENT_COUNTER_BASE - management.MANAGEMENT_BASE
    p.load(p["t"])
    p.subtract(p.constant(base))
    p.store(p["t"])
    p.jump_no_carry("remember")
    p.subtract(p.constant(4 * len(management.MANAGEMENT_COUNTERS)))
    p.jump_carry("remember")
    p.load(p["t"])
    p.special(Special.HALVE)
    p.add(p.constant(p["counters"]))
    p.jump("found")
    p.label("own_write")
    p.load(p["t"])
    p.xor(
        p.constant(management.management_address_of("board_reset") - management.MANAGEMENT_BASE)
    )
    p.jump_not_zero("remember")
    for n, half in enumerate((management.RESET_WORD & 0xFFFF, management.RESET_WORD >> 16)):
        p.load(message + VALUE_AT + n)
        p.xor(p.constant(half))
        p.jump_not_zero("remember")
    p.load_constant(RESET_PERIODS)
    p.store(p["resets"])
    p.jump("done")

    p.label("remember")
    p.call("entry")
    for n in range(4):
        p.load(message + TAG_AT + n)
        p.store(X_NEXT)
    for name, n in (("value", 0), ("value", 1), ("status", 0)):
        p.load(p[name] + n)
        p.store(X_NEXT)
    p.load_constant(CONFIGURED | ACCEPTED)
    p.put(Port.STATUS)
    p.call("answer")
    count(p, "management_executed")
    p.jump("main")

    p.label("no_value")
    p.load_constant(0)
    p.store(p["value"])
    p.store(p["value"] + 1)
    p.return_()

    # X = the entry of a request in the history.
    p.label("entry")
    p.load(message + SEQUENCE_AT)
    p.and_(p.constant(management.HISTORY - 1))
    for _ in range(HISTORY_WORDS.bit_length() - 1):
        p.store(p["entry"])
        p.add(p["entry"])
    p.or_(p.constant(HISTORY_BASE))
    p.special(Special.INDEX)
    p.return_()


def answer(p: Assembler) -> None:
    """Make a request its answer, and send it."""
    message = p["message"]
    p.label("answer_latest")
    move(p, message + SEQUENCE_AT, *range(p["latest"], p["latest"] + 4))
    p.label("answer")
    p.load(message + 1)
    p.or_(p.constant(management.ANSWER << 8))
    p.store(message + 1)
    move(p, message + 2, p["status"])
    move(p, message + SESSION_AT, *range(p["session"], p["session"] + 4))
    move(p, message + VALUE_AT, p["value"], p["value"] + 1, p["address"], p["address"] + 1)
    p.call("tag")
    # Behind it, the request's tag.
    p.call("block")
    p.load_constant(40 << 8)
    p.call("last")
    for n in range(4):
        p.get(Port.CODE + n)
        p.store(message + TAG_AT + n)
    p.call("encipher")

    fixed = (
        as_sent(0x4500),
        as_sent(IP_BYTES),
        as_sent(0),
        as_sent(0x4000),
        as_sent(64 << 8 | 17),
    )
    p.index(p["peer_mac"])
    for _ in range(3):
        p.load(X_NEXT)
        p.put(Port.SEND)
    p.index(MAC)
    for _ in range(3):
        p.load(X_NEXT)
        p.put(Port.SEND)
    for word in (as_sent(0x0800), *fixed):
        p.load_constant(word)
        p.put(Port.SEND)
    total = sum(fixed)
    p.load_constant((total & 0xFFFF) + (total >> 16))
    for source in (p["address"], p["address"] + 1, CONTROLLER, CONTROLLER + 1):
        p.add(source)
        p.add_carry(p.constant(0))
    p.xor(p.constant(0xFFFF))
    p.put(Port.SEND)
    for source in (
        p["address"],
        p["address"] + 1,
        CONTROLLER,
        CONTROLLER + 1,
        PORT,
        p["peer_port"],
        p.constant(as_sent(UDP_BYTES)),
        p.constant(0),
    ):
        p.load(source)
        p.put(Port.SEND)
    p.index(message)
    for n in range(MESSAGE_WORDS):
        p.load(X_NEXT)
        p.put(Port.SEND_LAST if n == MESSAGE_WORDS - 1 else Port.SEND)
    p.return_()


def subroutines(p: Assembler) -> None:
    """Add what is called from several places."""
    message = p["message"]

    p.label("count")
    p.load(X)
    p.add(p.constant(1))
    p.store(X_NEXT)
    p.jump_no_carry("return")
    p.load(X)
    p.add(p.constant(1))
    p.store(X)
    p.label("return")
    p.return_()

    # A = the sum of the pairs taken, with its carry.
    p.label("sum")
    p.get(Port.SUM)
    p.store(p["t"])
    p.get(Port.SUM_CARRY)
    p.add(p["t"])
    p.add_carry(p.constant(0))
    p.return_()

    # A = 0 if the UDP checksum is zero, or right.
    p.label("udp_right")
    p.load(p["udp_checksum"])
    p.jump_zero("return")
    p.call("sum")
    for operand in (p["udp_length"], p.constant(as_sent(17))):
        p.add(operand)
        p.add_carry(p.constant(0))
    p.xor(p.constant(0xFFFF))
    p.return_()

    # SipHash: a new state under the key; four words at X; the last one, with the length in A.
    p.label("key")
    for at, step in ((KEY + 4, SipHashStep.KEY_HIGH), (KEY, SipHashStep.KEY_LOW)):
        p.index(at)
        p.call("word")
        p.load_constant(step.value)
        p.put(Port.STEP)
    p.return_()
    p.label("block")
    p.call("word")
    p.load_constant(SipHashStep.BLOCK.value)
    p.put(Port.STEP)
    p.return_()
    p.label("word")
    for _ in range(4):
        p.load(X_NEXT)
        p.put(Port.WORD)
    p.return_()
    p.label("last")
    p.store(p["t"])
    p.load_constant(0)
    for _ in range(3):
        p.put(Port.WORD)
    p.load(p["t"])
    p.put(Port.WORD)
    p.load_constant(SipHashStep.LAST.value)
    p.put(Port.STEP)
    p.return_()

    # What the tags of requests and answers begin with; X is at the tag behind it.
    p.label("tag")
    p.call("key")
    p.index(message + 1)
    for _ in range(TAGGED_BLOCKS):
        p.call("block")
    p.return_()

    p.label("encipher")
    p.call("key")
    p.index(message + TAG_AT)
    p.call("block")
    p.load_constant(8 << 8)
    p.call("last")
    for n in range(4):
        p.get(Port.CODE + n)
        p.xor(message + VALUE_AT + n)
        p.store(message + VALUE_AT + n)
    p.return_()

    # Write the addresses into the registers of the engine, and show them.
    p.label("announce")
    at = shown(p, "board_address")
    move(p, at, p["address"] + 1, p["address"], swap=True)
    mac = shown(p, "board_mac_low")
    for name, low, high in (
        ("local_mac_low", mac, mac + 1),
        ("local_mac_high", mac + 2, p.constant(0)),
        ("local_port", ENGINE_PORT, p.constant(0)),
        ("local_address", at, at + 1),
    ):
        p.load(low)
        if name == "local_port":
            p.special(Special.SWAP)
        p.put(Port.AXI_DATA)
        p.load(high)
        p.put(Port.AXI_DATA)
        p.load_constant(registers.address_of(name))
        p.put(Port.AXI_WRITE)
        p.get(Port.AXI_WRITE)
    p.load(p["address"])
    p.or_(p["address"] + 1)
    p.jump_zero("no_address")
    p.load_constant(CONFIGURED)
    p.label("no_address")
    p.put(Port.STATUS)
    p.return_()


def time(p: Assembler, *, clock_hz: float, dhcp: bool) -> None:
    """Count seconds, fill the bucket of answers, and reset when that is due."""
    # What a period adds to a second, as a fraction of 32 bits.
    part = round((1 << 32 + management.PERIOD_BITS) / clock_hz)
    p.label("time")
    p.get(Port.TIME)
    p.subtract(p["seen"])
    p.jump_zero("return")
    p.load(p["seen"])
    p.add(p.constant(1))
    p.store(p["seen"])
    p.load(p["tokens"])
    p.xor(p.constant(management.BURST))
    p.jump_zero("bucket_full")
    p.load(p["tokens"])
    p.add(p.constant(1))
    p.store(p["tokens"])
    p.label("bucket_full")
    p.load(p["resets"])
    p.jump_zero("no_reset")
    p.subtract(p.constant(1))
    p.store(p["resets"])
    p.jump_not_zero("no_reset")
    p.load_constant(CONFIGURED | RESET)
    p.put(Port.STATUS)
    p.label("no_reset")
    p.load(p["fraction"])
    p.add(p.constant(part & 0xFFFF))
    p.store(p["fraction"])
    p.load(p["fraction"] + 1)
    p.add_carry(p.constant(part >> 16))
    p.store(p["fraction"] + 1)
    p.jump_no_carry("time")
    p.index(shown(p, "board_uptime"))
    p.call("count")
    if dhcp:
        p.call("dhcp_second")
    p.jump("time")
