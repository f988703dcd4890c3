"""Subroutines that the management's program calls from several places.

Tested: `tests/hdl/test_management_program.py`.
"""

from afflux_hdl.contract import registers
from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import (
    CONFIGURED,
    ENGINE_PORT,
    KEY,
    TAG_AT,
    TAGGED_BLOCKS,
    VALUE_AT,
    X_NEXT,
    X,
    as_sent,
    move,
    shown,
)
from afflux_hdl.management.siphash import SipHashStep

__all__ = ["subroutines"]

_KEY_HIGH, _KEY_LOW, _BLOCK, _LAST = (SipHashStep(n).value for n in range(4))


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
    for at, step in ((KEY + 4, _KEY_HIGH), (KEY, _KEY_LOW)):
        p.index(at)
        p.call("word")
        p.load_constant(step)
        p.put(Port.STEP)
    p.return_()
    p.label("block")
    p.call("word")
    p.load_constant(_BLOCK)
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
    p.load_constant(_LAST)
    p.put(Port.STEP)
    p.return_()

    # The beginning of the tags of requests and answers; X is at the tag after it.
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
