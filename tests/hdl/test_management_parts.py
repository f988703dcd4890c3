"""The parts of the management alone: SipHash, the ports of frames, the sampler, the sequencer."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from afflux_hdl.management import siphash as siphash_module
from afflux_hdl.management.entropy import EntropySampler
from afflux_hdl.management.frame_ports import FrameReader, FrameWriter
from afflux_hdl.management.instructions import (
    Assembler,
    Condition,
    Mode,
    Port,
    Special,
)
from afflux_hdl.management.sequencer import Sequencer
from afflux_hdl.management.siphash import SipHash, SipHashStep
from afflux_sim.golden.siphash import siphash_2_4
from tests.support.part_player import as_beats
from tests.support.planting import names_with
from tests.support.sequencer_twin import Twin


def simulate(part, testbench):
    simulator = Simulator(part)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def check_siphash(part):
    choose = random.Random(1)
    cases = [(choose.randbytes(16), choose.randbytes(8 * n)) for n in (0, 1, 4, 5, 2)]
    cycles = {SipHashStep.KEY_HIGH: 1, SipHashStep.KEY_LOW: 1}
    cycles |= {SipHashStep.BLOCK: 4, SipHashStep.LAST: 12}

    async def run(ctx):
        async def word(octets, step):
            for at in range(0, 8, 2):
                ctx.set(part.push, 1)
                ctx.set(part.part, int.from_bytes(octets[at : at + 2], "little"))
                await ctx.tick()
            ctx.set(part.push, 0)
            ctx.set(part.start, 1)
            ctx.set(part.step.as_value(), step.value)
            await ctx.tick()
            ctx.set(part.start, 0)
            took = 0
            while ctx.get(part.busy):
                await ctx.tick()
                took += 1
                assert took <= 12
            assert took == cycles[step]
            # Nothing goes on by itself.
            for _ in range(choose.randrange(20)):
                await ctx.tick()
                assert not ctx.get(part.busy)

        for key, message in cases:
            await word(key[8:], SipHashStep.KEY_HIGH)
            await word(key[:8], SipHashStep.KEY_LOW)
            for at in range(0, len(message), 8):
                await word(message[at : at + 8], SipHashStep.BLOCK)
            await word(bytes(7) + bytes([len(message)]), SipHashStep.LAST)
            wanted = int.from_bytes(siphash_2_4(key, message), "little")
            assert ctx.get(part.code) == wanted

    simulate(part, run)


def test_siphash():
    check_siphash(SipHash())


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("_rotated(v1, 17)", "_rotated(v1, 18)"),
        ("invert.eq(injects & last)", "invert.eq(injects)"),
        ("Const(_C0, 64)", "Const(_C1, 64)"),
        ("acts.eq(acts & (left", "acts.eq((left"),
        ("b ^ Mux(low, word, 0)", "b"),
    ],
)
def test_bugs_in_siphash_are_caught(right, wrong):
    with pytest.raises(AssertionError):
        check_siphash(names_with(siphash_module, right, wrong)["SipHash"]())


def test_reader():
    reader, choose = FrameReader(), random.Random(2)
    frames = [(choose.randbytes(choose.randrange(1, 30)), choose.random() < 0.3) for _ in range(60)]

    async def run(ctx):
        beats = [beat for frame in frames for beat in as_beats(4, *frame)]

        def show():
            offered = bool(beats)
            ctx.set(reader.i.valid, offered)
            if offered:
                for name, value in zip(("data", "keep", "last", "error"), beats[0], strict=True):
                    ctx.set(getattr(reader.i.payload, name), value)

        async def tick():
            taken = ctx.get(reader.i.valid) and ctx.get(reader.i.ready)
            await ctx.tick()
            if taken:
                beats.pop(0)
                show()

        show()
        for frame, error in frames:
            ctx.set(reader.set_sum, 1)
            ctx.set(reader.sum_value, 5)
            await tick()
            ctx.set(reader.set_sum, 0)
            total, count = 5, choose.randrange(0, 20)
            for n in range(count):
                pair = frame[2 * n : 2 * n + 2]
                assert ctx.get(reader.available)
                assert ctx.get(reader.pair) == int.from_bytes(pair, "little")
                assert (ctx.get(reader.some), ctx.get(reader.full)) == (
                    len(pair) > 0,
                    len(pair) == 2,
                )
                ctx.set(reader.take, 1)
                await tick()
                ctx.set(reader.take, 0)
                total += int.from_bytes(pair, "little")
                total = (total & 0xFFFF) + (total >> 16)
            await tick()
            found = ctx.get(reader.sum) + ctx.get(reader.carry)
            assert (found & 0xFFFF) + (found >> 16) == total
            ctx.set(reader.skip, 1)
            waited = 0
            while not ctx.get(reader.skipped):
                await tick()
                waited += 1
                assert waited < 10
            assert ctx.get(reader.error) == error
            await tick()
            ctx.set(reader.skip, 0)
        assert not beats

    simulate(reader, run)


def test_writer():
    writer, choose = FrameWriter(), random.Random(3)
    frames = [choose.randbytes(4 * choose.randrange(1, 8)) for _ in range(30)]

    async def run(ctx):
        found, part, left = [], b"", [*frames]
        at = 0
        for _ in range(4000):
            ready = choose.random() < 0.5
            ctx.set(writer.o.ready, ready)
            puts = bool(left) and choose.random() < 0.7
            ctx.set(writer.put, puts)
            if puts:
                ctx.set(writer.pair, int.from_bytes(left[0][at : at + 2], "little"))
                ctx.set(writer.last, at + 2 == len(left[0]))
            if ctx.get(writer.o.valid) and ready:
                assert ctx.get(writer.o.payload.keep) == 15
                assert not ctx.get(writer.o.payload.error)
                part += ctx.get(writer.o.payload.data).to_bytes(4, "little")
                if ctx.get(writer.o.payload.last):
                    found.append(part)
                    part = b""
            if puts and ctx.get(writer.ready):
                at += 2
                if at == len(left[0]):
                    left.pop(0)
                    at = 0
            await ctx.tick()
        assert found == frames

    simulate(writer, run)


@pytest.mark.parametrize("spacing_bits", [0, 3])
def test_sampler(spacing_bits):
    sampler = EntropySampler(spacing_bits=spacing_bits)

    async def run(ctx):
        shown, choose = [], random.Random(4)
        words = []
        for cycle in range(40 * 16 << spacing_bits):
            bit = choose.getrandbits(1)
            ctx.set(sampler.entropy, bit)
            shown.append(bit)
            ctx.set(sampler.take, 0)
            if ctx.get(sampler.fresh) and choose.random() < 0.9:
                words.append((cycle, ctx.get(sampler.samples)))
                ctx.set(sampler.take, 1)
            await ctx.tick()
        assert len(words) > 20
        # Each bit of the second one is what the source showed, at equal distances.
        cycle, word = words[1]
        bits = [word >> 15 - n & 1 for n in range(16)]
        spaced = [
            [shown[cycle - back - (n << spacing_bits)] for n in range(16)]
            for back in range(2, cycle + 1 - (15 << spacing_bits))
        ]
        assert bits in spaced
        assert len({word for _, word in words}) > 15

    simulate(sampler, run)


class Nothing:
    """Registers that nobody asks for."""

    def read(self, address):
        return 0

    def write(self, address, value):
        return True


def random_program(choose):
    """Return a program of all kinds of instructions, without loops, and its data."""
    p = Assembler([choose.getrandbits(16) for _ in range(64)])
    memory = (p.load, p.add, p.add_carry, p.subtract, p.subtract_carry, p.and_, p.or_, p.xor)
    for n in range(400):
        operand = choose.choice((choose.randrange(64), Mode.INDEXED, Mode.ADVANCING))
        kind = choose.randrange(10)
        if kind < 6:
            choose.choice(memory)(operand)
        elif kind == 6:
            p.store(operand)
        elif kind == 7:
            p.special(choose.choice((Special.SWAP, Special.HALVE)))
        elif kind == 8:
            p.index(choose.randrange(64))
        else:
            p.jump(f"over {n}", choose.choice(list(Condition)))
            p.load_constant(choose.getrandbits(16))
            p.label(f"over {n}")
        if n % 20 == 0:
            p.call("twice")
        # The present value of A is sent.
        p.put(Port.SEND)
    p.put(Port.SEND_LAST)
    p.label("end")
    p.get(Port.FRAME)
    p.jump("end")
    p.label("twice")
    p.call("once")
    p.add(0)
    p.return_()
    p.label("once")
    p.add(1)
    p.return_()
    return p.finish(), p.data


@pytest.mark.parametrize("seed", range(4))
def test_the_sequencer_does_what_its_twin_does(seed, monkeypatch):
    program, data = random_program(random.Random(seed))
    twin = Twin(program, data, Nothing())
    wanted: list[int] = []
    found: list[int] = []
    monkeypatch.setattr(twin, "_put", lambda port: wanted.append(twin._a))
    twin.run()
    top = Module()
    top.submodules.cpu = cpu = Sequencer(program=program, data=data)
    ready = Signal()
    top.d.comb += cpu.ready.eq(ready)
    choose = random.Random(seed)

    async def run(ctx):
        cycles = 0
        while len(found) < len(wanted):
            taken = choose.random() < 0.5
            ctx.set(ready, taken)
            if ctx.get(cpu.put) and taken:
                found.append(ctx.get(cpu.a))
            await ctx.tick()
            cycles += 1
            assert cycles < 10_000

    simulate(top, run)
    assert found == wanted


def test_the_assembler_refuses_what_cannot_be():
    p = Assembler([0])
    p.variable("a")
    with pytest.raises(ValueError, match="variable 'a'"):
        p.variable("a")
    p.label("b")
    with pytest.raises(ValueError, match="label 'b'"):
        p.label("b")
    with pytest.raises(ValueError, match="65536 is not a word"):
        p.constant(65536)
    p.jump("nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        p.finish()
    q = Assembler([])
    for _ in range(2049):
        q.load(0)
    with pytest.raises(ValueError, match="2049 instructions are more than 2048"):
        q.finish()
