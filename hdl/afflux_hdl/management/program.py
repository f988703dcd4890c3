"""The program of the management: start, requests, answers (`docs/management.md`).

Words are two octets as on the wire, the first in the low bits, as everything here is little-endian
and the Internet's numbers are only compared and copied. `swapped` turns one round.

Tested: `tests/hdl/test_management_program.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from afflux_hdl.contract import management
from afflux_hdl.contract.management import Settings
from afflux_hdl.management.dhcp import add_dhcp, start_dhcp
from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import (
    ADDRESS,
    CHECK,
    CONFIGURED,
    CONTROLLER,
    FAULT,
    FLAGS,
    HISTORY_BASE,
    MAC,
    NAME,
    PORT,
    RESET,
    X_NEXT,
    X,
    as_sent,
    count,
    move,
    point_at_counter,
    shown,
    variables,
)
from afflux_hdl.management.requests import access, answer, requests
from afflux_hdl.management.subroutines import subroutines

__all__ = ["Program", "build_program", "data_of"]


@dataclass(frozen=True)
class Program:
    """The program that the sequencer carries out.

    Attributes:
        instructions: The program.
        data: Initial data: the settings, and from word 32 on what no settings change.
    """

    instructions: Sequence[int]
    data: Sequence[int]


def data_of(settings: Settings) -> list[int]:
    """Return the words that the data begin with."""
    octets = settings.to_bytes()
    return [int.from_bytes(octets[at : at + 2], "little") for at in range(0, len(octets), 2)]


def build_program(
    settings: Settings, *, clock_hz: float, entropy_blocks: int, dhcp: bool
) -> Program:
    """Return the program and its data.

    Args:
        settings: The initial data; the program does not depend on them.
        clock_hz: Of the clock, for seconds.
        entropy_blocks: Blocks of 64 samples that make a session.
        dhcp: With the DHCP client.
    """
    p = Assembler(data_of(settings))
    variables(p)
    start(p, entropy_blocks=entropy_blocks, dhcp=dhcp)
    main(p)
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

    # The constant values of registers.
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


def main(p: Assembler) -> None:
    """Wait for frames, and for time to pass."""
    p.label("main")
    p.call("time")
    p.get(Port.FRAME)
    p.jump_zero("main")
    count(p, "management_frames")
    p.jump("frame")
    # From here on X is at a counter.
    p.label("drop")
    p.skip()
    p.jump_no_carry("counted")
    p.label("not_ours")
    point_at_counter(p, "management_not_ours")
    p.label("counted")
    p.call("count")
    p.jump("main")
    p.label("drop_not_ours")
    p.skip()
    p.jump("not_ours")


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
        p.jump_not_zero("drop_not_ours")
        p.label(mine)
    else:
        p.jump_not_zero("drop_not_ours")
    for n in range(3):
        p.take()
        p.store(p["peer_mac"] + n)
    p.take()
    p.xor(p.constant(as_sent(0x0800)))
    p.jump_not_zero("drop_not_ours")
    p.load_constant(0)
    p.put(Port.SUM)
    p.take()
    p.and_(p.constant(0x00FF))
    p.xor(p.constant(0x0045))
    p.jump_not_zero("drop_not_ours")
    p.take()
    p.store(p["ip_length"])
    p.take()
    p.take()
    p.and_(p.constant(as_sent(0xBFFF)))
    p.jump_not_zero("drop_not_ours")
    p.take()
    p.and_(p.constant(0xFF00))
    p.xor(p.constant(17 << 8))
    p.jump_not_zero("drop_not_ours")
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
    p.jump_carry("drop_not_ours")
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
    p.jump("drop_not_ours")


def time(p: Assembler, *, clock_hz: float, dhcp: bool) -> None:
    """Count seconds, fill the bucket of answers, and reset when that is due."""
    # The fraction of a second, of 32 bits, that a period adds.
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
