"""The echo check in short steps is the other one, in every cycle."""

import random
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from afflux_hdl.node.echo_check import EchoCheck
from tests.support.part_player import as_beats


def draw_address(choose: random.Random) -> str:
    return ".".join(str(choose.choice((255, 254, 0, choose.randrange(256)))) for _ in range(4))


def draw_request(choose: random.Random) -> bytes:
    """Return a request, right or with something wrong; sums carry often, bytes are often zero."""
    payload = bytes(choose.choice((0, 0, 255, 7)) for _ in range(choose.randrange(150)))
    ip = IP(src=draw_address(choose), dst=draw_address(choose), tos=choose.choice((0, 255)))
    frame = bytearray(bytes(Ether() / ip / ICMP(id=choose.getrandbits(16)) / Raw(payload)))
    match choose.randrange(8):
        case 0 if len(payload) > 3:
            # Of what its length says.
            del frame[-choose.randrange(1, 4) :]
        case 1:
            frame[choose.randrange(14, len(frame))] ^= 1 << choose.randrange(8)
        case 2:
            # Behind what its length says.
            frame += choose.randbytes(choose.randrange(1, 70))
        case 3:
            frame += bytes(1500)
    return bytes(frame)


def carries_twice(local: int) -> bytes:
    """Return a request in whose reply's checksum folding once leaves another carry."""
    words = (0x0045, 36 << 8, local & 0xFFFF, local >> 16, 0x0040, 0x0140, 0xFFFF)
    source = 0xFFFF << 16 | (0xFFFF - sum(words)) % 0x10000
    address = ".".join(map(str, source.to_bytes(4, "little")))
    return bytes(Ether() / IP(src=address) / ICMP() / Raw(bytes(8)))


def check_same(short: type[EchoCheck], bus_bits: int) -> None:
    choose = random.Random(bus_bits)
    checks = [EchoCheck(bus_bits=bus_bits), short(bus_bits=bus_bits, short_steps=True)]
    top = Module()
    top.submodules += checks
    good = bad = 0

    async def run(ctx: Any) -> None:
        nonlocal good, bad

        async def step(valid: bool, beat: tuple[int, int, bool, bool]) -> None:
            nonlocal good, bad
            for each in checks:
                ctx.set(each.i.valid, valid)
                for name, value in zip(("data", "keep", "last", "error"), beat, strict=True):
                    ctx.set(each.i.payload[name], value)
            await ctx.tick()
            found = [
                tuple(ctx.get(each.reply.as_value()) for each in checks),
                tuple(ctx.get(each.good) for each in checks),
                tuple(ctx.get(each.judged) for each in checks),
            ]
            assert found[2][0] == found[2][1]
            if found[2][0]:
                assert found[0][0] == found[0][1]
                assert found[1][0] == found[1][1]
                good, bad = good + found[1][0], bad + 1 - found[1][0]

        local = choose.getrandbits(32)
        for each in checks:
            ctx.set(each.local.address, local)
        for request in (
            carries_twice(local),
            # A byte is missing that would not change the sum, at each place of a group.
            *(bytes(Ether() / IP() / ICMP() / Raw(bytes(n)))[:-1] for n in range(20, 28)),
            *(draw_request(choose) for _ in range(150)),
        ):
            for beat in as_beats(bus_bits // 8, request, error=False):
                while choose.random() < 0.2:
                    await step(False, (choose.getrandbits(bus_bits), 1, True, False))
                await step(True, beat)
        for _ in range(8):
            await step(False, (0, 1, False, False))

    simulator = Simulator(top)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    assert good > 40
    assert bad > 20
    assert good + bad == 1 + 8 + 150


@pytest.mark.parametrize("bus_bits", [pytest.param(64, marks=pytest.mark.long), 256, 512])
def test_short_steps_are_the_same(bus_bits: int) -> None:
    check_same(EchoCheck, bus_bits)
