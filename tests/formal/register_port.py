"""Proof: the AXI-Lite slave answers each request once, and does what was asked once.

The slave as it is, with any set of addresses that the engine's register map may have (a few here),
a register bus that refuses any writes, and a master that keeps the rules (AMBA AXI specification,
section A3.2.1: what is valid stays as it is until it is taken) and is otherwise free in when it
asks and when it takes answers.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.node.axi_lite import OKAY, SLVERR, AxiLite
from tests.formal import seams
from tests.formal.inside import Inside

__all__ = ["RegisterPortHarness"]

ADDRESS_BITS = 6
READABLE = (0x00, 0x08, 0x0C, 0x10, 0x14, 0x20)
WRITABLE = (0x08, 0x0C, 0x20)

PATIENCE = 12
"""Cycles within which a request is answered: an access the other way goes before at most once."""


class RegisterPortHarness(Elaboratable):
    """See above."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slave = AxiLite(address_bits=ADDRESS_BITS, readable=READABLE, writable=WRITABLE)
        inside = Inside(slave, platform)
        m.submodules.slave = inside.fragment
        for request in (slave.aw, slave.w, slave.ar):
            m.d.comb += [
                Value.cast(request.payload).eq(AnySeq(len(Value.cast(request.payload)))),
                request.valid.eq(AnySeq(1)),
            ]
            seams.AXI_MASTER.assume(m, request)
        for answer in (slave.b, slave.r):
            m.d.comb += answer.ready.eq(AnySeq(1))
            seams.STREAM.guarantee(m, answer, of="register port")
        m.d.comb += [slave.read_data.eq(AnySeq(32)), slave.refused.eq(AnySeq(1))]

        self._writes(m, slave, inside)
        self._reads(m, slave, inside)
        self._patience(m, slave, inside)
        m.d.comb += [
            Cover(slave.b.valid & slave.r.valid),
            Cover(slave.b.valid & (slave.b.payload == SLVERR)),
            Cover(slave.r.valid & (slave.r.payload.data == 0x12345678)),
        ]
        return m

    def _rises(self, m: Module, signal: Signal) -> Value:
        before = Signal()
        m.d.sync += before.eq(signal)
        return signal & ~before

    def _writes(self, m: Module, slave: AxiLite, inside: Inside) -> None:
        """One answer for each pair of address and data, OKAY for a write pulse not refused."""
        address, payload = Signal(ADDRESS_BITS), Signal.like(slave.w.payload)
        has_address, has_data, pulsed = Signal(), Signal(), Signal()
        answered = self._rises(m, slave.b.valid)
        right = Signal()
        m.d.comb += right.eq(_among(address, WRITABLE) & payload.strb.all())
        # Whether the register bus has refused the write of the cycle before.
        pulsed_before, refused, was_refused = Signal(), Signal(), Signal()
        m.d.sync += [pulsed_before.eq(slave.write), was_refused.eq(refused)]
        m.d.comb += refused.eq(Mux(pulsed_before, slave.refused, was_refused))
        with m.If(answered):
            m.d.comb += [
                Assert(has_address & has_data, "an answer without a request"),
                Assert(pulsed == right, "a write pulse for each request that is right"),
                Assert(slave.b.payload == _response(right & ~was_refused), "OKAY if it was done"),
            ]
            m.d.sync += [has_address.eq(0), has_data.eq(0), pulsed.eq(0)]
        with m.If(slave.write):
            m.d.comb += [
                Assert(has_address & has_data & right & ~pulsed, "a write that was not asked for"),
                Assert(slave.address[2:] == address[2:]),
                Assert(slave.write_data == payload.data),
            ]
            m.d.sync += pulsed.eq(1)
        with m.If(slave.aw.valid & slave.aw.ready):
            m.d.comb += Assert(~has_address | answered, "one at a time")
            m.d.sync += [has_address.eq(1), address.eq(slave.aw.payload)]
        with m.If(slave.w.valid & slave.w.ready):
            m.d.comb += Assert(~has_data | answered, "one at a time")
            m.d.sync += [has_data.eq(1), payload.eq(slave.w.payload)]
        # The slave's registers, for the induction.
        writing, settling = inside.state("WRITE"), inside.state("SETTLE")
        m.d.comb += [
            Assert(inside["aw_held"] == (has_address & ~answered)),
            Assert(inside["w_held"] == (has_data & ~answered)),
            Assert(~inside["aw_held"] | (inside["aw_address"] == address)),
            Assert(~inside["w_held"] | (Value.cast(inside["w_data"]) == Value.cast(payload))),
            Assert(~(writing | settling) | (inside["aw_held"] & inside["w_held"] & ~slave.b.valid)),
            Assert(pulsed == ((settling | answered) & right)),
            Assert(
                ~settling | (inside["cycles"] == 0) | (inside["done"] == (right & ~was_refused))
            ),
        ]

    def _reads(self, m: Module, slave: AxiLite, inside: Inside) -> None:
        """One answer for each address, with what the register bus gave for it."""
        address, asked = Signal(ADDRESS_BITS), Signal()
        seen, at_address, before = Signal(32), Signal(), Signal()
        answered = self._rises(m, slave.r.valid)
        right = Signal()
        m.d.comb += right.eq(_among(address, READABLE))
        looks = ~slave.write & asked & right & (slave.address[2:] == address[2:])
        m.d.sync += [at_address.eq(looks), before.eq(at_address), seen.eq(slave.read_data)]
        with m.If(answered):
            m.d.comb += [
                Assert(asked, "an answer without a request"),
                Assert(slave.r.payload.resp == _response(right)),
            ]
            with m.If(right):
                m.d.comb += [
                    Assert(before, "the register was looked at"),
                    Assert(slave.r.payload.data == seen, "what the register held"),
                ]
            with m.Else():
                m.d.comb += Assert(slave.r.payload.data == 0)
            m.d.sync += asked.eq(0)
        with m.If(slave.ar.valid & slave.ar.ready):
            m.d.comb += Assert(~asked | answered, "one at a time")
            m.d.sync += [asked.eq(1), address.eq(slave.ar.payload)]
        # An even word is looked at only where a read asks for it: counters latch at that.
        with m.If(~slave.address[2] & ~slave.write):
            m.d.comb += Assert(
                asked & right & (slave.address[2:] == address[2:]),
                "a register is looked at that nobody reads",
            )
        reading, answering = inside.state("READ"), inside.state("ANSWER")
        m.d.comb += [
            Assert(inside["ar_held"] == (asked & ~answered)),
            Assert(~inside["ar_held"] | (inside["ar_address"] == address)),
            Assert(~(reading | answering) | (inside["ar_held"] & ~slave.r.valid)),
            Assert(~(answering & right) | at_address),
            Assert(inside.in_a_state),
        ]

    def _patience(self, m: Module, slave: AxiLite, inside: Inside) -> None:
        """While the master takes answers at once, each request has its answer soon."""
        patient = slave.b.ready & slave.r.ready
        # The held accesses were accepted and have no answer yet: `_writes` and `_reads`.
        for name, pending, answer in (
            ("write", inside["aw_held"] & inside["w_held"], slave.b),
            ("read", inside["ar_held"], slave.r),
        ):
            age = Signal(range(PATIENCE + 1), name=f"{name}_age")
            with m.If(pending & patient & ~answer.valid):
                m.d.sync += age.eq(age + 1)
            with m.Else():
                m.d.sync += age.eq(0)
            m.d.comb += Assert(age < PATIENCE, f"a {name} is answered in time")


def _among(address: Value, addresses: tuple[int, ...]) -> Value:
    found: Value = address[2:] == addresses[0] // 4
    for each in addresses[1:]:
        found = found | (address[2:] == each // 4)
    return found


def _response(right: Value) -> Value:
    return Mux(right, OKAY, SLVERR)
