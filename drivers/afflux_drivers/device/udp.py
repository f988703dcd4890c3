"""The registers of a board without a host, over UDP (`docs/management.md`).

::

    UdpRegisters ─► Request ─► Transport ─► the board's management
                 ◄─ Answer  ◄─

Tested: `tests/drivers/test_device_udp.py`.
"""

import contextlib
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from afflux_drivers.addresses import resolve
from afflux_drivers.device.errors import DeviceFailed, DeviceGone
from afflux_drivers.device.management_message import Answer, Request
from afflux_hdl.contract import management, registers
from afflux_hdl.contract.management import MessageType, Status
from afflux_hdl.contract.registers import WriteRefused
from afflux_hdl.contract.siphash import KEY_BYTES

__all__ = [
    "DeviceRestarted",
    "OutcomeUnknown",
    "SocketTransport",
    "Transport",
    "UdpRegisters",
    "WrongKey",
]

_FIRST_WAIT_S = 0.005
"""Until a request is sent again; each further wait is twice as long. A board takes 33 µs. While a
client waits, others may get in less than `management.HISTORY` requests, or it never learns whether
its own was carried out."""

_FIRST_WAIT_LONGEST_S = 0.1
"""The same where answers take longer: twice what they took of late, but no more than this. A board
in simulation takes 5 ms or more, and each repeat would take it as long again, for nothing."""

_PAUSE_S = 0.02
"""Between looks at what is not there yet."""

_LONGEST_WAIT_S = 0.5
_WRAPS = 1 << 32
_ROUNDS_MAX = 1000
"""Requests that others may get in before one, until that counts as a failure."""


class WrongKey(DeviceFailed):
    """A board answers, but not under this key."""


class DeviceRestarted(DeviceGone):
    """A board has been reset since its registers were opened: what was set there is gone."""


class OutcomeUnknown(DeviceFailed):
    """A write may or may not have been carried out."""


class Transport(Protocol):
    """Carries datagrams to one board and back."""

    def send(self, payload: bytes) -> None:
        """Send a datagram, or lose it."""

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next datagram from the board, or None if none comes in time."""

    def close(self) -> None:
        """Free what is held."""


class SocketTransport:
    """A UDP socket. The kernel drops what comes from elsewhere.

    Args:
        address: IPv4 address of the board.
        port: UDP port of its management.

    Raises:
        OSError: If there is no route.
    """

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect((address, port))
        except BaseException:
            self._socket.close()
            raise

    def send(self, payload: bytes) -> None:
        """Send a datagram, or lose it."""
        # An error of an earlier datagram, "port unreachable", or a full queue: it is sent again.
        with contextlib.suppress(OSError):
            self._socket.send(payload)

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next datagram from the board, or None if none comes in time."""
        give_up = time.monotonic() + timeout_s
        while (left_s := give_up - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                return self._socket.recv(2048)
            except TimeoutError:
                return None
            except OSError:
                # The board may be about to start; without a pause this would be a busy loop.
                time.sleep(min(left_s, _PAUSE_S))
        return None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class UdpRegisters:
    """The registers of engine, node and management of one board. `Registers`, thread-safe.

    A request is sent again until its answer comes, and is carried out once, however often it
    arrives. Several clients of one controller may use a board at a time: each access is one whole,
    and a client that finds its sequence number taken takes the next. An object belongs to one
    session of the board: after a reset, which takes jobs and addresses away, every access raises
    `DeviceRestarted`; open the board anew then.

    Args:
        host: IPv4 address of the board, or a name for it.
        port: UDP port of its management.
        key: The 16 bytes that board and controller share.
        timeout_s: For one access, repeats included.
        transport: How datagrams get there; None opens a socket. Closed by `close`.

    Raises:
        ValueError: If key, port or time cannot be.
        DeviceFailed: If the name stands for no IPv4 address, or there is no route.
        DeviceGone: If nobody answers.
        WrongKey: If somebody answers without knowing the key.
    """

    def __init__(
        self,
        host: str,
        port: int = management.PORT,
        *,
        key: bytes,
        timeout_s: float = 3.0,
        transport: Transport | None = None,
    ) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a board has {KEY_BYTES} bytes, not {len(key)}")
        if not 1 <= port <= 0xFFFF:
            raise ValueError(f"port must be 1 to 65535, not {port}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be more than 0, not {timeout_s:g}")
        self.url = f"udp://{host}" + ("" if port == management.PORT else f":{port}")
        self._key, self._timeout_s = key, timeout_s
        self._lock = threading.Lock()
        address = self._resolve(host, port)
        self._board = ipaddress.IPv4Address(address).packed
        if transport is None:
            try:
                transport = SocketTransport(address, port)
            except OSError as error:
                raise DeviceFailed(f"{self.url}: cannot be reached: {error}") from None
        self._transport = transport
        self._session = self._latest = 0
        self._in_step = False
        self._restarted = False
        # From a request to its answer, of late. One that was repeated counts from the first time:
        # it may seem too long after a loss, never too short.
        self._answered_s = 0.0
        try:
            self._session, self._latest = self._hello("open")
            self._in_step = True
        except BaseException:
            self.close()
            raise

    def read(self, address: int) -> int:
        """Read a 32-bit register.

        A register that does not exist reads as 0, as it does on the bus.

        Raises:
            DeviceGone: If the board does not answer.
            DeviceRestarted: If it has been reset since this object was made.
        """
        answer = self._access(MessageType.READ, address, 0)
        return answer.value

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            ValueError: If the value has more than 32 bits.
            WriteRefused: If there is no such register, or it cannot be written now.
            DeviceGone: If the board does not answer: the write may or may not have been carried
                out, and may still be until the board's next access.
            DeviceRestarted: If it has been reset since this object was made.
            OutcomeUnknown: If the answer was lost, and others have used the board so much meanwhile
                that it does not know any more.
        """
        if not 0 <= value < _WRAPS:
            raise ValueError(f"{_name(address)} has 32 bits, and cannot be {value:#x}")
        answer = self._access(MessageType.WRITE, address, value)
        if answer.status == Status.REFUSED:
            raise WriteRefused(
                f"{self.url}: {_name(address)} cannot be written, or not {value:#x} now"
            )

    def reset(self, within_s: float = 10.0) -> None:
        """Reset the board, and wait until it answers again. This object goes on with it then.

        Raises:
            DeviceGone: If it does not answer in time.
        """
        before = self._session
        with contextlib.suppress(DeviceRestarted):
            # The answer may be lost, and the board reset when the write comes again.
            self.write(management.management_address_of("board_reset"), management.RESET_WORD)
        give_up = time.monotonic() + within_s
        with self._lock:
            for _ in range(_ROUNDS_MAX):
                with contextlib.suppress(DeviceGone):
                    session, latest = self._hello("reset")
                    if session != before:
                        self._session, self._latest = session, latest
                        self._in_step, self._restarted = True, False
                        return
                if time.monotonic() > give_up:
                    break
                time.sleep(_PAUSE_S)
        raise DeviceGone(f"{self.url}: reset: the board was not back within {within_s:g} s")

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()

    def __enter__(self) -> "UdpRegisters":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resolve(self, host: str, port: int) -> str:
        try:
            places = resolve(host, port)
        except OSError as error:
            raise DeviceFailed(f"{self.url}: {host} is not known: {error}") from None
        for place in places:
            if place.family == socket.AF_INET:
                return place.host
        raise DeviceFailed(f"{self.url}: {host} has no IPv4 address, and boards have no other")

    def _access(self, kind: MessageType, address: int, value: int) -> Answer:
        """Have an access carried out; return its answer, whose status is DONE or REFUSED."""
        if not 0 <= address < _WRAPS or address % 4:
            raise ValueError(f"{address:#x} is not the address of a register")
        what = f"{kind.name.lower()} of {_name(address)}"
        with self._lock:
            give_up = time.monotonic() + self._timeout_s
            for _ in range(_ROUNDS_MAX):
                self._get_in_step(what)
                request = Request.access(
                    self._key,
                    kind,
                    session=self._session,
                    sequence=self._latest + 1,
                    address=address,
                    value=value,
                    board=self._board,
                )
                # The outcome of this number is open until an answer says it.
                self._in_step = False
                answer = self._exchange(request, what)
                if answer.status in (Status.DONE, Status.REFUSED):
                    self._latest = max(self._latest, answer.sequence)
                    self._in_step = True
                    return answer
                if answer.status == Status.SESSION:
                    self._restarted = True
                    continue
                self._latest = answer.sequence
                self._in_step = True
                if answer.status == Status.FORGOTTEN and kind == MessageType.WRITE:
                    raise OutcomeUnknown(
                        f"{self.url}: {what}: the answer was lost, and the board has carried out "
                        f"more than {management.HISTORY} requests of others since: whether this "
                        "one was among them is unknown. Read the register"
                    )
                if time.monotonic() > give_up:
                    break
        raise DeviceFailed(
            f"{self.url}: {what}: others use this board so much that no turn came within "
            f"{self._timeout_s:g} s"
        )

    def _get_in_step(self, what: str) -> None:
        """Know the session's latest number, and that the session is still the same."""
        if not self._in_step and not self._restarted:
            session, latest = self._hello(what)
            self._restarted = session != self._session
            # The next number is ours: whatever of an earlier request is still on its way is stale.
            self._latest, self._in_step = latest, True
        if self._restarted:
            raise DeviceRestarted(
                f"{self.url}: {what}: the board has been reset since it was opened: its addresses "
                "are those of its settings, and its jobs are gone. Nothing was carried out; open "
                "it anew"
            )

    def _hello(self, what: str) -> tuple[int, int]:
        """Return the board's session, and the latest sequence number in it."""
        answer = self._exchange(Request.hello(secrets.randbits(64)), what)
        if answer.address != management.IDENTITY:
            raise DeviceFailed(
                f"{self.url}: {what}: there is something else than a board of Afflux: it says "
                f"{answer.address:#010x}, not {management.IDENTITY:#010x}"
            )
        return answer.session, answer.sequence

    def _exchange(self, request: Request, what: str) -> Answer:
        """Send a request until its answer comes."""
        sent = wrong = 0
        began = time.monotonic()
        give_up = began + self._timeout_s
        for wait_s in _waits(self._timeout_s, 2 * self._answered_s):
            self._transport.send(request.payload)
            sent += 1
            until = min(give_up, time.monotonic() + wait_s)
            while (left_s := until - time.monotonic()) > 0:
                payload = self._transport.receive(left_s)
                if payload is None:
                    break
                try:
                    answer = Answer.read(self._key, request, payload)
                except ValueError:
                    # An answer to an earlier request, or nothing of ours.
                    continue
                if answer is None:
                    # Also the answer to an earlier request of this kind that came again.
                    wrong += 1
                elif answer.board != self._board:
                    raise DeviceFailed(
                        f"{self.url}: {what}: the answer is that of a board at "
                        f"{ipaddress.IPv4Address(answer.board)}; two boards must not have one key"
                    )
                else:
                    self._answered_s += (time.monotonic() - began - self._answered_s) / 4
                    return answer
        where = f"{self.url}: {what}: "
        if wrong and request.kind == MessageType.HELLO:
            raise WrongKey(
                f"{where}{wrong} answers to {sent} requests, none under this key: it is not the "
                "key of this board's settings"
            )
        maybe = ""
        if request.kind == MessageType.WRITE:
            maybe = "; the write may or may not have been carried out"
        raise DeviceGone(
            f"{where}no answer within {self._timeout_s:g} s, to {sent} requests{maybe}. Is the "
            "board on and configured, the address right, and this host its controller? It answers "
            "to no other"
        )


def _waits(timeout_s: float, first_s: float = 0.0) -> Iterator[float]:
    """Yield how long to wait for an answer after each time that a request is sent."""
    wait_s, sum_s = min(max(_FIRST_WAIT_S, first_s), _FIRST_WAIT_LONGEST_S), 0.0
    while sum_s < timeout_s:
        yield wait_s
        sum_s += wait_s
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _name(address: int) -> str:
    """Return how messages name a register."""
    tables = (
        *(registers.REGISTERS, registers.NODE_REGISTERS, registers.PORT_REGISTERS),
        management.MANAGEMENT_REGISTERS,
    )
    for table in tables:
        for register in table:
            if register.address == address:
                return register.name
    return f"register {address:#05x}"
