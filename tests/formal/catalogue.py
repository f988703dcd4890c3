"""All proofs. `docs/formal.md` says what they mean together."""

from tests.formal.catalogue_end_to_end import END_TO_END
from tests.formal.catalogue_numbers import NUMBERS
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
            "signed_less.eq(self.less ^ differs)",
            "signed_less.eq(self.less)",
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
        depth=8,
        arguments=NARROW,
        cover=24,
        quick=True,
        bugs=(
            SoughtBug(
                "fresh for all lanes at once",
                16,
                by="merge:fresh_for_all_lanes_at_once",
            ),
            SoughtBug(
                "off by one in look-ahead",
                16,
                by="merge:look_ahead_off_by_one",
            ),
            SoughtBug(
                "a pause before the blocks: they would be sent before they are written",
                16,
                by="merge:pause_before_the_blocks",
            ),
            SoughtBug(
                "starts at any phase",
                16,
                by="merge:starts_at_any_phase",
            ),
            SoughtBug(
                "written a cycle late: read before it is written",
                16,
                by="merge:words_written_a_cycle_late",
            ),
            SoughtBug(
                "partial sums go to the beats of other words",
                20,
                "engine/merge_blocks.py",
                "Mux(partial, Cat(steps[0], steps[2:]), walk.beat)",
                "walk.beat",
            ),
            SoughtBug(
                "a word of the upper plane meets another one's of the lower plane",
                20,
                "engine/merge_blocks.py",
                "PLANES_APART = 2",
                "PLANES_APART = 1",
            ),
            SoughtBug(
                "aligned below the exponent of the round before",
                16,
                "engine/merge_blocks.py",
                "self.read_exponents.address.eq(Cat(beat, ~version, slot))",
                "self.read_exponents.address.eq(Cat(beat, version, slot))",
            ),
            SoughtBug(
                "the first of a round is added to what is there",
                20,
                "engine/merge_blocks.py",
                "with m.If(fresh[ALIGN_CYCLES - 1]):",
                "with m.If(0):",
            ),
        ),
    ),
    Proof(
        name="merge, 512 bits, as built",
        harness="merge_memory:MergeMemoryHarness",
        depth=8,
    ),
    Proof(
        name="merge, 512 bits, last word of the beat",
        harness="merge_memory:MergeMemoryHarness",
        depth=8,
        arguments={"element": 15, **NARROW},
    ),
    Proof(
        name="merge, 32 bits, as built",
        harness="merge_memory:MergeMemoryHarness",
        depth=9,
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
                by="admit:the_last_contribution_does_not_complete",
            ),
            SoughtBug(
                "one slot too many for a job",
                14,
                by="admit:one_slot_too_many",
            ),
            SoughtBug(
                "added to the round before last",
                20,
                by="admit:added_to_the_round_before_last",
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
        depth=12,
        arguments=NARROW,
        cover=26,
        bugs=(
            SoughtBug(
                "the other version",
                18,
                by="transmit:the_other_version",
            ),
            SoughtBug(
                "starts at any phase",
                18,
                by="transmit:starts_at_any_phase",
            ),
            SoughtBug(
                "banks exchanged",
                18,
                "engine/slot_memory.py",
                "Mux(self.phase == parity, merge.address[1:], send.address[1:])",
                "Mux(self.phase != parity, merge.address[1:], send.address[1:])",
            ),
            SoughtBug(
                "too little room behind the memories",
                24,
                "engine/seal.py",
                "Queue(beat_shape, depth=DEPTH,",
                "Queue(beat_shape, depth=DEPTH // 4,",
            ),
            SoughtBug(
                "a frame that is cut off goes on",
                24,
                by="transmit:goes_on_after_a_cut",
            ),
            SoughtBug(
                "what has begun is not ended",
                24,
                by="transmit:does_not_end_what_has_begun",
            ),
            SoughtBug(
                "rounded by the order that follows",
                24,
                "engine/transmit.py",
                "delayed(m, value, 1 + p.ram_output_register) for value in known",
                "value for value in known",
            ),
            SoughtBug(
                "the lower plane twice",
                24,
                "engine/transmit.py",
                "order.partial, walk.second, order.rounded)",
                "order.partial, walk.second & 0, order.rounded)",
            ),
            SoughtBug(
                "another lane's absences",
                20,
                "engine/transmit.py",
                "order.in_all.bit_select(walk.lane, 1)",
                "order.in_all[0]",
            ),
        ),
    ),
    Proof(name="sending, 512 bits, as built", harness="sending:SendingHarness", depth=12),
    Proof(
        name="sending, 32 bits, as built",
        harness="sending:SendingHarness",
        depth=12,
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
                by="receive:one_beat_has_a_summary",
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
                "lib/packet_fifo.py",
                "self.o.valid.eq(next_head != start)",
                "self.o.valid.eq(next_head != tail)",
            ),
            SoughtBug(
                "a full FIFO is written over",
                16,
                "lib/packet_fifo.py",
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
                "lib/packet_fifo.py",
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
                "lib/packet_fifo.py",
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
    *NUMBERS,
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
