"""The sequencer in Python, instruction by instruction, with the ports of the management around it.

It runs the same program and data as the gateware, thousands of times faster than a simulator of
its signals, so that whole leases and planted bugs take milliseconds. That the gateware does the
same is for `tests/hdl/test_management_requests.py` to say.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from afflux_hdl.contract.siphash import siphash
from afflux_hdl.management.instructions import (
    DATA_BITS,
    PROGRAM_BITS,
    Condition,
    Group,
    Mode,
    Port,
    Special,
)
from afflux_hdl.management.siphash import SipHashStep

__all__ = ["Halted", "Twin"]

_WORD = 0xFFFF
_SLVERR = 2


class Halted(Exception):
    """The program goes round without asking for a frame."""


class Twin:
    """A management.

    Args:
        program: Instructions.
        data: Initial data.
        registers: With `read` and `write`, as the golden model's.
        seed: Of the entropy source.
        samples: The samples of GET ENTROPY; random words if None.

    Attributes:
        sent: Frames that were sent.
        configured, fault: The values of the pins.
        accepted, resets: Pulses.
        executed: Addresses of the instructions that have been carried out.
        deepest: Most calls within one another.
    """

    def __init__(
        self,
        program: Sequence[int],
        data: Sequence[int],
        registers: Any,
        *,
        seed: int = 1,
        samples: Callable[[], int] | None = None,
    ) -> None:
        self._program, self.registers = list(program), registers
        self._choose = random.Random(seed)
        self._samples = samples or (lambda: self._choose.getrandbits(16))
        self.data = [*data, *([0] * ((1 << DATA_BITS) - len(data)))]
        self.executed: set[int] = set()
        self.deepest = 0
        self.periods = 0
        self.restart()

    def restart(self) -> None:
        """Reset: the data stay as they are."""
        self._counter, self._a, self._x, self._carry = 0, 0, 0, 0
        self._stack: list[int] = []
        self._frames: deque[tuple[bytes, bool]] = deque()
        self._at = self._sum = 0
        self._pushed: deque[int] = deque([0, 0, 0, 0], 4)
        self._key, self._message, self._code = [0, 0], b"", 0
        self._axil_data: deque[int] = deque([0, 0], 2)
        self._read: tuple[int, int] = 0, 0
        self._response = 0
        self._frame = bytearray()
        self.sent: list[bytes] = []
        self.configured = self.fault = False
        self.accepted = self.resets = 0

    def feed(self, frame: bytes, bad: bool = False) -> list[bytes]:
        """Take a frame, and return what is sent until nothing is left to do."""
        self._frames.append((frame, bad))
        return self.run()

    def pass_periods(self, number: int) -> list[bytes]:
        """Let so many periods of 4,096 cycles pass, and return what is sent."""
        sent = []
        for _ in range(number):
            self.periods += 1
            sent += self.run()
        return sent

    def run(self, limit: int = 200_000) -> list[bytes]:
        """Run until the program asks for a frame and there is none.

        Raises:
            Halted: If it does not within so many instructions.
        """
        for _ in range(limit):
            if self._step():
                sent, self.sent = self.sent, []
                return sent
        raise Halted(f"at instruction {self._counter}")

    def _step(self) -> bool:
        """Carry an instruction out; return whether it has asked for a frame in vain."""
        self.executed.add(self._counter)
        instruction = self._program[self._counter]
        address = instruction & (1 << PROGRAM_BITS) - 1
        how = instruction >> PROGRAM_BITS & 3
        group = Group(instruction >> PROGRAM_BITS + 2)
        self._counter += 1
        if group <= Group.STORE:
            at = address if how == Mode.DIRECT else self._x
            if how == Mode.ADVANCING:
                self._x = (self._x + 1) % (1 << DATA_BITS)
            self._compute(group, at)
        elif group == Group.JUMP:
            if {
                Condition.ALWAYS: True,
                Condition.ZERO: self._a == 0,
                Condition.NOT_ZERO: self._a != 0,
                Condition.CARRY: bool(self._carry),
            }[Condition(how)]:
                self._counter = address
        elif group == Group.CALL and how & 1:
            self._x = address
        elif group == Group.CALL:
            self._stack.append(self._counter)
            self.deepest = max(self.deepest, len(self._stack))
            self._counter = address
        elif group == Group.SPECIAL:
            self._special(Special(how))
        elif group == Group.TAKE:
            frame = self._frames[0][0]
            pair = frame[self._at : self._at + 2]
            self._at += 2
            self._a = int.from_bytes(pair, "little")
            self._carry = int(len(pair) < (2 if how & 1 else 1))
            self._sum += self._a
            self._sum = (self._sum & _WORD) + (self._sum >> 16)
        elif group == Group.SKIP:
            self._carry = int(self._frames.popleft()[1])
            self._at = 0
        elif group == Group.GET:
            if address == Port.FRAME and not self._frames:
                self._a = 0
                return True
            self._a = self._get(address)
        else:
            self._put(address)
        return False

    def _compute(self, group: Group, at: int) -> None:
        a, m = self._a, self.data[at]
        if group == Group.STORE:
            self.data[at] = a
            return
        if group in (Group.ADD, Group.ADD_CARRY):
            total = a + m + (self._carry if group == Group.ADD_CARRY else 0)
            self._a, self._carry = total & _WORD, total >> 16
            return
        if group in (Group.SUBTRACT, Group.SUBTRACT_CARRY):
            total = a + (m ^ _WORD) + (self._carry if group == Group.SUBTRACT_CARRY else 1)
            self._a, self._carry = total & _WORD, total >> 16
            return
        self._a = {
            Group.LOAD: m,
            Group.AND: a & m,
            Group.OR: a | m,
            Group.XOR: a ^ m,
        }[group]

    def _special(self, what: Special) -> None:
        if what == Special.RETURN:
            self._counter = self._stack.pop()
        elif what == Special.SWAP:
            self._a = (self._a & 0xFF) << 8 | self._a >> 8
        elif what == Special.HALVE:
            self._carry, self._a = self._a & 1, self._a >> 1
        else:
            self._x = self._a % (1 << DATA_BITS)

    def _get(self, port: int) -> int:
        if port >= Port.CODE:
            return self._code >> 16 * (port - Port.CODE) & _WORD
        if port == Port.AXI_READ:
            return self._read[0] >> 16
        return {
            Port.FRAME: lambda: int(bool(self._frames)),
            Port.SUM: lambda: self._sum,
            Port.SUM_CARRY: lambda: 0,
            Port.TIME: lambda: self.periods & _WORD,
            Port.ENTROPY: self._samples,
            Port.AXI_DATA: lambda: self._read[0] & _WORD,
            Port.AXI_WRITE: lambda: self._response,
            Port.SEND_LAST: lambda: self._read[1],
        }[Port(port)]()

    def _put(self, port: int) -> None:
        a = self._a
        if port == Port.SUM:
            self._sum = a
        elif port == Port.WORD:
            self._pushed.append(a)
        elif port == Port.STEP:
            self._hash(SipHashStep(a))
        elif port == Port.AXI_DATA:
            self._axil_data.append(a)
        elif port == Port.AXI_READ:
            value = self.registers.read(a)
            self._read = (value or 0, _SLVERR if value is None else 0)
        elif port == Port.AXI_WRITE:
            low, high = self._axil_data
            self._response = 0 if self.registers.write(a, low | high << 16) else _SLVERR
        elif port in (Port.SEND, Port.SEND_LAST):
            self._frame += a.to_bytes(2, "little")
            if port == Port.SEND_LAST:
                assert len(self._frame) % 4 == 0
                self.sent.append(bytes(self._frame))
                self._frame.clear()
        elif port == Port.STATUS:
            self.configured, self.fault = bool(a & 1), bool(a & 2)
            self.accepted += a >> 2 & 1
            self.resets += a >> 3 & 1
        else:
            raise AssertionError(f"PUT to port {port}")

    def _hash(self, step: SipHashStep) -> None:
        word = b"".join(each.to_bytes(2, "little") for each in self._pushed)
        if step == SipHashStep.KEY_HIGH:
            self._key[1] = int.from_bytes(word, "little")
        elif step == SipHashStep.KEY_LOW:
            self._key[0], self._message = int.from_bytes(word, "little"), b""
        elif step == SipHashStep.BLOCK:
            self._message += word
        else:
            assert word == bytes(7) + bytes([len(self._message) & 0xFF])
            key = b"".join(half.to_bytes(8, "little") for half in self._key)
            self._code = siphash(key, self._message)
