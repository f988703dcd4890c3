"""Node and management in the appliance: what goes where, with something that stands in for it."""

import random
from typing import Any

from amaranth.sim import Simulator
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.boards.appliance import Appliance
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from tests.support.refusals import refused
from tests.support.stand_in_management import StandInManagement

NODE = NodeParameters(
    engine=Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2),
    host_buffer_bytes=2048,
    echo_buffer_bytes=2048,
)


def test_frames_for_the_host_reach_the_management_and_its_frames_the_network() -> None:
    part = Appliance(NODE, StandInManagement())
    choose = random.Random(1)
    frames = [
        raw(Ether(dst="ff:ff:ff:ff:ff:ff") / IP(dst="255.255.255.255") / UDP(dport=68) / payload)
        for payload in (choose.randbytes(size) for size in (18, 60, 301))
    ]
    came: list[bytes] = []
    configured: list[int] = []

    async def give(ctx: Any) -> None:
        for n, frame in enumerate(frames):
            for at in range(0, len(frame), 4):
                word = frame[at : at + 4]
                ctx.set(part.rx.valid, 1)
                ctx.set(part.rx.payload.data, int.from_bytes(word, "little"))
                ctx.set(part.rx.payload.keep, (1 << len(word)) - 1)
                ctx.set(part.rx.payload.last, at + 4 >= len(frame))
                ctx.set(part.entropy, n & 1)
                await ctx.tick()
            ctx.set(part.rx.valid, 0)
            await ctx.tick().repeat(3)

    async def take(ctx: Any) -> None:
        partial = b""
        ctx.set(part.tx.ready, 1)
        for _ in range(500):
            if ctx.get(part.tx.valid):
                keep = ctx.get(part.tx.payload.keep).bit_count()
                partial += ctx.get(part.tx.payload.data).to_bytes(4, "little")[:keep]
                if ctx.get(part.tx.payload.last):
                    assert not ctx.get(part.tx.payload.error)
                    came.append(partial)
                    configured.append(ctx.get(part.configured))
                    partial = b""
            await ctx.tick()

    simulator = Simulator(part)
    simulator.add_clock(2e-8)
    simulator.add_testbench(give)
    simulator.add_testbench(take)
    simulator.run()
    assert came == frames
    assert configured[0] == 0 and configured[-1] == 1


def test_another_width_is_refused() -> None:
    with refused("a bus of 32 bits, not 512"):
        Appliance(NodeParameters(), StandInManagement())
