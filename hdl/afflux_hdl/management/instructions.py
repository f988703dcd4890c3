"""Instructions of the sequencer, and an assembler for them.

An instruction has 17 bits: 4 for what is done, 2 for how, 11 for an address. The program and the
data are apart; constants are words of the data. Plain Python.

Tested: `tests/hdl/test_management_parts.py`.
"""

from collections.abc import Sequence
from enum import IntEnum

__all__ = [
    "DATA_BITS",
    "INSTRUCTION_BITS",
    "PROGRAM_BITS",
    "Assembler",
    "Condition",
    "Group",
    "Mode",
    "Port",
    "Special",
    "encode",
]

DATA_BITS, PROGRAM_BITS = 10, 11
"""Bits of an address of the data, and of the program."""

INSTRUCTION_BITS = 6 + PROGRAM_BITS
WORD_BITS = 16


class Group(IntEnum):
    """The operation. A is the accumulator, M the word of the data, C the carry."""

    LOAD = 0
    """A = M."""
    ADD = 1
    """A = A + M; C is the carry."""
    ADD_CARRY = 2
    """A = A + M + C; C is the carry."""
    SUBTRACT = 3
    """A = A - M; C is set if that is not below 0."""
    SUBTRACT_CARRY = 4
    """A = A - M - 1 + C; C is set if that is not below 0."""
    AND = 5
    OR = 6
    XOR = 7
    STORE = 8
    """M = A."""
    JUMP = 9
    """Go to the address, on a condition."""
    CALL = 10
    """Go to the address, and come back with RETURN; or load X, by its mode."""
    SPECIAL = 11
    """See `Special`."""
    GET = 12
    """A = what a port has; waits until there is something."""
    PUT = 13
    """Give A to a port; waits until it takes it."""
    TAKE = 14
    """A = next pair of the frame; C is set if it is, partly or wholly, behind the end."""
    SKIP = 15
    """Go to the end of the frame; C is set if it is marked as bad."""


class Mode(IntEnum):
    """Where M is."""

    DIRECT = 0
    """At the instruction's address."""
    INDEXED = 1
    """At X."""
    ADVANCING = 2
    """At X, which is one more afterwards."""


class Condition(IntEnum):
    """When a JUMP takes place."""

    ALWAYS = 0
    ZERO = 1
    NOT_ZERO = 2
    CARRY = 3


class Special(IntEnum):
    """The operation of a SPECIAL, by its mode."""

    RETURN = 0
    SWAP = 1
    """Exchange the octets of A."""
    HALVE = 2
    """A = A / 2; C is the bit that falls out."""
    INDEX = 3
    """X = A."""


class Port(IntEnum):
    """Ports of GET and PUT."""

    FRAME = 0
    """GET: 1 if there is a frame."""
    SUM = 1
    """GET: sum of the pairs taken. PUT: set it."""
    SUM_CARRY = 2
    """GET: carry that must be added to it."""
    TIME = 3
    """GET: periods of 4,096 cycles since reset."""
    ENTROPY = 4
    """GET: 16 new samples."""
    WORD = 5
    """PUT: 16 bits for SipHash. GET: 1 while a frame is being sent."""
    STEP = 6
    """PUT: a step of SipHash."""
    AXI_DATA = 7
    """PUT: 16 bits to be written, lower half first. GET: the lower half of what was read."""
    AXI_READ = 8
    """PUT: read at this address. GET: the upper half of what was read, which ends the read."""
    AXI_WRITE = 9
    """PUT: write at this address. GET: the response of a write, which ends it."""
    SEND = 10
    """PUT: a pair of a frame."""
    SEND_LAST = 11
    """PUT: the last pair of a frame. GET: the response of a read."""
    CODE = 12
    """GET: first 16 bits of SipHash's code; the others follow at 13, 14 and 15."""
    STATUS = 13
    """PUT: bit 0 configured, bit 1 fault, bit 2 a request accepted, bit 3 reset."""


def encode(group: Group, how: int, address: int = 0) -> int:
    """Return an instruction."""
    return group << PROGRAM_BITS + 2 | how << PROGRAM_BITS | address


class Assembler:
    """Collects a program and its data.

    Args:
        data: Words that the data begin with.

    Attributes:
        program: Instructions; jumps are filled in by `finish`.
        data: Initial data.
    """

    def __init__(self, data: Sequence[int]) -> None:
        self.data = list(data)
        self._instructions: list[tuple[Group, int, int | str]] = []
        self._labels: dict[str, int] = {}
        self._constants: dict[int, int] = {}
        self._variables: dict[str, int] = {}
        self._made = 0

    def variable(self, name: str, words: int = 1, init: Sequence[int] = ()) -> int:
        """Return the address of a new variable."""
        if name in self._variables:
            raise ValueError(f"there is a variable {name!r} already")
        self._variables[name] = at = len(self.data)
        self.data += [*init, *([0] * (words - len(init)))]
        return at

    def __getitem__(self, name: str) -> int:
        """Return the address of a variable."""
        return self._variables[name]

    def constant(self, value: int) -> int:
        """Return the address of a constant."""
        if not 0 <= value < 1 << WORD_BITS:
            raise ValueError(f"{value} is not a word")
        if value not in self._constants:
            self._constants[value] = len(self.data)
            self.data.append(value)
        return self._constants[value]

    def label(self, name: str) -> None:
        """Give the next instruction a name."""
        if name in self._labels:
            raise ValueError(f"there is a label {name!r} already")
        self._labels[name] = len(self._instructions)

    def new_label(self) -> str:
        """Return a name for a label that nobody else has."""
        self._made += 1
        return f"#{self._made}"

    def _memory(self, group: Group, operand: int | Mode) -> None:
        if isinstance(operand, Mode):
            self._instructions.append((group, operand, 0))
        else:
            self._instructions.append((group, Mode.DIRECT, operand))

    def load(self, operand: int | Mode) -> None:
        """Make A M."""
        self._memory(Group.LOAD, operand)

    def load_constant(self, value: int) -> None:
        """Make A a constant."""
        self.load(self.constant(value))

    def add(self, operand: int | Mode) -> None:
        """Make A A + M."""
        self._memory(Group.ADD, operand)

    def add_carry(self, operand: int | Mode) -> None:
        """Make A A + M + C."""
        self._memory(Group.ADD_CARRY, operand)

    def subtract(self, operand: int | Mode) -> None:
        """Make A A - M."""
        self._memory(Group.SUBTRACT, operand)

    def subtract_carry(self, operand: int | Mode) -> None:
        """Make A A - M - 1 + C."""
        self._memory(Group.SUBTRACT_CARRY, operand)

    def and_(self, operand: int | Mode) -> None:
        """Make A A & M."""
        self._memory(Group.AND, operand)

    def or_(self, operand: int | Mode) -> None:
        """Make A A | M."""
        self._memory(Group.OR, operand)

    def xor(self, operand: int | Mode) -> None:
        """Make A A ^ M."""
        self._memory(Group.XOR, operand)

    def store(self, operand: int | Mode) -> None:
        """Make M A."""
        self._memory(Group.STORE, operand)

    def jump(self, label: str, condition: Condition = Condition.ALWAYS) -> None:
        """Go to a label."""
        self._instructions.append((Group.JUMP, condition, label))

    def jump_zero(self, label: str) -> None:
        """Go to a label if A is 0."""
        self.jump(label, Condition.ZERO)

    def jump_not_zero(self, label: str) -> None:
        """Go to a label if A is not 0."""
        self.jump(label, Condition.NOT_ZERO)

    def jump_carry(self, label: str) -> None:
        """Go to a label if C is set."""
        self.jump(label, Condition.CARRY)

    def jump_no_carry(self, label: str) -> None:
        """Go to a label if C is not set."""
        beyond = self.new_label()
        self.jump_carry(beyond)
        self.jump(label)
        self.label(beyond)

    def call(self, label: str) -> None:
        """Call a subroutine."""
        self._instructions.append((Group.CALL, 0, label))

    def index(self, address: int) -> None:
        """Make X an address."""
        self._instructions.append((Group.CALL, 1, address))

    def return_(self) -> None:
        """Return to the caller."""
        self._instructions.append((Group.SPECIAL, Special.RETURN, 0))

    def special(self, what: Special) -> None:
        """Do something with A."""
        self._instructions.append((Group.SPECIAL, what, 0))

    def get(self, port: int) -> None:
        """Make A what a port has."""
        self._instructions.append((Group.GET, 0, port))

    def put(self, port: int) -> None:
        """Give A to a port."""
        self._instructions.append((Group.PUT, 0, port))

    def take(self, *, whole: bool = False) -> None:
        """Make A next pair of the frame; C: not even its first octet, or `whole` not both, are."""
        self._instructions.append((Group.TAKE, int(whole), 0))

    def skip(self) -> None:
        """Go to the end of the frame."""
        self._instructions.append((Group.SKIP, 0, 0))

    def finish(self) -> list[int]:
        """Return the program.

        Raises:
            ValueError: If program or data do not fit.
            KeyError: If a label is missing.
        """
        for what, has, bits in (
            ("instructions", len(self._instructions), PROGRAM_BITS),
            ("words", len(self.data), DATA_BITS),
        ):
            if has > 1 << bits:
                raise ValueError(f"{has} {what} are more than {1 << bits}")
        return [
            encode(group, how, self._labels[where] if isinstance(where, str) else where)
            for group, how, where in self._instructions
        ]
