"""All proofs. `docs/formal.md` says what they mean together."""

from tests.formal.catalogue_end_to_end import END_TO_END
from tests.formal.catalogue_options import OPTIONS
from tests.formal.catalogue_seams import (
    BOUNDS,
    COMMANDS,
    COUNTING,
    DISPATCH,
    DISTANCE,
    NARROW,
    QUEUES,
)
from tests.formal.sby import Proof, SoughtBug

__all__ = ["PROOFS"]

LANE_ALU = Proof(
    name="lane alu",
    harness="lane_alu:LaneAluHarness",
    depth=2,
    cover=3,
    quick=True,
    bugs=(
        SoughtBug(
            "unlike signs forgotten",
            2,
            "engine/lane_alu.py",
            "signed_less.eq(unsigned_less ^ differs)",
            "signed_less.eq(unsigned_less)",
        ),
        SoughtBug(
            "a wrapped sum's residue is not corrected",
            2,
            "engine/lane_alu.py",
            "adds & ~self.fresh & (total[32] ^ differs)",
            "adds & ~self.fresh & total[32]",
        ),
    ),
)

MERGE = (
    Proof(
        name="merge, 512 bits, narrow",
        harness="merge_memory:MergeMemoryHarness",
        depth=5,
        arguments=NARROW,
        cover=16,
        quick=True,
        bugs=(
            SoughtBug(
                "fresh for all lanes at once",
                12,
                "engine/merge.py",
                "fresh1.eq(operation.fresh.bit_select(walk.lane, 1))",
                "fresh1.eq(operation.fresh.any())",
            ),
            SoughtBug(
                "off by one in look-ahead",
                12,
                "engine/merge.py",
                "Mux(opening1 | (arriving < held), arriving, held)",
                "Mux(opening1 | (arriving < held), arriving, (held + 1)[:32])",
            ),
            SoughtBug(
                "a pause before the blocks: they would be sent before they are written",
                12,
                "engine/merge.py",
                "m.d.comb += [with_blocks.eq(1), walk.step.eq(1)]",
                "m.d.comb += [with_blocks.eq(word_beat[0]), walk.step.eq(word_beat[0])]\n"
                "                m.d.sync += word_beat.eq(walk.any & ~walk.last)",
            ),
            SoughtBug(
                "starts at any phase",
                12,
                "engine/merge.py",
                'may_take.eq(self.phase & (fsm.ongoing("TAKE") | finishing))',
                'may_take.eq(fsm.ongoing("TAKE") | finishing)',
            ),
            SoughtBug(
                "written a cycle late: read before it is written",
                12,
                "engine/merge.py",
                "m.d.comb += [\n            self.write_words.enable.eq(words1),",
                "m.d.sync += [\n            self.write_words.enable.eq(words1),",
            ),
        ),
    ),
    Proof(
        name="merge, 512 bits, as built",
        harness="merge_memory:MergeMemoryHarness",
        depth=5,
    ),
    Proof(
        name="merge, 512 bits, last word of the beat",
        harness="merge_memory:MergeMemoryHarness",
        depth=5,
        arguments={"element": 15, **NARROW},
    ),
    Proof(
        name="merge, 32 bits, as built",
        harness="merge_memory:MergeMemoryHarness",
        depth=5,
        arguments={"bus_bits": 32},
    ),
)

ADMISSION = (
    Proof(
        name="admission, 2 workers",
        harness="admission:AdmissionHarness",
        depth=6,
        arguments={"workers": 2, "jobs": 2},
        cover=16,
        bugs=(
            SoughtBug(
                "double count",
                14,
                "engine/verdict.py",
                "with m.Elif(current & ~position.own_seen):",
                "with m.Elif(current & ~position.full):",
            ),
            SoughtBug(
                "state read before it is written",
                14,
                "engine/slot_state.py",
                "Mux(was_written, written.as_value(), kept.state.as_value())",
                "kept.state.as_value()",
            ),
            SoughtBug(
                "the last contribution does not complete",
                14,
                "engine/admit.py",
                "one_left3.eq(state2.left == 1)",
                "one_left3.eq(state2.left == 2)",
            ),
            SoughtBug(
                "one slot too many for a job",
                14,
                "engine/admit.py",
                "checks2.slot.eq(header1.slot < job1.count)",
                "checks2.slot.eq(header1.slot <= job1.count)",
            ),
            SoughtBug(
                "added to the round before last",
                20,
                "engine/admit.py",
                "~Mux(overwrites, 0, this.present)",
                "~this.present",
            ),
            SoughtBug(
                "parent's result taken twice",
                14,
                "engine/verdict.py",
                "with m.If(current & position.waiting):",
                "with m.If(current & position.full):",
            ),
        ),
    ),
    Proof(
        name="admission, narrow",
        harness="admission:AdmissionHarness",
        depth=6,
        arguments=NARROW,
    ),
)

SENDING = (
    Proof(
        name="sending, 512 bits, narrow",
        harness="sending:SendingHarness",
        depth=7,
        arguments=NARROW,
        cover=20,
        bugs=(
            SoughtBug(
                "the other version",
                12,
                "engine/transmit.py",
                "version = order.header.round[0]",
                "version = ~order.header.round[0]",
            ),
            SoughtBug(
                "starts at any phase",
                12,
                "engine/transmit.py",
                "taking.eq(~self.phase & (~active | last_issue))",
                "taking.eq(~active | last_issue)",
            ),
            SoughtBug(
                "banks exchanged",
                12,
                "engine/slot_memory.py",
                "Mux(self.phase == parity, merge.address[1:], send.address[1:])",
                "Mux(self.phase != parity, merge.address[1:], send.address[1:])",
            ),
            SoughtBug(
                "too little room behind the memories",
                14,
                "engine/seal.py",
                "beat_shape, depth=DEPTH",
                "beat_shape, depth=DEPTH // 4",
            ),
            SoughtBug(
                "a frame that is cut off goes on",
                14,
                "engine/transmit.py",
                "drops.eq(dropping | unsent2)",
                "drops.eq(unsent2)",
            ),
            SoughtBug(
                "what has begun is not ended",
                14,
                "engine/transmit.py",
                "(~drops | (begun & ~dropping))",
                "~drops",
            ),
        ),
    ),
    Proof(name="sending, 512 bits, as built", harness="sending:SendingHarness", depth=7),
    Proof(
        name="sending, 32 bits, as built",
        harness="sending:SendingHarness",
        depth=7,
        arguments={"bus_bits": 32},
    ),
)

STREAMS = (
    Proof(
        name="stream of receive",
        harness="stage_streams:ReceiveHarness",
        depth=6,
        cover=14,
        quick=True,
        bugs=(
            SoughtBug(
                "valid falls when another frame comes",
                16,
                "lib/queue.py",
                "self.o.valid.eq(fifo.r_rdy)",
                "self.o.valid.eq(fifo.r_rdy & ~fifo.w_en)",
            ),
            SoughtBug(
                "frames of one beat have summaries",
                12,
                "engine/receive.py",
                "flags3.holds_room.eq(beats2 > header_beats)",
                "flags3.holds_room.eq(beats2 >= header_beats)",
            ),
        ),
    ),
    Proof(
        name="rings of the delivery queue",
        harness="ring_pointers:RingsHarness",
        depth=3,
        cover=24,
        bugs=(
            SoughtBug(
                "a full ring takes another entry",
                20,
                "engine/rings.py",
                "self.full.eq(filled.bit_select(self.push_ring, 1)),",
                "self.full.eq(0),",
            ),
            SoughtBug(
                "a ring is taken for empty when an entry comes as the last one leaves",
                16,
                "engine/rings.py",
                "with m.If(enters):",
                "with m.If(enters & ~(leaves & ~self.remains)):",
            ),
            SoughtBug(
                "a ring is full although one has left it as the last place was taken",
                16,
                "engine/rings.py",
                "with m.If(leaves):",
                "with m.If(leaves & ~enters):",
            ),
            SoughtBug(
                "two entries are taken for one",
                16,
                "engine/rings.py",
                "several[n].eq(self.occupied[n])",
                "several[n].eq(several[n])",
            ),
        ),
    ),
)

REGISTER_PORT = Proof(
    name="register port",
    harness="register_port:RegisterPortHarness",
    depth=13,
    cover=20,
    quick=True,
    bugs=(
        SoughtBug(
            "a refused write shows its address",
            12,
            "node/axi_lite.py",
            "with m.If(acts):\n"
            "                    m.d.comb += [self.address.eq(aw_address), self.write.eq(1)]",
            "m.d.comb += [self.address.eq(aw_address), self.write.eq(acts)]",
        ),
        SoughtBug(
            "an answer does not wait",
            14,
            "node/axi_lite.py",
            "with m.If(channel.ready):",
            "with m.If(channel.ready | channel.valid):",
        ),
        SoughtBug(
            "a refusal is answered OKAY",
            12,
            "node/axi_lite.py",
            "done.eq(acts & ~self.refused)",
            "done.eq(acts)",
        ),
        SoughtBug(
            "a write before its data",
            12,
            "node/axi_lite.py",
            "writes.eq(aw_held & w_held & ~self.b.valid)",
            "writes.eq(aw_held & ~self.b.valid)",
        ),
    ),
)

ROUNDS = (
    Proof(
        name="rounds, 2 workers",
        harness="rounds:RoundsHarness",
        depth=2,
        arguments={"workers": 2},
        cover=10,
        quick=True,
        bugs=(
            SoughtBug("one version", 12, arguments={"without": "versions"}),
            SoughtBug("any round of the same version", 12, arguments={"without": "exact round"}),
            SoughtBug("header made when sent", 12, arguments={"without": "own header"}),
        ),
    ),
    Proof(
        name="rounds, 3 workers",
        harness="rounds:RoundsHarness",
        depth=2,
        arguments={"workers": 3},
    ),
    # The guard that is there for depth only: workers that keep the rules never meet it.
    Proof(
        name="rounds, without the guard against premature rounds",
        harness="rounds:RoundsHarness",
        depth=2,
        arguments={"workers": 2, "without": "full before next"},
    ),
)

NODE = (
    Proof(
        name="cut by reset",
        harness="node_streams:CutHarness",
        depth=2,
        cover=4,
        bugs=(
            SoughtBug(
                "every frame is one that a reset has cut off",
                4,
                "lib/frame_boundary.py",
                "self.cut.eq(first_cycle & tracker.inside),",
                "self.cut.eq(tracker.inside),",
            ),
        ),
    ),
    Proof(
        name="stream of ARP answers",
        harness="node_streams:ArpHarness",
        depth=3,
        cover=20,
        bugs=(
            SoughtBug(
                "the next answer begins early",
                24,
                "node/arp.py",
                "waiting.o.ready.eq(self.o.ready & last)",
                "waiting.o.ready.eq(self.o.ready)",
            ),
        ),
    ),
    Proof(
        name="stream of echo replies",
        harness="node_streams:EchoHarness",
        depth=3,
        cover=24,
        bugs=(
            SoughtBug(
                "beats are lost while the network waits",
                24,
                "node/echo.py",
                "held.ready.eq(verdicts.o.valid & (self.o.ready | ~head.good))",
                "held.ready.eq(verdicts.o.valid)",
            ),
        ),
    ),
    Proof(
        name="stream to the network",
        harness="node_streams:EgressHarness",
        depth=3,
        cover=8,
        bugs=(
            SoughtBug(
                "frames cut each other off",
                8,
                "node/egress.py",
                "Mux(in_frame, latest, Mux(first_goes, 0, chosen))",
                "Mux(first_goes, 0, chosen)",
            ),
            SoughtBug(
                "the others do not wait for the first",
                8,
                "node/egress.py",
                "self.i[0].valid & (owes | ~",
                "self.i[0].valid & (~",
            ),
        ),
    ),
    Proof(
        name="stream to the host",
        harness="node_streams:PacketFifoHarness",
        depth=3,
        arguments={"lossy": True},
        cover=10,
        bugs=(
            SoughtBug(
                "frames come out before they are kept",
                10,
                "node/packet_fifo.py",
                "self.o.valid.eq(next_head != start)",
                "self.o.valid.eq(next_head != tail)",
            ),
            SoughtBug(
                "a full FIFO is written over",
                16,
                "node/packet_fifo.py",
                "gives_up.eq(full)",
                "gives_up.eq(0)",
            ),
        ),
    ),
    Proof(
        name="stream from the host",
        harness="node_streams:PacketFifoHarness",
        depth=3,
        arguments={"lossy": False},
        cover=10,
        bugs=(
            SoughtBug(
                "a full FIFO takes more",
                16,
                "node/packet_fifo.py",
                "self.i.ready.eq(~full | lost)",
                "self.i.ready.eq(1)",
            ),
        ),
    ),
    Proof(
        name="stream to the shell",
        harness="node_streams:PacketFifoHarness",
        depth=3,
        arguments={"lossy": False, "late_ready": True},
        cover=10,
        bugs=(
            SoughtBug(
                "a beat that leaves is looked at as if it stayed",
                12,
                "node/packet_fifo.py",
                "(leaves & goes_on) | (~leaves & has_one)",
                "has_one",
            ),
        ),
    ),
)

MEMORIES = tuple(
    Proof(
        name=f"watched memory, {'' if transparent else 'not '}transparent",
        harness="memory_model:MemoryModelHarness",
        depth=2,
        arguments={"transparent": transparent},
        cover=4,
    )
    for transparent in (False, True)
)

PROOFS = (
    LANE_ALU,
    *COMMANDS,
    *DISPATCH,
    *DISTANCE,
    *QUEUES,
    *COUNTING,
    *BOUNDS,
    *MERGE,
    *ADMISSION,
    *SENDING,
    *STREAMS,
    *NODE,
    REGISTER_PORT,
    *ROUNDS,
    *MEMORIES,
    *OPTIONS,
    *END_TO_END,
)
