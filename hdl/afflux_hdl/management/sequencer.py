"""The sequencer: carries out the program of the management.

A state machine for all that the management does (parsing, session, numbers, history, DHCP with its
options and timers) would be some thousand tables. As a program it is the content of a block RAM,
carried out by an accumulator of 16 bits.

Tested: `tests/hdl/test_management_parts.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.management.instructions import (
    DATA_BITS,
    INSTRUCTION_BITS,
    PROGRAM_BITS,
    Condition,
    Group,
    Mode,
    Special,
)

__all__ = ["Sequencer"]

STACK_BITS = 3
"""Binary logarithm of how deep calls may go."""


class Sequencer(wiring.Component):
    """An accumulator machine. Two cycles for each instruction, and those that it waits for a port.

    In the first cycle the word that the instruction names is read, in the second the instruction is
    carried out, and the next one read. `instructions.Group` says what they do.

    Args:
        program: Instructions; it begins with the first.
        data: Initial data.

    Members:
        port: Number of the port of GET and PUT.
        a: The accumulator.
        get, put: The port is asked in this cycle, again and again until it is `ready`.
        ready: It has something, or takes something.
        got: The value that it has.
        take, whole, skip: A pair of the frame is taken, or the rest of it skipped, likewise.
        pair, behind: The pair, and what C will be.
    """

    def __init__(self, *, program: Sequence[int], data: Sequence[int]) -> None:
        self._program, self._data = list(program), list(data)
        super().__init__(
            {
                "port": Out(4),
                "a": Out(16),
                "get": Out(1),
                "put": Out(1),
                "ready": In(1),
                "got": In(16),
                "take": Out(1),
                "whole": Out(1),
                "skip": Out(1),
                "pair": In(16),
                "behind": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.program = program = memory.Memory(
            shape=unsigned(INSTRUCTION_BITS),
            # A power of two: whatever the program is, nobody jumps behind its end.
            depth=1 << max(1, len(self._program) - 1).bit_length(),
            init=self._program,
            attrs={"ram_style": "block", "rom_style": "block"},
        )
        # It is never read while it is written, and its readers never ask for what is being written:
        # no logic is needed that says what comes of it.
        m.submodules.settings = settings = memory.Memory(
            shape=unsigned(16),
            depth=1 << DATA_BITS,
            init=self._data,
            attrs={"ram_style": "block", "no_rw_check": 1},
        )
        fetch = program.read_port()
        read, write = settings.read_port(), settings.write_port()

        started, executes, done = Signal(), Signal(), Signal()
        counter, following = Signal(PROGRAM_BITS), Signal(PROGRAM_BITS)
        # The memory is slow, and there are two cycles: in the second one, registers have it.
        instruction = Signal(INSTRUCTION_BITS)
        with m.If(~executes):
            m.d.sync += instruction.eq(fetch.data)
        address, how = instruction[:PROGRAM_BITS], instruction[PROGRAM_BITS : PROGRAM_BITS + 2]
        group = instruction[PROGRAM_BITS + 2 :]
        a, x, carry = self.a, Signal(DATA_BITS), Signal()
        # In the first cycle after a reset the first instruction is read.
        m.d.sync += started.eq(1)
        with m.If(~started):
            m.d.comb += fetch.en.eq(1)
        with m.Else():
            m.d.comb += fetch.en.eq(done)
            m.d.sync += executes.eq(Mux(executes, ~done, 1))
        m.d.comb += fetch.addr.eq(Mux(started, following, 0))

        is_ = {each: Signal(name=f"is_{each.name.lower()}") for each in Group}
        for each, signal in is_.items():
            m.d.comb += signal.eq(group == each)
        waits = Signal()
        m.d.comb += [
            waits.eq(
                (is_[Group.GET] | is_[Group.PUT] | is_[Group.TAKE] | is_[Group.SKIP]) & ~self.ready
            ),
            done.eq(executes & ~waits),
            self.port.eq(address),
            self.get.eq(executes & is_[Group.GET]),
            self.put.eq(executes & is_[Group.PUT]),
            self.take.eq(executes & is_[Group.TAKE]),
            self.whole.eq(how[0]),
            self.skip.eq(executes & is_[Group.SKIP]),
            read.en.eq(~executes),
            read.addr.eq(_word_of(fetch.data, x)),
            write.addr.eq(_word_of(instruction, x)),
            write.data.eq(a),
            write.en.eq(executes & is_[Group.STORE]),
        ]

        # The next instruction.
        m.submodules.stack = stack = memory.Memory(
            shape=unsigned(PROGRAM_BITS), depth=1 << STACK_BITS, init=[]
        )
        top, push = stack.read_port(domain="comb"), stack.write_port()
        depth, jumps, calls, returns = Signal(STACK_BITS), Signal(), Signal(), Signal()
        zero = Signal()
        m.d.comb += [
            zero.eq(a == 0),
            calls.eq(is_[Group.CALL] & ~how[0]),
            returns.eq(is_[Group.SPECIAL] & (how == Special.RETURN)),
            push.en.eq(done & calls),
            push.addr.eq(depth),
            push.data.eq(counter + 1),
            top.addr.eq(depth - 1),
            following.eq(
                Mux(returns, top.data, Mux(jumps | calls, address, (counter + 1)[:PROGRAM_BITS]))
            ),
        ]
        with m.If(is_[Group.JUMP]):
            with m.Switch(how):
                with m.Case(Condition.ALWAYS):
                    m.d.comb += jumps.eq(1)
                with m.Case(Condition.ZERO):
                    m.d.comb += jumps.eq(zero)
                with m.Case(Condition.NOT_ZERO):
                    m.d.comb += jumps.eq(~zero)
                with m.Case(Condition.CARRY):
                    m.d.comb += jumps.eq(carry)
        with m.If(done):
            m.d.sync += counter.eq(following)
            with m.If(calls):
                m.d.sync += depth.eq(depth + 1)
            with m.If(returns):
                m.d.sync += depth.eq(depth - 1)

        # The accumulator.
        word = read.data
        subtracts, carry_in, result = Signal(), Signal(), Signal(17)
        with m.Switch(group):
            with m.Case(Group.ADD_CARRY, Group.SUBTRACT_CARRY):
                m.d.comb += carry_in.eq(carry)
            with m.Case(Group.SUBTRACT):
                m.d.comb += carry_in.eq(1)
        m.d.comb += [
            subtracts.eq(is_[Group.SUBTRACT] | is_[Group.SUBTRACT_CARRY]),
            result.eq(a + (word ^ subtracts.replicate(16)) + carry_in),
        ]
        # One table for each bit of the four that work bit by bit; then one of four.
        logic, moved, comes = Signal(16), Signal(16), Signal(16)
        with m.Switch(group):
            with m.Case(Group.AND):
                m.d.comb += logic.eq(a & word)
            with m.Case(Group.OR):
                m.d.comb += logic.eq(a | word)
            with m.Case(Group.XOR):
                m.d.comb += logic.eq(a ^ word)
            with m.Default():
                m.d.comb += logic.eq(word)
        m.d.comb += [
            moved.eq(Mux(how[1], Cat(a[1:], Const(0, 1)), Cat(a[8:], a[:8]))),
            comes.eq(Mux(is_[Group.TAKE], self.pair, self.got)),
        ]
        with m.If(done):
            with m.Switch(group):
                with m.Case(Group.LOAD, Group.AND, Group.OR, Group.XOR):
                    m.d.sync += a.eq(logic)
                with m.Case(Group.ADD, Group.ADD_CARRY, Group.SUBTRACT, Group.SUBTRACT_CARRY):
                    m.d.sync += Cat(a, carry).eq(result)
                with m.Case(Group.GET):
                    m.d.sync += a.eq(comes)
                with m.Case(Group.TAKE):
                    m.d.sync += [a.eq(comes), carry.eq(self.behind)]
                with m.Case(Group.SKIP):
                    m.d.sync += carry.eq(self.behind)
                with m.Case(Group.SPECIAL):
                    with m.If((how == Special.SWAP) | (how == Special.HALVE)):
                        m.d.sync += a.eq(moved)
                    with m.If(how == Special.HALVE):
                        m.d.sync += carry.eq(a[0])
            with m.If((group <= Group.STORE) & (how == Mode.ADVANCING)):
                m.d.sync += x.eq(x + 1)
            with m.If(is_[Group.CALL] & how[0]):
                m.d.sync += x.eq(address)
            with m.If(is_[Group.SPECIAL] & (how == Special.INDEX)):
                m.d.sync += x.eq(a)
        return m


def _word_of(instruction: Value, x: Value) -> Value:
    """Return the address of the word that an instruction names."""
    how = instruction[PROGRAM_BITS : PROGRAM_BITS + 2]
    return Mux(how == Mode.DIRECT, instruction[:DATA_BITS], x)
