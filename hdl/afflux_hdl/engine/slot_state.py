"""Slot state: the rounds, seen bitmaps and version headers of all slots.

Everything that `docs/protocol.md`, section 5.1, keeps for a slot except its words and blocks; and
two parity bits, so that a slot with a flipped bit stands still instead of summing what is wrong.

Proved: `tests/formal/admission.py`. Tested: `tests/sim/test_engine_cases.py`,
`tests/sim/test_engine_limits.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort

__all__ = ["SlotState", "SlotStateMemory", "VersionState", "parity_of"]

PARITY_BITS = 2


class VersionState(data.StructLayout):
    """The header of the result that a version holds.

    Members:
        held: The version holds a round of this job run.
        present, operation, dtype, opcode: Fields of the header.
        conflict: The contributions disagree.
        in_all: Lanes that are present in all contributions.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "held": 1,
                "present": wire.LANES_MAX,
                "operation": 16,
                "dtype": 4,
                "opcode": 4,
                "conflict": 1,
                "in_all": wire.LANES_MAX,
            }
        )


class SlotState(data.StructLayout):
    """State of a slot.

    Members:
        round: R, the latest open round.
        seen: Workers whose contribution to R is in.
        left: Number of contributions to R that are missing; 0 means that `seen` is full.
        waiting: The partial sum of R has gone to the parent, whose result is not in yet.
        versions: Header of the round that each version holds.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "round": 32,
                "seen": parameters.workers,
                "left": parameters.count_bits,
                "waiting": 1,
                "versions": data.ArrayLayout(VersionState(parameters), 2),
            }
        )


def parity_of(state: data.View) -> Value:
    """Return the parities of the even and of the odd bits: two neighbours are never in one.

    `waiting` is decided last, so it comes in last.
    """
    early = Cat(value for name, value in _fields(state) if name != "waiting")
    even, odd = early[::2].xor(), early[1::2].xor()
    return Cat(even ^ state.waiting, odd)


def _fields(state: data.View) -> list[tuple[str, Value]]:
    return [(name, Value.cast(state[name])) for name, _ in state.shape()]


class SlotStateMemory(wiring.Component):
    """State of every slot of the pool.

    Latency: state follows one cycle after its address. Throughput: a read and a write in each
    cycle. A state that is written in the cycle in which it is addressed is read as written, and is
    not `broken`: it does not come from the memory.

    Members:
        read: Read port of the admit stage.
        broken: With what is read: it is not what was written.
        send: Read port of the replicate stage, for R alone (a second, narrow copy).
        write: Sets a state.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._depth = parameters.slots
        self._state = SlotState(parameters)
        slot = parameters.slot_bits
        super().__init__(
            {
                "read": In(ReadPort(slot, self._state)),
                "broken": Out(1),
                "send": In(ReadPort(slot, 32)),
                "write": In(WritePort(slot, self._state)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = data.StructLayout({"state": self._state, "parity": PARITY_BITS})
        m.submodules.states = states = memory.Memory(shape=shape, depth=self._depth, init=[])
        m.submodules.rounds = rounds = memory.Memory(shape=32, depth=self._depth, init=[])
        state_write, state_read = states.write_port(), states.read_port()
        round_write, round_read = rounds.write_port(), rounds.read_port()
        # Written out, so that the parity is that of what the memory holds: no choice is before it.
        written, was_written = Signal(self._state), Signal()
        m.d.sync += [
            written.eq(self.write.data),
            was_written.eq(self.write.enable & (self.write.address == self.read.address)),
        ]
        kept = state_read.data
        m.d.comb += [
            state_read.addr.eq(self.read.address),
            self.read.data.eq(Mux(was_written, written.as_value(), kept.state.as_value())),
            self.broken.eq(~was_written & (kept.parity != parity_of(kept.state))),
            round_read.addr.eq(self.send.address),
            self.send.data.eq(round_read.data),
            state_write.en.eq(self.write.enable),
            state_write.addr.eq(self.write.address),
            state_write.data.state.eq(self.write.data),
            state_write.data.parity.eq(parity_of(self.write.data)),
            round_write.en.eq(self.write.enable),
            round_write.addr.eq(self.write.address),
            round_write.data.eq(self.write.data.round),
        ]
        return m
