"""Register port: the shell's AXI4-Lite, at its own clock, to the pages of nodes and box.

Tested: `tests/sim/test_box.py`.
"""

from collections.abc import Mapping

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.contract.box_registers import PAGE_BYTES
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.lib.request_crossing import RequestCrossing
from afflux_hdl.node.axi_lite import SLVERR, ReadData
from afflux_hdl.node.node import AXI_LITE

__all__ = ["SHELL_AXI_LITE", "ShellRegisterPort"]

SHELL_AXI_LITE = wiring.Signature(
    {
        "aw": Out(stream.Signature(32)),
        "w": Out(stream.Signature(32)),
        "b": In(stream.Signature(2)),
        "ar": Out(stream.Signature(32)),
        "r": In(stream.Signature(ReadData)),
    }
)
"""The five channels as the shell has them: no strobes, so a write is of all four bytes."""

Write = data.StructLayout({"address": 32, "data": 32})
"""A write that is carried over."""


class ShellRegisterPort(wiring.Component):
    """Carries accesses over to the nodes' clock, one write and one read at a time.

    Every access is answered. To an address in no page, and while `away` holds, that is `SLVERR`,
    and 0 of a read.

    Latency: that of `RequestCrossing` and of the page. Throughput: one write and one read in that
    time.

    Args:
        pages: Names of pages by their number: page n begins at n·4096.

    Members:
        shell: The shell's side, in domain `outer`.
        away: In domain `outer`: the nodes are in reset; see `RequestCrossing`.
        (name of a page): Its registers, in domain `sync`.
    """

    def __init__(self, pages: Mapping[int, str]) -> None:
        if PAGE_BYTES != 1 << REGISTER_ADDRESS_BITS:
            raise ValueError(
                f"a page of {PAGE_BYTES} bytes does not fit {REGISTER_ADDRESS_BITS} address bits"
            )
        self._pages = dict(pages)
        super().__init__(
            {
                "shell": In(SHELL_AXI_LITE),
                "away": In(1),
                **{name: Out(AXI_LITE) for name in pages.values()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shell = self.shell
        lost = data.Const(ReadData, SLVERR << 32)
        m.submodules.writes = writes = RequestCrossing(Write, 2, lost=Const(SLVERR, 2))
        m.submodules.reads = reads = RequestCrossing(32, ReadData, lost=lost)
        connect(m, writes.o, flipped(shell.b))
        connect(m, reads.o, flipped(shell.r))
        m.d.comb += [
            writes.away.eq(self.away),
            reads.away.eq(self.away),
            # Address and data of a write are taken together.
            writes.i.valid.eq(shell.aw.valid & shell.w.valid),
            writes.i.payload.address.eq(shell.aw.payload),
            writes.i.payload.data.eq(shell.w.payload),
            shell.aw.ready.eq(writes.i.ready & shell.w.valid),
            shell.w.ready.eq(writes.i.ready & shell.aw.valid),
            reads.i.valid.eq(shell.ar.valid),
            reads.i.payload.eq(shell.ar.payload),
            shell.ar.ready.eq(reads.i.ready),
        ]
        for crossing, address in ((writes, shell.aw.payload), (reads, shell.ar.payload)):
            m.d.comb += crossing.refuse.eq(1)
            with m.Switch(address[REGISTER_ADDRESS_BITS:]):
                with m.Case(*self._pages):
                    m.d.comb += crossing.refuse.eq(0)

        # A page takes the address and the data of a write as it likes.
        aw_taken, w_taken = Signal(), Signal()
        aw_ready, w_ready, ar_ready = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.asked.ready.eq((aw_taken | aw_ready) & (w_taken | w_ready)),
            reads.asked.ready.eq(ar_ready),
        ]
        with m.If(writes.asked.valid):
            m.d.sync += [
                aw_taken.eq((aw_taken | aw_ready) & ~writes.asked.ready),
                w_taken.eq((w_taken | w_ready) & ~writes.asked.ready),
            ]
        for number, name in self._pages.items():
            page = getattr(self, name)
            written, read = Signal(name=f"{name}_written"), Signal(name=f"{name}_read")
            m.d.comb += [
                written.eq(writes.asked.payload.address[REGISTER_ADDRESS_BITS:] == number),
                read.eq(reads.asked.payload[REGISTER_ADDRESS_BITS:] == number),
                page.aw.valid.eq(writes.asked.valid & written & ~aw_taken),
                page.aw.payload.eq(writes.asked.payload.address),
                page.w.valid.eq(writes.asked.valid & written & ~w_taken),
                page.w.payload.data.eq(writes.asked.payload.data),
                page.w.payload.strb.eq(0b1111),
                page.ar.valid.eq(reads.asked.valid & read),
                page.ar.payload.eq(reads.asked.payload),
                page.b.ready.eq(writes.answered.ready),
                page.r.ready.eq(reads.answered.ready),
            ]
            with m.If(written):
                m.d.comb += [aw_ready.eq(page.aw.ready), w_ready.eq(page.w.ready)]
            with m.If(read):
                m.d.comb += ar_ready.eq(page.ar.ready)
            # One page answers at a time, and the request stands still until then.
            with m.If(page.b.valid):
                m.d.comb += [
                    writes.answered.valid.eq(1),
                    writes.answered.payload.eq(page.b.payload),
                ]
            with m.If(page.r.valid):
                m.d.comb += [reads.answered.valid.eq(1), reads.answered.payload.eq(page.r.payload)]
        return m
