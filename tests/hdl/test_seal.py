"""Seals: right sums, spoiled sums, and a beat in every cycle."""

import random

import pytest
from amaranth.sim import Simulator

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.seal import DEPTH, MARGIN, Seal
from afflux_sim.golden.frames import Endpoint, Packet, as_block, build_frame, udp_sum

HERE = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700)
CLOCK = 1e-8


def unsealed(choose: random.Random, blocks: int) -> bytes:
    """Return a frame as the seal stage gets it: lengths and checksum are those with a seal."""
    there = Endpoint(choose.randbytes(6), "10.255.254.1", choose.randrange(2**16))
    draw = choose.choice([lambda: choose.getrandbits(32), lambda: 2**32 - 1, lambda: 0])
    packet = Packet(
        type=8,
        key=choose.getrandbits(64),
        words=tuple(draw() for _ in range(16)),
        blocks={lane: as_block([draw() for _ in range(64)]) for lane in range(blocks)},
    )
    return build_frame(HERE, there, packet, checksum=0xFFFF, seal=bytes(4))[:-4]


def run(
    bus_bits: int, frames: list[bytes], flips: dict[int, int], ready: random.Random | None = None
) -> tuple[list[bytes], list[int], int]:
    """Return the frames that come out, the cycles of their beats, and how many do not fit.

    Args:
        bus_bits: Width of the stream.
        frames: The input, back to back as far as there is room.
        flips: By frame, the bit that flips before the seal.
        ready: When the network takes a beat; None: always.
    """
    parameters = Parameters(bus_bits=bus_bits, workers=1, lanes=16, jobs=1, slots=2)
    seal = Seal(parameters)
    octets = bus_bits // 8
    out: list[bytes] = []
    cycles: list[int] = []
    mismatches = 0

    def beats() -> list[tuple[int, int, bool, bool]]:
        every = []
        for number, frame in enumerate(frames):
            for at in range(0, len(frame), octets):
                data = int.from_bytes(frame[at : at + octets], "little")
                residues = sum(
                    (data >> 32 * n) % 2**32 % 15 << 4 * n for n in range(bus_bits // 32)
                )
                bit = flips.get(number, -1) - 8 * at
                if 0 <= bit < bus_bits:
                    data ^= 1 << bit
                every.append((data, residues, at >= 64, at + octets == len(frame)))
        return every

    async def feed(ctx) -> None:
        phase, room = False, False
        left = beats()
        while left:
            phase = not phase
            if phase:
                room = ctx.get(seal.level) <= DEPTH - MARGIN
            ctx.set(seal.i.valid, room)
            if room:
                data, residues, from_memory, last = left.pop(0)
                ctx.set(seal.i.payload.data, data)
                ctx.set(seal.i.payload.residues, residues)
                ctx.set(seal.i.payload.from_memory, from_memory)
                ctx.set(seal.i.payload.last, last)
            await ctx.tick()
        ctx.set(seal.i.valid, 0)

    async def take(ctx) -> None:
        nonlocal mismatches
        frame = b""
        cycle = 0
        while len(out) < len(frames):
            ctx.set(seal.o.ready, ready is None or ready.random() < 0.5)
            if ctx.get(seal.o.valid & seal.o.ready):
                keep = ctx.get(seal.o.payload.keep)
                data = ctx.get(seal.o.payload.data).to_bytes(octets, "little")
                assert data[keep.bit_count() :] == bytes(octets - keep.bit_count())
                frame += data[: keep.bit_count()]
                cycles.append(cycle)
                if ctx.get(seal.o.payload.last):
                    out.append(frame)
                    frame = b""
            mismatches += ctx.get(seal.mismatch)
            await ctx.tick()
            cycle += 1
            assert cycle < 100_000
        await ctx.tick()
        assert ctx.get(seal.idle)

    simulator = Simulator(seal)
    simulator.add_clock(CLOCK)
    simulator.add_testbench(feed)
    simulator.add_testbench(take)
    simulator.run()
    return out, cycles, mismatches


@pytest.mark.parametrize(
    ("bus_bits", "pauses"), [(32, False), (32, True), (128, True), (512, False)]
)
def test_every_frame_gets_its_right_sum(bus_bits: int, pauses: bool) -> None:
    choose = random.Random(bus_bits)
    frames = [unsealed(choose, blocks) for blocks in (0, 0, 0, 1, 0, 2, 16 if bus_bits > 99 else 3)]
    out, _, mismatches = run(bus_bits, frames, {}, choose if pauses else None)
    assert [frame[:-4] for frame in out] == frames
    assert {frame[-4:-2] for frame in out} == {b"\0\0"}
    assert {udp_sum(frame) for frame in out} == {0xFFFF}
    assert mismatches == 0


@pytest.mark.parametrize("bus_bits", [32, 512])
def test_a_frame_with_a_flipped_bit_is_spoiled_and_no_other(bus_bits: int) -> None:
    choose = random.Random(bus_bits)
    frames = [unsealed(choose, choose.randrange(2)) for _ in range(40)]
    flips = {n: choose.randrange(8 * 64, 8 * len(frames[n])) for n in range(0, 40, 2)}
    out, _, mismatches = run(bus_bits, frames, flips)
    right = [udp_sum(frame) == 0xFFFF for frame in out]
    assert right == [n not in flips for n in range(40)]
    assert mismatches == len(flips)


@pytest.mark.parametrize("blocks", [0, 1, pytest.param(16, marks=pytest.mark.long)])
def test_a_frame_takes_one_cycle_more_than_it_has_beats(blocks: int) -> None:
    """At 512 bits a frame of k blocks is 3 + 4k beats: 12 ns at 250 MHz if k is 0.

    Its 132 + 256k bytes, with check sequence, preamble and gap (24), take 12.48 + 20.48k ns at
    100 Gbit/s: the engine is never the slower one.
    """
    count = 40
    frames = [unsealed(random.Random(1), blocks)] * count
    _, cycles, _ = run(512, frames, {})
    beats = 3 + 4 * blocks
    assert len(cycles) == count * beats
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))
    nanoseconds_on_the_wire = (132 + 256 * blocks + 24) * 8 / 100
    assert beats * 4 <= nanoseconds_on_the_wire
