"""Messages of the DHCP client: what is sent, and how answers are read (RFC 2131, RFC 2132).

Tested: `tests/hdl/test_management_dhcp.py`.
"""

from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import (
    CONTROLLER,
    MAC,
    X_NEXT,
    DhcpMessage,
    DhcpState,
    as_sent,
    count,
    move,
    point_at_counter,
)

__all__ = ["add_receiving", "add_sending"]

# A frame of 344 octets: some servers drop messages of less than 300.
_IP_BYTES, _UDP_BYTES, _MESSAGE_BYTES = 330, 310, 302
_SERVER_PORT, _CLIENT_PORT = 67, 68
_FIXED_BYTES = 240
"""Of a message, cookie included; options follow."""

_COOKIE = (0x6382, 0x5363)
_LARGEST = 576
"""Octets of the longest packet that an answer may be, which every client must take anyway."""

_LEASE_LEAST_S = 60

_OPTION_PAD, _OPTION_END = 0, 255
_OPTION_ADDRESS, _OPTION_LEASE, _OPTION_TYPE, _OPTION_SERVER = 50, 51, 53, 54
_OPTION_REQUESTS, _OPTION_LARGEST, _OPTION_T1, _OPTION_T2 = 55, 57, 58, 59


def _put(p: Assembler, *sources: int) -> None:
    for source in sources:
        p.load(source)
        p.put(Port.SEND)


def _put_constants(p: Assembler, *words: int) -> None:
    for word in words:
        p.load_constant(word)
        p.put(Port.SEND)


def _pair(first: int, second: int) -> int:
    """Return the word of two octets."""
    return first | second << 8


def add_sending(p: Assembler) -> None:
    """Add `dhcp_send`: A is the type of the message; the state says the rest."""
    to_mac, to_address = p["to_mac"], p["to_address"]
    p.label("dhcp_send")
    p.store(p["dhcp_type"])
    p.load_constant(0xFFFF)
    for at in (*range(to_mac, to_mac + 3), to_address, to_address + 1):
        p.store(at)
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.RENEWING))
    p.jump_not_zero("dhcp_to_all")
    move(p, to_mac, *range(p["dhcp_server_mac"], p["dhcp_server_mac"] + 3))
    move(p, to_address, p["dhcp_server"], p["dhcp_server"] + 1)
    p.label("dhcp_to_all")
    _put(p, *range(to_mac, to_mac + 3), MAC, MAC + 1, MAC + 2)
    fixed = tuple(map(as_sent, (0x4500, _IP_BYTES, 0, 0, 64 << 8 | 17)))
    _put_constants(p, as_sent(0x0800), *fixed)
    total = sum(fixed)
    p.load_constant((total & 0xFFFF) + (total >> 16))
    # The board's own address is 0 until it has one.
    addresses = (p["address"], p["address"] + 1, to_address, to_address + 1)
    for source in addresses:
        p.add(source)
        p.add_carry(p.constant(0))
    p.xor(p.constant(0xFFFF))
    p.put(Port.SEND)
    _put(p, *addresses)
    _put_constants(
        p, as_sent(_CLIENT_PORT), as_sent(_SERVER_PORT), as_sent(_UDP_BYTES), 0, _pair(1, 1), 6
    )
    _put(p, p["dhcp_xid"], p["dhcp_xid"] + 1)
    p.load(p["dhcp_elapsed"])
    p.special(Special.SWAP)
    p.put(Port.SEND)
    _put_constants(p, 0)
    _put(p, p["address"], p["address"] + 1)
    p.load_constant((16 - 4) // 2)
    p.call("dhcp_zeros")
    _put(p, MAC, MAC + 1, MAC + 2)
    p.load_constant((10 + 64 + 128) // 2)
    p.call("dhcp_zeros")
    _put_constants(p, *map(as_sent, _COOKIE), _pair(_OPTION_TYPE, 1))
    _put(p, p["dhcp_type"])
    # Address and server only to ask for what was offered.
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.REQUESTING))
    p.jump_zero("dhcp_asks")
    p.load_constant(6)
    p.call("dhcp_zeros")
    p.jump("dhcp_asked")
    p.label("dhcp_asks")
    for option, name in ((_OPTION_ADDRESS, "dhcp_offered"), (_OPTION_SERVER, "dhcp_server")):
        _put_constants(p, _pair(option, 4))
        _put(p, p[name], p[name] + 1)
    p.label("dhcp_asked")
    _put_constants(
        p,
        _pair(_OPTION_LARGEST, 2),
        as_sent(_LARGEST),
        _pair(_OPTION_REQUESTS, 2),
        _pair(_OPTION_T1, _OPTION_T2),
        _pair(_OPTION_END, _OPTION_PAD),
    )
    options = 2 + 2 + 6 + 6 + 4 + 4 + 2
    p.load_constant((_MESSAGE_BYTES - _FIXED_BYTES - options) // 2 - 1)
    p.call("dhcp_zeros")
    p.load_constant(0)
    p.put(Port.SEND_LAST)
    count(p, "dhcp_sent")
    p.return_()

    p.label("dhcp_zeros")
    p.store(p["t"])
    p.load_constant(0)
    p.put(Port.SEND)
    p.load(p["t"])
    p.subtract(p.constant(1))
    p.jump_not_zero("dhcp_zeros")
    p.return_()


def add_receiving(p: Assembler) -> None:
    """Add `dhcp_frame`, behind the headers of a frame to port 68."""
    _read_fixed(p)
    _read_options(p)
    _judge(p)
    _octets(p)


def _read_fixed(p: Assembler) -> None:
    """Read what is the same in all messages, and clear what options may bring."""
    p.label("dhcp_ignore")
    point_at_counter(p, "dhcp_ignored")
    p.jump("drop")
    p.label("dhcp_refuse")
    point_at_counter(p, "dhcp_ignored")
    p.jump("counted")

    p.label("dhcp_frame")
    # Settings with an address: nothing is for a client that is not there.
    p.load(p["dhcp_state"])
    p.jump_zero("drop_not_ours")
    p.load(p["peer_port"])
    p.xor(p.constant(as_sent(_SERVER_PORT)))
    p.jump_not_zero("dhcp_ignore")
    p.load(p["ip_sum"])
    p.xor(p.constant(0xFFFF))
    p.jump_not_zero("dhcp_ignore")
    # Octets of the datagram; the IPv4 packet has its header more.
    p.load(p["udp_length"])
    p.special(Special.SWAP)
    p.store(p["in_left"])
    p.load(p["ip_length"])
    p.special(Special.SWAP)
    p.subtract(p["in_left"])
    p.xor(p.constant(20))
    p.jump_not_zero("dhcp_ignore")
    p.load(p["in_left"])
    p.subtract(p.constant(8 + _FIXED_BYTES))
    p.store(p["in_left"])
    p.jump_no_carry("dhcp_ignore")
    p.load(p["in_left"])
    p.subtract(p.constant(_LARGEST - 28 - _FIXED_BYTES + 1))
    p.jump_carry("dhcp_ignore")
    p.load_constant(0)
    for name in ("in_type", "in_odd", "in_short"):
        p.store(p[name])
    for name in ("in_server", "in_lease", "in_t1", "in_t2"):
        p.store(p[name])
        p.store(p[name] + 1)

    def expect(*words: int) -> None:
        for word in words:
            p.take()
            p.xor(word)
            p.jump_not_zero("dhcp_ignore")

    expect(p.constant(_pair(2, 1)))
    p.take()
    p.and_(p.constant(0x00FF))
    p.xor(p.constant(6))
    p.jump_not_zero("dhcp_ignore")
    expect(p["dhcp_xid"], p["dhcp_xid"] + 1)
    for _ in range(4):
        p.take()
    for n in range(2):
        p.take()
        p.store(p["in_address"] + n)
    for _ in range(4):
        p.take()
    expect(MAC, MAC + 1, MAC + 2)
    p.load_constant((10 + 64 + 128) // 2)
    p.label("dhcp_skip")
    p.store(p["t"])
    p.take()
    p.load(p["t"])
    p.subtract(p.constant(1))
    p.jump_not_zero("dhcp_skip")
    expect(*(p.constant(as_sent(word)) for word in _COOKIE))


def _read_options(p: Assembler) -> None:
    """Read the options up to their end; of those that are there twice the last one counts."""
    p.label("dhcp_option")
    p.call("octet")
    p.jump_carry("dhcp_ignore")
    p.jump_zero("dhcp_option")
    p.store(p["u"])
    p.xor(p.constant(_OPTION_END))
    p.jump_zero("dhcp_rest")
    p.call("octet")
    p.jump_carry("dhcp_ignore")
    p.store(p["option_left"])
    p.load(p["u"])
    p.xor(p.constant(_OPTION_TYPE))
    p.jump_zero("dhcp_type_option")
    for option, name in (
        (_OPTION_SERVER, "in_server"),
        (_OPTION_LEASE, "in_lease"),
        (_OPTION_T1, "in_t1"),
        (_OPTION_T2, "in_t2"),
    ):
        other = p.new_label()
        p.load(p["u"])
        p.xor(p.constant(option))
        p.jump_not_zero(other)
        p.index(p[name])
        p.jump("dhcp_four")
        p.label(other)
    p.label("dhcp_other_option")
    p.load(p["option_left"])
    p.jump_zero("dhcp_option")
    p.subtract(p.constant(1))
    p.store(p["option_left"])
    p.call("octet")
    p.jump_carry("dhcp_ignore")
    p.jump("dhcp_other_option")

    p.label("dhcp_type_option")
    p.load(p["option_left"])
    p.xor(p.constant(1))
    p.jump_not_zero("dhcp_ignore")
    p.call("octet")
    p.jump_carry("dhcp_ignore")
    p.store(p["in_type"])
    p.jump("dhcp_option")

    # Four octets to where X is.
    p.label("dhcp_four")
    p.load(p["option_left"])
    p.xor(p.constant(4))
    p.jump_not_zero("dhcp_ignore")
    for _ in range(2):
        p.call("octet")
        p.jump_carry("dhcp_ignore")
        p.store(p["u"])
        p.call("octet")
        p.jump_carry("dhcp_ignore")
        p.special(Special.SWAP)
        p.or_(p["u"])
        p.store(X_NEXT)
    p.jump("dhcp_option")


def _judge(p: Assembler) -> None:
    """Verify the frame as a whole, and do what the message says."""
    # The rest counts in the checksum.
    p.label("dhcp_rest")
    p.call("octet")
    p.jump_no_carry("dhcp_rest")
    p.skip()
    p.jump_carry("not_ours")
    p.load(p["in_short"])
    p.jump_not_zero("dhcp_refuse")
    p.load(p["udp_checksum"])
    p.jump_zero("dhcp_whole")
    # An octet after the datagram that came with its last one does not belong to the sum.
    p.load(p["in_odd"])
    p.jump_zero("dhcp_even")
    p.call("sum")
    p.store(p["u"])
    p.load(p["in_pair"])
    p.and_(p.constant(0xFF00))
    p.xor(p.constant(0xFFFF))
    p.add(p["u"])
    p.add_carry(p.constant(0))
    p.put(Port.SUM)
    p.label("dhcp_even")
    p.call("udp_right")
    p.jump_not_zero("dhcp_refuse")

    p.label("dhcp_whole")
    p.load(p["in_server"])
    p.or_(p["in_server"] + 1)
    p.jump_zero("dhcp_refuse")
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.SELECTING))
    p.jump_zero("dhcp_selecting")
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.REBINDING))
    p.jump_zero("dhcp_any_server")
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.REQUESTING))
    p.jump_zero("dhcp_one_server")
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.RENEWING))
    p.jump_not_zero("dhcp_refuse")
    p.label("dhcp_one_server")
    for n in range(2):
        p.load(p["in_server"] + n)
        p.xor(p["dhcp_server"] + n)
        p.jump_not_zero("dhcp_refuse")
    p.label("dhcp_any_server")
    p.load(p["in_type"])
    p.xor(p.constant(DhcpMessage.NAK))
    p.jump_zero("dhcp_denied")
    p.load(p["in_type"])
    p.xor(p.constant(DhcpMessage.ACK))
    p.jump_not_zero("dhcp_refuse")
    p.call("dhcp_acceptable")
    p.jump_not_zero("dhcp_refuse")
    # Another address than was asked for is none.
    for n in range(2):
        p.load(p["in_address"] + n)
        p.xor(p["dhcp_offered"] + n)
        p.jump_not_zero("dhcp_denied")
    p.call("dhcp_bind")
    p.label("dhcp_taken")
    count(p, "dhcp_taken")
    p.jump("main")
    p.label("dhcp_denied")
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.REQUESTING))
    p.jump_zero("dhcp_not_granted")
    p.call("dhcp_lost")
    p.jump("dhcp_taken")
    p.label("dhcp_not_granted")
    p.call("dhcp_init")
    p.jump("dhcp_taken")

    p.label("dhcp_selecting")
    p.load(p["in_type"])
    p.xor(p.constant(DhcpMessage.OFFER))
    p.jump_not_zero("dhcp_refuse")
    p.call("dhcp_acceptable")
    p.jump_not_zero("dhcp_refuse")
    for to, name in (("dhcp_offered", "in_address"), ("dhcp_server", "in_server")):
        move(p, p[to], p[name], p[name] + 1)
    p.load_constant(DhcpState.REQUESTING)
    p.store(p["dhcp_state"])
    p.load_constant(0)
    p.store(p["dhcp_tries"])
    p.call("dhcp_first_request")
    p.jump("dhcp_taken")

    # A = 0 if the address is one that a host can have, and the lease is long enough. It must not be
    # the controller's: a board that has it answers to ARP in its place.
    p.label("dhcp_acceptable")
    p.load(p["in_address"])
    p.xor(CONTROLLER)
    p.store(p["t"])
    p.load(p["in_address"] + 1)
    p.xor(CONTROLLER + 1)
    p.or_(p["t"])
    p.jump_zero("dhcp_unacceptable")
    p.load(p["in_address"])
    p.and_(p.constant(0x00FF))
    p.jump_zero("dhcp_unacceptable")
    p.subtract(p.constant(224))
    p.jump_carry("dhcp_unacceptable")
    # Seconds, the upper half first; A is 0 if there are any in it.
    p.load(p["in_lease"])
    p.jump_not_zero("dhcp_long_enough")
    p.load(p["in_lease"] + 1)
    p.special(Special.SWAP)
    p.subtract(p.constant(_LEASE_LEAST_S))
    p.jump_carry("dhcp_long_enough")
    p.label("dhcp_unacceptable")
    p.load_constant(1)
    p.return_()
    p.label("dhcp_long_enough")
    p.load_constant(0)
    p.return_()


def _octets(p: Assembler) -> None:
    """Add `octet`: A is the next octet of the datagram; C is set if there is none."""
    p.label("octet")
    p.load(p["in_left"])
    p.subtract(p.constant(1))
    # C: not below 0.
    p.jump_carry("octet_there")
    p.load_constant(0xFFFF)
    p.add(p.constant(1))
    p.return_()
    p.label("octet_there")
    p.store(p["in_left"])
    p.load(p["in_odd"])
    p.jump_not_zero("octet_second")
    # The second one of the pair must be there too, unless this is the last.
    p.load(p["in_left"])
    p.jump_zero("octet_last")
    p.take(whole=True)
    p.jump("octet_taken")
    p.label("octet_last")
    p.take()
    p.label("octet_taken")
    p.store(p["in_pair"])
    p.jump_no_carry("octet_first")
    # The frame ends before the datagram.
    p.load_constant(1)
    p.store(p["in_short"])
    p.label("octet_first")
    p.load_constant(1)
    p.store(p["in_odd"])
    p.load(p["in_pair"])
    p.jump("octet_low")
    p.label("octet_second")
    p.load_constant(0)
    p.store(p["in_odd"])
    p.load(p["in_pair"])
    p.special(Special.SWAP)
    p.label("octet_low")
    p.and_(p.constant(0x00FF))
    p.store(p["in_octet"])
    p.load_constant(0)
    p.add(p.constant(0))
    p.load(p["in_octet"])
    p.return_()
