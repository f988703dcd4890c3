"""Event counters of the engine, each read as two registers.

Tested: `tests/sim/test_engine_counters.py`, `tests/hdl/test_counters.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import registers
from afflux_hdl.engine.delivery_queue import ring_entries_max
from afflux_hdl.engine.layouts import Cause
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.counter_bank import CounterBank

__all__ = ["Counters", "largest_steps"]


def largest_steps(parameters: Parameters) -> dict[str, int]:
    """Return by how much each counter can grow in one cycle, by its name."""
    p = parameters
    several = {
        "bytes_in": p.bus_bytes,
        "bytes_out": p.bus_bytes,
        "blocks_accepted": p.lanes,
        "overflows": p.words_per_beat,
        # A fence empties a ring at once, while one more result is discarded on its way.
        "results_discarded": ring_entries_max(p) + 1,
    }
    return {counter.name: several.get(counter.name, 1) for counter in registers.COUNTERS}


class Counters(wiring.Component):
    """Counts events.

    Latency: an event is counted two cycles later. Throughput: every counter in every cycle, by its
    largest step.
    Overflow: counters wrap.

    Members:
        receive_judged, receive_cause, admit_judged, admit_cause: Verdicts of the two stages, whose
            causes are different counters.
        (name of a counter): For each counter that does not count verdicts: by how much it grows in
            this cycle.
        address: Number of the register: twice the counter's number, plus one for its upper half.
        value: The register's value, one cycle later. Reading has no effect.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._steps = largest_steps(parameters)
        self._others = [c for c in registers.COUNTERS if c not in registers.FRAME_COUNTERS]
        super().__init__(
            {
                "receive_judged": In(1),
                "receive_cause": In(Cause),
                "admit_judged": In(1),
                "admit_cause": In(Cause),
                **{
                    counter.name: In(range(self._steps[counter.name] + 1))
                    for counter in self._others
                },
                "address": In(range(2 * len(registers.COUNTERS))),
                "value": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = CounterBank(steps=self._steps)
        for counter in self._others:
            m.d.comb += getattr(bank, counter.name).eq(getattr(self, counter.name))
        for counter, cause in zip(registers.FRAME_COUNTERS, Cause, strict=True):
            m.d.comb += getattr(bank, counter.name).eq(
                (self.receive_judged & (self.receive_cause == cause))
                | (self.admit_judged & (self.admit_cause == cause))
            )
        half = Signal()
        m.d.sync += half.eq(self.address[0])
        m.d.comb += [
            bank.number.eq(self.address[1:]),
            self.value.eq(Mux(half, bank.value[32:], bank.value[:32])),
        ]
        return m
