"""AXI4-Lite slave over a plain register bus.

Proved: `tests/formal/register_port.py`. Tested: `tests/hdl/test_axi_lite.py`,
`tests/sim/test_cocotb_node.py`.
"""

from collections.abc import Collection

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["OKAY", "SLVERR", "AxiLite", "ReadData", "WriteData"]

OKAY, SLVERR = 0b00, 0b10
"""Responses (AMBA AXI specification, section A3.4.4)."""

SETTLE_CYCLES = 4
"""Cycles from a write to its response: by then registers that depend on it show the new value."""

WriteData = data.StructLayout({"data": 32, "strb": 4})
"""Payload of the write data channel."""

ReadData = data.StructLayout({"data": 32, "resp": 2})
"""Payload of the read data channel."""


class AxiLite(wiring.Component):
    """Carries out reads and writes of 32 bits, one at a time.

    Write address and write data may come in either order. A read never waits until a write's
    response is taken, nor the other way round; if both wait to be carried out, they take turns.

    These are answered `SLVERR` and have no effect: a write that does not set all strobes, a write
    to an address that cannot be written, a write that the register bus refuses, and a read of an
    address without a register, which gives 0. Bits 0 and 1 of addresses are ignored.

    Latency: 4 cycles from a read's address to its data; 3 + `SETTLE_CYCLES` from the later of a
    write's address and data to its response. Throughput: one access in about as many cycles.

    Args:
        address_bits: Bits of an address in bytes.
        readable: Addresses of all registers.
        writable: Addresses of those that can be written.

    Members:
        aw, w, b, ar, r: The five channels; `aw` and `ar` carry the address, `b` the response.
        address: Address of the register bus. Between accesses it is that of a constant: no access
            shows that was not asked for.
        write, write_data: Write this in this cycle.
        read_data: The register's value, one cycle after its address.
        refused: The write of the cycle before has had no effect.
    """

    def __init__(
        self, *, address_bits: int, readable: Collection[int], writable: Collection[int]
    ) -> None:
        self._readable = sorted(readable)
        self._writable = sorted(writable)
        address = stream.Signature(address_bits)
        super().__init__(
            {
                "aw": In(address),
                "w": In(stream.Signature(WriteData)),
                "b": Out(stream.Signature(2)),
                "ar": In(address),
                "r": Out(stream.Signature(ReadData)),
                "address": Out(address_bits),
                "write": Out(1),
                "write_data": Out(32),
                "read_data": In(32),
                "refused": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Registers for what each of the three channels of requests has brought.
        held = {}
        for name in ("aw", "w", "ar"):
            channel = getattr(self, name)
            valid = Signal(name=f"{name}_held")
            payload = Signal.like(channel.payload, name=f"{name}_payload")
            m.d.comb += channel.ready.eq(~valid)
            with m.If(channel.valid & ~valid):
                m.d.sync += [valid.eq(1), payload.eq(channel.payload)]
            held[name] = (valid, payload)
        aw_held, aw_address = held["aw"]
        w_held, w_data = held["w"]
        ar_held, ar_address = held["ar"]
        for channel in (self.b, self.r):
            with m.If(channel.ready):
                m.d.sync += channel.valid.eq(0)

        writes, reads = Signal(), Signal()
        known_aw, known_ar, latest_was_write, acts = Signal(), Signal(), Signal(), Signal()
        for known, address, addresses in (
            (known_aw, aw_address, self._writable),
            (known_ar, ar_address, self._readable),
        ):
            with m.Switch(address[2:]):
                with m.Case(*(each // 4 for each in addresses)):
                    m.d.comb += known.eq(1)
        m.d.comb += [
            writes.eq(aw_held & w_held & ~self.b.valid),
            reads.eq(ar_held & ~self.r.valid),
            acts.eq(known_aw & w_data.strb.all()),
            self.write_data.eq(w_data.data),
            # A constant: see `address`.
            self.address.eq(0b100),
        ]
        cycles = Signal(range(SETTLE_CYCLES))
        done = Signal()
        with m.FSM():
            with m.State("IDLE"):
                with m.If(writes & ~(reads & latest_was_write)):
                    m.next = "WRITE"
                with m.Elif(reads):
                    m.next = "READ"
            with m.State("WRITE"):
                # A refused write does not even show its address.
                with m.If(acts):
                    m.d.comb += [self.address.eq(aw_address), self.write.eq(1)]
                m.d.sync += [latest_was_write.eq(1), cycles.eq(0)]
                m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += cycles.eq(cycles + 1)
                with m.If(cycles == 0):
                    m.d.sync += done.eq(acts & ~self.refused)
                with m.If(cycles == SETTLE_CYCLES - 1):
                    m.d.sync += [
                        aw_held.eq(0),
                        w_held.eq(0),
                        self.b.valid.eq(1),
                    ]
                    with m.If(done):
                        m.d.sync += self.b.payload.eq(OKAY)
                    with m.Else():
                        m.d.sync += self.b.payload.eq(SLVERR)
                    m.next = "IDLE"
            with m.State("READ"):
                with m.If(known_ar):
                    m.d.comb += self.address.eq(ar_address)
                m.d.sync += latest_was_write.eq(0)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.sync += [ar_held.eq(0), self.r.valid.eq(1)]
                with m.If(known_ar):
                    m.d.sync += [
                        self.r.payload.data.eq(self.read_data),
                        self.r.payload.resp.eq(OKAY),
                    ]
                with m.Else():
                    m.d.sync += [self.r.payload.data.eq(0), self.r.payload.resp.eq(SLVERR)]
                m.next = "IDLE"
        # For proofs.
        self.aw_held, self.aw_address, self.w_held = aw_held, aw_address, w_held
        self.w_data, self.ar_held, self.ar_address = w_data, ar_held, ar_address
        self.cycles, self.done = cycles, done
        return m
