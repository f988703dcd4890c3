"""Scheduler: whose frame is next. Deficit round robin by size, charged afterwards.

::

    phase 1                            phase 0
    has the choice a frame?  ─────►    its cost, and whether there is more
    who else is ready next?  ─────►    go on with it, or choose the next

M. Shreedhar and G. Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995. In
this variant (surplus round robin) a class may send while its balance is positive, and pays when a
frame has gone: nobody has to look at the size of a frame whose turn has not come.

Tested: `tests/hdl/test_scheduler.py`, `tests/sim/test_engine_isolation.py`.
"""

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from afflux_hdl.lib.priority import lowest

__all__ = ["Scheduler"]


class Scheduler(wiring.Component):
    """Lets classes send in turn, each about as much as any other.

    A turn begins with `quantum` units, less what the class has overdrawn in its last one, and lasts
    while some are left and the class has frames. So a turn takes at most 2·`quantum` - 1 units, and
    a class that is ready waits for no more than one turn of each other class. The credit that a
    class has left when it has no more frames is lost; its debt is not.

    Latency: while no class is ready, one that announces itself with `arrives` is `valid` in the
    next cycle; one that does not, 2 cycles after it is ready. Throughput: a frame in two cycles.

    Args:
        classes: Number of classes.
        quantum: Units of a turn; at least the largest cost.

    Members:
        phase: Alternates from cycle to cycle.
        ready: For each class, whether it has a frame.
        choice: The class whose turn it is.
        valid: It has a frame. Looked at in phase 1.
        arrives, arrived: In phase 0: this class gets a frame, and is ready in the next cycle.
        taken, cost, more: In phase 0: a frame was taken from it in the cycle before; its cost; and
            whether it has another one.
        forgive, forgiven: In phase 1: this class owes nothing any more. It is not ready.
    """

    def __init__(self, *, classes: int, quantum: int) -> None:
        self._classes = classes
        self._quantum = quantum
        super().__init__(
            {
                "phase": In(1),
                "ready": In(classes),
                "choice": Out(range(classes)),
                "valid": Out(1),
                "arrives": In(1),
                "arrived": In(range(classes)),
                "taken": In(1),
                "cost": In(range(quantum + 1)),
                "more": In(1),
                "forgive": In(1),
                "forgiven": In(range(classes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = ceil_log2(self._classes)
        units = signed(bits_for(self._quantum) + 1)

        # Phase 1: the next class, beginning after the one whose turn it is.
        was_valid, others = Signal(), Signal()
        following = Signal(number)
        bits = [self.ready[n] & (self.choice != n) for n in range(self._classes)]
        behind = [bit & (self.choice < n) for n, bit in enumerate(bits)]
        spare: list[Value] = [Const(0, 1)] * ((1 << number) - self._classes)
        any_behind, first_behind = lowest(behind + spare)
        any_other, first_other = lowest(bits + spare)
        m.d.comb += self.valid.eq(self.ready.bit_select(self.choice, 1))
        m.d.sync += [
            was_valid.eq(self.valid),
            others.eq(any_other),
            following.eq(Mux(any_behind, first_behind, first_other)),
        ]

        # Phase 0: pay, and end the turn or go on.
        m.submodules.debts = debts = memory.Memory(shape=units, depth=self._classes, init=[])
        debt_write, debt_read = debts.write_port(), debts.read_port(domain="comb")
        balance = Signal(units, init=self._quantum)
        after, owed = Signal(units), Signal(units)
        ends, changes = Signal(), Signal()
        next_choice = Signal(number)
        m.d.comb += [
            after.eq(balance - Mux(self.taken, self.cost, 0)),
            owed.eq(Mux(after < 0, after, 0)),
            ends.eq(Mux(self.taken, ~self.more | (after <= 0), ~was_valid)),
            changes.eq(
                ~self.phase & ends & (others | (self.arrives & (self.arrived != self.choice)))
            ),
            next_choice.eq(Mux(others, following, self.arrived)),
            debt_read.addr.eq(next_choice),
            debt_write.en.eq(changes | self.forgive),
            debt_write.addr.eq(Mux(self.phase, self.forgiven, self.choice)),
            debt_write.data.eq(Mux(self.phase, 0, owed)),
        ]
        with m.If(changes):
            m.d.sync += [
                self.choice.eq(next_choice),
                balance.eq(debt_read.data + self._quantum),
            ]
        with m.Elif(~self.phase):
            m.d.sync += balance.eq(Mux(ends, owed + self._quantum, after))
        return m
