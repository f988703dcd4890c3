"""The management of a board without a host (`docs/management.md`).

::

    i ─► FrameReader ─┐                    ┌─► FrameWriter ─► o
                      ├─► Sequencer ports ─┼─► SipHash
    EntropySampler ───┘                    └─► axil

Tested: `tests/hdl/test_management_requests.py`, `tests/hdl/test_management_node.py`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract import management
from afflux_hdl.contract.management import Settings
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.management.entropy import EntropySampler
from afflux_hdl.management.frame_ports import BUS_BITS, FrameReader, FrameWriter
from afflux_hdl.management.instructions import Port
from afflux_hdl.management.memory_map import ACCEPTED, CONFIGURED, FAULT, RESET
from afflux_hdl.management.program import build_program
from afflux_hdl.management.sequencer import Sequencer
from afflux_hdl.management.siphash import SipHash
from afflux_hdl.node.node import AXI_LITE

__all__ = ["ENTROPY_BLOCKS", "ENTROPY_SPACING_BITS", "Management"]

ENTROPY_BLOCKS = 64
"""Blocks of 64 samples that a session is drawn from."""

ENTROPY_SPACING_BITS = 6
"""Binary logarithm of the cycles from sample to sample."""

PERIODS_BITS = 16


class Management(wiring.Component):
    """Stands where a node's host would: its controller reads and writes registers over UDP.

    Throughput: a new request is answered within 1,800 cycles, 36 µs at 50 MHz. A frame to another
    MAC address takes 110 cycles, or 80 without the DHCP client, and those of its beats.
    Overflow: `i` waits meanwhile; the node behind it drops what does not fit into its buffer.
    After a reset the session takes `entropy_blocks` · 64 · 2**`entropy_spacing_bits` cycles.

    Args:
        settings: Addresses and key; the beginning of the memory called `settings`.
        clock_hz: Of the domain `sync`, for seconds.
        dhcp: With a DHCP client. Without one, settings that need it are a fault.
        entropy_blocks: Blocks of 64 samples that a session is drawn from.
        entropy_spacing_bits: Binary logarithm of the cycles from sample to sample.

    Members:
        i: Frames of the node's `host_rx`.
        o: Frames for its `host_tx`.
        axil: Its registers.
        entropy: Random bits, of no clock.
        configured: An address is set.
        fault: The settings are damaged, or the entropy source does not change.
        authenticated: Set for a cycle for each request that is carried out.
        reset: Set for a cycle when the controller orders a reset: of the node, and of this.

    Raises:
        ValueError: If a number cannot be, or settings need DHCP and there is none.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        clock_hz: float,
        dhcp: bool = True,
        entropy_blocks: int = ENTROPY_BLOCKS,
        entropy_spacing_bits: int = ENTROPY_SPACING_BITS,
    ) -> None:
        if not 1e6 <= clock_hz <= 1e9:
            raise ValueError(f"clock_hz must be 1 MHz to 1 GHz, not {clock_hz:g} Hz")
        # Fewer would be as long as messages are that have a meaning.
        if not 8 <= entropy_blocks <= 0xFFFF:
            raise ValueError(f"entropy_blocks must be 8 to 65535, not {entropy_blocks}")
        if not 0 <= entropy_spacing_bits <= 16:
            raise ValueError(f"entropy_spacing_bits must be 0 to 16, not {entropy_spacing_bits}")
        if settings.address is None and not dhcp:
            raise ValueError("these settings have no address, and there is no DHCP client")
        self._spacing_bits = entropy_spacing_bits
        self.program = build_program(
            settings, clock_hz=clock_hz, entropy_blocks=entropy_blocks, dhcp=dhcp
        )
        beat = PacketBeat(BUS_BITS)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(beat)),
                "axil": Out(AXI_LITE),
                "entropy": In(1),
                "configured": Out(1),
                "fault": Out(1),
                "authenticated": Out(1),
                "reset": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sequencer = cpu = Sequencer(
            program=self.program.instructions, data=self.program.data
        )
        m.submodules.reader = reader = FrameReader()
        m.submodules.writer = writer = FrameWriter()
        m.submodules.siphash = siphash = SipHash()
        m.submodules.sampler = sampler = EntropySampler(spacing_bits=self._spacing_bits)
        connect(m, flipped(self.i), reader.i)
        connect(m, writer.o, flipped(self.o))
        cycles = Signal(management.PERIOD_BITS + PERIODS_BITS)
        m.d.sync += cycles.eq(cycles + 1)

        puts = {port: Signal(name=f"put_{port.name.lower()}") for port in Port}
        for port, signal in puts.items():
            m.d.comb += signal.eq(cpu.put & (cpu.port == port))
        m.d.comb += [
            sampler.entropy.eq(self.entropy),
            sampler.take.eq(cpu.get & (cpu.port == Port.ENTROPY)),
            reader.take.eq(cpu.take & reader.available),
            reader.skip.eq(cpu.skip),
            reader.set_sum.eq(puts[Port.SUM]),
            reader.sum_value.eq(cpu.a),
            siphash.push.eq(puts[Port.WORD] & ~siphash.busy),
            siphash.part.eq(cpu.a),
            siphash.start.eq(puts[Port.STEP] & ~siphash.busy),
            siphash.step.eq(cpu.a),
            writer.put.eq(puts[Port.SEND] | puts[Port.SEND_LAST]),
            writer.last.eq(puts[Port.SEND_LAST]),
            writer.pair.eq(cpu.a),
            cpu.pair.eq(reader.pair),
        ]
        self._ports(m, cpu, reader, writer, siphash, sampler, cycles)
        self._axi(m, cpu, puts)

        status = puts[Port.STATUS]
        with m.If(status):
            m.d.sync += [
                self.configured.eq((cpu.a & CONFIGURED) != 0),
                self.fault.eq((cpu.a & FAULT) != 0),
            ]
        m.d.sync += [
            self.authenticated.eq(status & ((cpu.a & ACCEPTED) != 0)),
            self.reset.eq(status & ((cpu.a & RESET) != 0)),
        ]
        return m

    def _ports(
        self,
        m: Module,
        cpu: Sequencer,
        reader: FrameReader,
        writer: FrameWriter,
        siphash: SipHash,
        sampler: EntropySampler,
        cycles: Signal,
    ) -> None:
        """Say what each port has, and when it has or takes something."""
        read = self.axil.r
        m.d.comb += cpu.ready.eq(1)
        with m.If(cpu.take):
            m.d.comb += [
                cpu.ready.eq(reader.available),
                cpu.behind.eq(~reader.some | (cpu.whole & ~reader.full)),
            ]
        with m.Elif(cpu.skip):
            m.d.comb += [cpu.ready.eq(reader.skipped), cpu.behind.eq(reader.error)]
        with m.Elif(cpu.put):
            with m.Switch(cpu.port):
                with m.Case(Port.WORD, Port.STEP):
                    m.d.comb += cpu.ready.eq(~siphash.busy)
                with m.Case(Port.SEND, Port.SEND_LAST):
                    m.d.comb += cpu.ready.eq(writer.ready)
        with m.Switch(cpu.port):
            with m.Case(Port.FRAME):
                m.d.comb += cpu.got.eq(reader.available)
            with m.Case(Port.SUM):
                m.d.comb += cpu.got.eq(reader.sum)
            with m.Case(Port.SUM_CARRY):
                m.d.comb += cpu.got.eq(reader.carry)
            with m.Case(Port.TIME):
                m.d.comb += cpu.got.eq(cycles[management.PERIOD_BITS :])
            with m.Case(Port.ENTROPY):
                m.d.comb += cpu.got.eq(sampler.samples)
            with m.Case(Port.AXI_DATA):
                m.d.comb += cpu.got.eq(read.payload.data[:16])
            with m.Case(Port.AXI_READ):
                m.d.comb += cpu.got.eq(read.payload.data[16:])
            with m.Case(Port.AXI_WRITE):
                m.d.comb += cpu.got.eq(self.axil.b.payload)
            with m.Case(Port.SEND_LAST):
                m.d.comb += cpu.got.eq(read.payload.resp)
            for n in range(4):
                with m.Case(Port.CODE + n):
                    m.d.comb += cpu.got.eq(siphash.code[16 * n : 16 * n + 16])
        with m.If(cpu.get):
            with m.Switch(cpu.port):
                with m.Case(Port.ENTROPY):
                    m.d.comb += cpu.ready.eq(sampler.fresh)
                with m.Case(Port.AXI_DATA, Port.AXI_READ, Port.SEND_LAST):
                    m.d.comb += cpu.ready.eq(read.valid)
                with m.Case(Port.AXI_WRITE):
                    m.d.comb += cpu.ready.eq(self.axil.b.valid)
                with m.Case(*(Port.CODE + n for n in range(4))):
                    m.d.comb += cpu.ready.eq(~siphash.busy)

    def _axi(self, m: Module, cpu: Sequencer, puts: dict[Port, Signal]) -> None:
        """Be the master of the register port. There is one access at a time."""
        axil = self.axil
        address, data = Signal.like(axil.ar.payload), Signal(32)
        for channel in (axil.ar, axil.aw, axil.w):
            with m.If(channel.ready):
                m.d.sync += channel.valid.eq(0)
        with m.If(puts[Port.AXI_DATA]):
            m.d.sync += data.eq(Cat(data[16:], cpu.a))
        with m.If(puts[Port.AXI_READ] | puts[Port.AXI_WRITE]):
            m.d.sync += address.eq(cpu.a)
        with m.If(puts[Port.AXI_READ]):
            m.d.sync += axil.ar.valid.eq(1)
        with m.If(puts[Port.AXI_WRITE]):
            m.d.sync += [axil.aw.valid.eq(1), axil.w.valid.eq(1)]
        m.d.comb += [
            axil.ar.payload.eq(address),
            axil.aw.payload.eq(address),
            axil.w.payload.data.eq(data),
            axil.w.payload.strb.eq(0xF),
            axil.r.ready.eq(cpu.get & (cpu.port == Port.AXI_READ)),
            axil.b.ready.eq(cpu.get & (cpu.port == Port.AXI_WRITE)),
        ]
