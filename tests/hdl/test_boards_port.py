"""From GMII to GMII through a board's port: what a link at a wrong speed does to it."""

import random
import zlib
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Elaboratable, Module, Signal
from amaranth.sim import Simulator
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.boards import port
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from tests.support.planting import names_with
from tests.support.stand_in_management import StandInManagement

NODE = NodeParameters(
    engine=Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2, link_timeout=64),
    host_buffer_bytes=2048,
    echo_buffer_bytes=2048,
)
UP, SLOW, HALF, DOWN = 0xDD, 0xBB, 0x55, 0xCC
FRAME = raw(Ether(dst="ff:ff:ff:ff:ff:ff") / IP(dst="255.255.255.255") / UDP(dport=68) / bytes(18))
"""The stand-in for the management sends back what it gets."""


def with_check(frame: bytes) -> bytes:
    return frame + zlib.crc32(frame).to_bytes(4, "little")


SEALED = with_check(FRAME)

FRAME_US = 4
"""Longer than a frame takes from the one pins to the others."""


class BarePins(Elaboratable):
    """Stands where the pins' registers are: GMII is what the test makes it."""

    def __init__(self, **delays: int) -> None:
        for name, width in (
            *(("pin_rx_ctl", 1), ("pin_rx_data", 4)),
            *(("pin_tx_clk", 1), ("pin_tx_ctl", 1), ("pin_tx_data", 4)),
            *(("rx_data", 8), ("rx_valid", 1), ("rx_error", 1)),
            *(("tx_data", 8), ("tx_enable", 1), ("tx_error", 1)),
        ):
            setattr(self, name, Signal(width, name=name))

    def elaborate(self, platform: object) -> Module:
        return Module()


class Link:
    """A PHY whose status the test sets."""

    def __init__(self, module: Any, **options: Any) -> None:
        made: list[BarePins] = []

        def pins(**delays: int) -> BarePins:
            made.append(BarePins(**delays))
            return made[-1]

        module["RgmiiEcp5"] = pins
        self.simulator = Simulator(module["RgmiiPort"](NODE, StandInManagement(), **options))
        self.pins: Any = made[0]
        self.status = 0
        self.frames = 0
        self.sent = 0
        for domain, period_ns in (("sync", 20), ("rx", 8.001), ("tx", 7.999)):
            self.simulator.add_clock(period_ns * 1e-9, domain=domain)
        self.simulator.add_testbench(self._receive, background=True)
        self.simulator.add_testbench(self._send, background=True)

    async def _receive(self, ctx: Any) -> None:
        octets = b"\x55" * 7 + b"\xd5" + SEALED
        while True:
            ctx.set(self.pins.rx_data, self.status)
            for _ in range(12):
                await ctx.tick("rx")
            if self.frames:
                self.frames -= 1
                ctx.set(self.pins.rx_valid, 1)
                for octet in octets:
                    ctx.set(self.pins.rx_data, octet)
                    await ctx.tick("rx")
                ctx.set(self.pins.rx_valid, 0)

    async def _send(self, ctx: Any) -> None:
        octets = b""
        async for _, _, enable, octet in ctx.tick("tx").sample(
            self.pins.tx_enable, self.pins.tx_data
        ):
            if enable:
                octets += bytes([octet])
            elif octets:
                assert octets[8:] == SEALED
                self.sent += 1
                octets = b""


def check_speeds(module: Any) -> None:
    """Send and receive at one gigabit only, once the PHY says so; without status, always."""
    link = Link(module)

    async def run(ctx: Any) -> None:
        # The address is set, and nothing is under way.
        await ctx.delay(1e-6)
        link.sent = 0

        async def passed(status: int) -> int:
            before = link.sent
            link.status = status
            await ctx.delay(0.5e-6)
            link.frames = 1
            await ctx.delay(FRAME_US * 1e-6)
            return link.sent - before

        # No status, then several.
        assert await passed(0) == 1
        assert await passed(SLOW) == 0
        assert await passed(UP) == 1
        assert await passed(HALF) == 0
        assert await passed(DOWN) == 0
        assert await passed(UP) == 1

    link.simulator.add_testbench(run)
    link.simulator.run()


def check_waiting(module: Any) -> None:
    """Let the link go while frames leave: no more begin, and those that have begun end well."""
    link = Link(module)

    async def run(ctx: Any) -> None:
        await ctx.delay(1e-6)
        link.status = UP
        await ctx.delay(1e-6)
        link.sent, link.frames = 0, 6
        await ctx.delay(4e-6)
        link.status = SLOW
        await ctx.delay(3e-6)
        before = link.sent
        assert 0 < before < 6
        await ctx.delay(8e-6)
        assert link.sent == before
        # Frames that waited in the board leave when the link is right again.
        link.status = UP
        await ctx.delay(4e-6)
        assert link.sent > before

    link.simulator.add_testbench(run)
    link.simulator.run()


def check_without(module: Any) -> None:
    """Take no notice of what looks like a report."""
    link = Link(module, inband_status=False)

    async def run(ctx: Any) -> None:
        link.status = SLOW
        link.sent, link.frames = 0, 2
        await ctx.delay(2 * FRAME_US * 1e-6)
        assert link.sent == 2

    link.simulator.add_testbench(run)
    link.simulator.run()


def check_resets(module: Any, domains: tuple[str, ...], seed: int) -> None:
    """Reset amid frames of both directions: nothing leaves as a good frame that did not come."""
    made: list[BarePins] = []

    def bare(**delays: int) -> BarePins:
        made.append(BarePins(**delays))
        return made[-1]

    module["RgmiiEcp5"] = bare
    m = Module()
    resets = {}
    for name in ("sync", "rx", "tx"):
        domain = ClockDomain(name)
        m.domains += domain
        resets[name] = Signal(name=f"reset_{name}")
        m.d.comb += domain.rst.eq(resets[name])
    m.submodules.port = module["RgmiiPort"](NODE, StandInManagement())
    simulator = Simulator(m)
    pins: Any = made[0]
    for domain_name, period_ns in (("sync", 20), ("rx", 8.001), ("tx", 7.999)):
        simulator.add_clock(period_ns * 1e-9, domain=domain_name)
    choose = random.Random(seed)
    frames = [with_check(FRAME + choose.randbytes(choose.randrange(80))) for _ in range(25)]
    came: list[bytes] = []

    async def receive(ctx: Any) -> None:
        for frame in frames:
            for _ in range(12):
                await ctx.tick("rx")
            ctx.set(pins.rx_valid, 1)
            for octet in b"\x55" * 7 + b"\xd5" + frame:
                ctx.set(pins.rx_data, octet)
                await ctx.tick("rx")
            ctx.set(pins.rx_valid, 0)
            ctx.set(pins.rx_data, 0)
        for _ in range(600):
            await ctx.tick("rx")

    async def send(ctx: Any) -> None:
        octets = b""
        async for _, _, enable, octet in ctx.tick("tx").sample(pins.tx_enable, pins.tx_data):
            if enable:
                octets += bytes([octet])
            elif octets:
                came.append(octets[8:])
                octets = b""

    async def reset(ctx: Any) -> None:
        for _ in range(8):
            await ctx.delay(choose.uniform(0.3e-6, 2.5e-6))
            for name in domains:
                ctx.set(resets[name], 1)
            await ctx.delay(160e-9)
            for name in domains:
                ctx.set(resets[name], 0)

    simulator.add_testbench(receive)
    simulator.add_testbench(send, background=True)
    simulator.add_testbench(reset)
    simulator.run()
    good = [each for each in came if len(each) >= 64 and with_check(each[:-4]) == each]
    assert len(good) > 5
    assert set(good) <= set(frames)


def fresh() -> dict[str, Any]:
    return names_with(port, "ENVELOPE_BYTES = 2000", "ENVELOPE_BYTES = 2000")


def test_nothing_passes_but_at_a_gigabit_in_full_duplex() -> None:
    check_speeds(fresh())


def test_a_report_may_be_ignored() -> None:
    check_without(fresh())


def test_frames_under_way_end_well_when_the_link_goes() -> None:
    check_waiting(fresh())


@pytest.mark.long
@pytest.mark.parametrize("domains", [("sync",), ("rx",), ("sync", "rx", "tx")], ids=str)
def test_resets_amid_frames(domains: tuple[str, ...]) -> None:
    check_resets(fresh(), domains, seed=1)


@pytest.mark.long
def test_why_the_domain_of_sending_may_not_be_reset_alone() -> None:
    with pytest.raises(AssertionError):
        check_resets(fresh(), ("tx",), seed=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_speeds, "rgmii.rx_valid & ~self.down", "rgmii.rx_valid"),
        (check_waiting, "end.mac.tx_hold, o_domain", "Signal(), o_domain"),
        (check_without, "if self._inband_status:", "if True:"),
    ],
)
def test_planted_bugs_are_noticed(check: Any, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(port, right, wrong))
