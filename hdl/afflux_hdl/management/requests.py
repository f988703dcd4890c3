"""Requests and answers, in the management's program (`docs/management.md`, sections 2 to 4).

Tested: `tests/hdl/test_management_program.py`, `tests/hdl/test_management_requests.py`.
"""

from afflux_hdl.contract import management
from afflux_hdl.contract.management import MessageType, Status
from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import (
    ACCEPTED,
    ADDRESS_AT,
    BOARD_AT,
    CONFIGURED,
    CONTROLLER,
    HISTORY_BASE,
    HISTORY_WORDS,
    IP_BYTES,
    MAC,
    MESSAGE_WORDS,
    PORT,
    RESET_PERIODS,
    SEQUENCE_AT,
    SESSION_AT,
    TAG_AT,
    UDP_BYTES,
    VALUE_AT,
    X_NEXT,
    as_sent,
    count,
    move,
    point_at_counter,
)

__all__ = ["access", "answer", "requests"]


def requests(p: Assembler) -> None:
    """Judge a datagram to the management."""
    message = p["message"]
    p.label("drop_bad_source")
    point_at_counter(p, "management_bad_source")
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
        p.jump_not_zero("drop_bad_source")
    p.load(p["peer_port"])
    p.jump_zero("drop_bad_source")
    p.load(p["peer_mac"])
    p.and_(p.constant(1))
    p.jump_not_zero("drop_bad_source")
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
    p.jump_carry("not_ours")
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
    # Wherever it differs, it takes as long to see that.
    for n in range(4):
        p.get(Port.CODE + n)
        p.xor(message + TAG_AT + n)
        if n:
            p.or_(p["u"])
        p.store(p["u"])
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
    p.xor(p.constant(management.management_address_of("board_reset") - management.MANAGEMENT_BASE))
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
