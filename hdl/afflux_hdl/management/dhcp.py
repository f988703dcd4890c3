"""The DHCP client of the management's program (RFC 2131; `docs/management.md`, section 6).

Everything happens when a second is over, or when a frame to port 68 comes. Numbers of seconds have
two words, the lower one first; addresses are as on the wire.

Tested: `tests/hdl/test_management_dhcp.py`.
"""

from afflux_hdl.management.dhcp_frames import add_receiving, add_sending
from afflux_hdl.management.instructions import Assembler, Port, Special
from afflux_hdl.management.memory_map import DhcpMessage, DhcpState, count, move, shown

__all__ = ["add_dhcp", "start_dhcp"]

LEAST_S, MOST_S = 4, 64
"""Seconds until a message is sent again: doubled from the one to the other."""

RENEW_LEAST_S = 60
"""Seconds between requests to renew a lease, at least."""

REQUESTS = 4
"""How often the chosen server is asked for the address that it has offered."""


def start_dhcp(p: Assembler) -> None:
    """Begin to look for an address, in a second or two."""
    p.call("dhcp_init")


def add_dhcp(p: Assembler) -> None:
    """Add the client: what comes of seconds, and what comes of frames."""
    _init(p)
    _bind(p)
    _second(p)
    _timer(p)
    _arithmetic(p)
    add_sending(p)
    add_receiving(p)


def _set_state(p: Assembler, state: DhcpState) -> None:
    p.load_constant(state)
    p.store(p["dhcp_state"])


def _init(p: Assembler) -> None:
    """Be without an address, and look for one soon."""
    p.label("dhcp_lost")
    count(p, "dhcp_lost")
    p.label("dhcp_init")
    _set_state(p, DhcpState.INIT)
    p.load_constant(0)
    lease, server = shown(p, "board_lease"), shown(p, "board_server")
    for at in (p["dhcp_elapsed"], p["dhcp_tries"], lease, lease + 1, server, server + 1):
        p.store(at)
    p.call("random")
    p.and_(p.constant(1))
    p.add(p.constant(1))
    p.store(p["dhcp_timer"])
    p.load(p["address"])
    p.or_(p["address"] + 1)
    p.jump_zero("return")
    p.load_constant(0)
    p.store(p["address"])
    p.store(p["address"] + 1)
    p.call("announce")
    p.return_()


def _bind(p: Assembler) -> None:
    """Have the address that was asked for: the server has granted it."""
    lease, t1, t2 = shown(p, "board_lease"), p["dhcp_t1"], p["dhcp_t2"]
    p.label("dhcp_bind")
    move(p, lease, p["in_lease"] + 1, p["in_lease"], swap=True)
    server = shown(p, "board_server")
    move(p, p["dhcp_server"], p["in_server"], p["in_server"] + 1)
    move(p, server, p["dhcp_server"] + 1, p["dhcp_server"], swap=True)
    # The relay that has brought its answer brings ours to it.
    move(p, p["dhcp_server_mac"], *range(p["peer_mac"], p["peer_mac"] + 3))
    # T1 and T2 if they are in order.
    move(p, t1, p["in_t1"] + 1, p["in_t1"], swap=True)
    move(p, t2, p["in_t2"] + 1, p["in_t2"], swap=True)
    p.load(t1)
    p.or_(t1 + 1)
    p.jump_zero("dhcp_usual_times")
    for early, late in ((t1, t2), (t2, lease)):
        p.load(early)
        p.subtract(late)
        p.load(early + 1)
        p.subtract_carry(late + 1)
        # C: not below.
        p.jump_carry("dhcp_usual_times")
    p.jump("dhcp_times")
    # Else a half and seven eighths of the lease.
    p.label("dhcp_usual_times")
    move(p, p["long"], lease, lease + 1)
    p.call("halve")
    move(p, t1, p["long"], p["long"] + 1)
    p.call("halve")
    p.call("halve")
    p.load(lease)
    p.subtract(p["long"])
    p.store(t2)
    p.load(lease + 1)
    p.subtract_carry(p["long"] + 1)
    p.store(t2 + 1)
    p.label("dhcp_times")
    p.load_constant(0)
    p.store(p["dhcp_timer"])
    p.store(p["dhcp_elapsed"])
    p.load(p["dhcp_state"])
    p.xor(p.constant(DhcpState.REQUESTING))
    p.store(p["t"])
    _set_state(p, DhcpState.BOUND)
    p.load(p["t"])
    p.jump_not_zero("return")
    move(p, p["address"], p["dhcp_offered"], p["dhcp_offered"] + 1)
    p.call("announce")
    p.return_()


def _second(p: Assembler) -> None:
    """Let the lease grow old."""
    lease = shown(p, "board_lease")
    p.label("dhcp_second")
    p.load(p["dhcp_state"])
    p.jump_zero("return")
    p.subtract(p.constant(DhcpState.BOUND))
    p.jump_carry("dhcp_bound_second")
    p.load(p["dhcp_elapsed"])
    p.add(p.constant(1))
    p.jump_carry("dhcp_timer")
    p.store(p["dhcp_elapsed"])
    p.jump("dhcp_timer")

    p.label("dhcp_bound_second")
    p.load(lease)
    p.and_(lease + 1)
    p.xor(p.constant(0xFFFF))
    p.jump_zero("return")
    for at in (p["dhcp_t1"], p["dhcp_t2"], lease):
        _one_less(p, at)
    p.load(lease)
    p.or_(lease + 1)
    p.jump_zero("dhcp_lost")
    # The later state first: both may be due.
    for at, before, state in (
        (p["dhcp_t2"], DhcpState.RENEWING, DhcpState.REBINDING),
        (p["dhcp_t1"], DhcpState.BOUND, DhcpState.RENEWING),
    ):
        other = p.new_label()
        p.load(p["dhcp_state"])
        p.xor(p.constant(before))
        p.or_(at)
        p.or_(at + 1)
        p.jump_not_zero(other)
        _set_state(p, state)
        # RFC 2131, section 4.4.5: each has an exchange of its own.
        p.call("dhcp_new_exchange")
        p.load_constant(1)
        p.store(p["dhcp_timer"])
        p.label(other)


def _one_less(p: Assembler, at: int) -> None:
    """Take one from a number of seconds that is not 0."""
    done = p.new_label()
    p.load(at)
    p.or_(at + 1)
    p.jump_zero(done)
    p.load(at)
    p.subtract(p.constant(1))
    p.store(at)
    p.jump_carry(done)
    p.load(at + 1)
    p.subtract(p.constant(1))
    p.store(at + 1)
    p.label(done)


def _timer(p: Assembler) -> None:
    """Send what is due."""
    p.label("dhcp_timer")
    p.load(p["dhcp_timer"])
    p.jump_zero("return")
    p.subtract(p.constant(1))
    p.store(p["dhcp_timer"])
    p.jump_not_zero("return")
    p.load(p["dhcp_state"])
    p.subtract(p.constant(DhcpState.INIT))
    p.jump_zero("dhcp_discover")
    p.subtract(p.constant(1))
    p.jump_zero("dhcp_discover_again")
    p.subtract(p.constant(1))
    p.jump_zero("dhcp_request_again")
    # RENEWING until T2, REBINDING until the end of the lease.
    p.subtract(p.constant(DhcpState.REBINDING - DhcpState.REQUESTING))
    p.jump_zero("dhcp_rebind")
    move(p, p["long"], p["dhcp_t2"], p["dhcp_t2"] + 1)
    p.jump("dhcp_renew")
    p.label("dhcp_rebind")
    lease = shown(p, "board_lease")
    move(p, p["long"], lease, lease + 1)
    p.label("dhcp_renew")
    p.call("halve")
    # At most what fits, at least a minute.
    p.load_constant(0xFFFF)
    p.store(p["dhcp_timer"])
    p.load(p["long"] + 1)
    p.jump_not_zero("dhcp_request")
    p.load(p["long"])
    p.store(p["dhcp_timer"])
    p.subtract(p.constant(RENEW_LEAST_S))
    p.jump_carry("dhcp_request")
    p.load_constant(RENEW_LEAST_S)
    p.store(p["dhcp_timer"])
    p.jump("dhcp_request")

    p.label("dhcp_discover")
    p.call("dhcp_new_exchange")
    _set_state(p, DhcpState.SELECTING)
    p.label("dhcp_discover_again")
    p.call("dhcp_later")
    p.load_constant(DhcpMessage.DISCOVER)
    p.jump("dhcp_send")
    p.label("dhcp_request_again")
    p.load(p["dhcp_tries"])
    p.xor(p.constant(REQUESTS))
    p.jump_zero("dhcp_init")
    p.label("dhcp_first_request")
    p.call("dhcp_later")
    p.label("dhcp_request")
    p.load_constant(DhcpMessage.REQUEST)
    p.jump("dhcp_send")

    p.label("dhcp_new_exchange")
    p.load_constant(0)
    p.store(p["dhcp_tries"])
    p.call("random")
    for n in range(2):
        p.get(Port.CODE + n)
        p.store(p["dhcp_xid"] + n)
    p.return_()

    # The timer: 4, 8, 16, 32, 64, 64, … s, and one more or less by chance.
    p.label("dhcp_later")
    p.load(p["dhcp_tries"])
    p.add(p.constant(1))
    p.store(p["dhcp_tries"])
    p.store(p["long"])
    p.load_constant(LEAST_S // 2)
    p.label("dhcp_double")
    p.store(p["dhcp_timer"])
    p.xor(p.constant(MOST_S))
    p.jump_zero("dhcp_chance")
    p.load(p["long"])
    p.jump_zero("dhcp_chance")
    p.subtract(p.constant(1))
    p.store(p["long"])
    p.load(p["dhcp_timer"])
    p.add(p["dhcp_timer"])
    p.jump("dhcp_double")
    p.label("dhcp_chance")
    p.call("random")
    p.and_(p.constant(0x0101))
    p.store(p["t"])
    p.special(Special.SWAP)
    p.add(p["t"])
    p.and_(p.constant(3))
    p.add(p["dhcp_timer"])
    p.subtract(p.constant(1))
    p.store(p["dhcp_timer"])
    p.return_()


def _arithmetic(p: Assembler) -> None:
    """Add chance, and halves."""
    # A = 16 random bits, and more in the code.
    p.label("random")
    p.load(p["dhcp_drawn"])
    p.add(p.constant(1))
    p.store(p["dhcp_drawn"])
    p.call("key")
    p.index(p["session"])
    p.call("block")
    p.index(p["dhcp_drawn"])
    p.call("block")
    # No other message has 16 octets.
    p.load_constant(16 << 8)
    p.call("last")
    p.get(Port.CODE + 2)
    p.return_()

    p.label("halve")
    p.load(p["long"] + 1)
    p.and_(p.constant(1))
    p.store(p["t"])
    for n in (1, 0):
        p.load(p["long"] + n)
        p.special(Special.HALVE)
        p.store(p["long"] + n)
    p.load(p["t"])
    p.jump_zero("return")
    p.load(p["long"])
    p.or_(p.constant(0x8000))
    p.store(p["long"])
    p.return_()
