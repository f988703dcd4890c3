"""The proofs of engines that are built with options: network ports, output registers."""

from tests.formal.catalogue_seams import NARROW
from tests.formal.sby import Proof, SoughtBug

__all__ = ["OPTIONS"]

REGISTER = {"ram_output_register": 1}
BOTH = {"ports": 2, **REGISTER}
TWO_JOBS = {**NARROW, "jobs": 2, "ports": 2}
"""A job of which the ports are those of another shows with two."""

LATER = tuple(
    proof
    for bus_bits in (512, 32)
    for proof in (
        Proof(
            name=f"merge, {bus_bits} bits, output register",
            harness="merge_memory:MergeMemoryHarness",
            depth=5,
            arguments={**NARROW, **REGISTER, "bus_bits": bus_bits},
            cover=16 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "what arrives does not wait for the slot memory",
                    14,
                    "engine/merge.py",
                    "blocks1, block_address1, fresh1, opcode1, arriving1 = found",
                    "blocks1, block_address1, fresh1, opcode1, _ = found",
                ),
                SoughtBug(
                    "the receive buffer is addressed as without its output register",
                    14,
                    "engine/merge.py",
                    "following = offset + (with_words | with_blocks)",
                    "following = offset",
                ),
                SoughtBug(
                    "words that are being written are read as they were",
                    14,
                    "engine/merge.py",
                    "held_words.eq(Mux(overtaken, written, self.read_words.data))",
                    "held_words.eq(self.read_words.data)",
                ),
                SoughtBug(
                    "words of another slot pass for those that are read",
                    14,
                    "engine/merge.py",
                    "& (self.write_words.address == self.read_words.address)",
                    "",
                ),
                SoughtBug(
                    "words are read when it is the transmit stage's turn",
                    14,
                    "engine/slot_memory.py",
                    "turns = (self.merge_words, self.send_words)",
                    "turns = (self.send_words, self.merge_words)",
                ),
                SoughtBug(
                    "idle although a block is to be written",
                    14,
                    "engine/merge.py",
                    "~(under_way | blocks2 | blocks3)",
                    "~(under_way | blocks2)",
                ),
                SoughtBug(
                    "the banks are told apart a cycle early",
                    14,
                    "engine/slot_memory.py",
                    "m.d.sync += parity_found.eq(parity_read)",
                    "m.d.comb += parity_found.eq(parity_read)",
                ),
            )
            if bus_bits == 512
            else (),
        ),
        Proof(
            name=f"distance, {bus_bits} bits, output register",
            harness="distance:DistanceHarness",
            depth=6,
            arguments={**NARROW, **REGISTER, "bus_bits": bus_bits},
            cover=28 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "blocks are sent before the look-ahead words",
                    24,
                    "engine/transmit.py",
                    "section.eq(0),",
                    "section.eq(2),",
                ),
            )
            if bus_bits == 512
            else (),
        ),
        Proof(
            name=f"sending, {bus_bits} bits, two ports, output register",
            harness="sending:SendingHarness",
            depth=7,
            arguments={**NARROW, **BOTH, "bus_bits": bus_bits},
            cover=20 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "the seal by the next frame's port",
                    16,
                    "engine/seal.py",
                    "Mux(sealing, sealed, output.o.payload.net_ports)",
                    "output.o.payload.net_ports",
                ),
                SoughtBug(
                    "a frame leaves by the port of the one before",
                    14,
                    "engine/transmit.py",
                    "m.d.sync += net_ports1.eq(order.peer.net_ports)",
                    "with m.If(last_issue):\n"
                    "                m.d.sync += net_ports1.eq(order.peer.net_ports)",
                ),
                SoughtBug(
                    "headers do not wait for the blocks",
                    14,
                    "engine/transmit.py",
                    "from_text1, from_words1, text1, unsent1, net_ports1, words1 = found",
                    "from_text1, from_words1, _, unsent1, net_ports1, words1 = found",
                ),
                SoughtBug(
                    "look-ahead words do not wait for the blocks",
                    14,
                    "engine/transmit.py",
                    "from_text1, from_words1, text1, unsent1, net_ports1, words1 = found",
                    "from_text1, from_words1, text1, unsent1, net_ports1, _ = found",
                ),
                SoughtBug(
                    "look-ahead words do not wait for their register",
                    14,
                    "engine/transmit.py",
                    "m.d.sync += words1.eq(self.read_words.data)",
                    "m.d.comb += words1.eq(self.read_words.data)",
                ),
                SoughtBug(
                    "too little room for what is in flight",
                    20,
                    "engine/transmit.py",
                    "margin = MARGIN + 2 * p.ram_output_register",
                    "margin = MARGIN - 4",
                ),
            )
            if bus_bits == 512
            else (),
        ),
    )
)

CAME = Proof(
    name="ports of frames that come",
    harness="stage_streams:ReceiveHarness",
    depth=6,
    arguments={"ports": 2},
    cover=14,
    bugs=(
        SoughtBug(
            "a frame comes by the port of the one before",
            16,
            "engine/receive.py",
            "m.d.sync += net_ports2.eq(beat1.net_ports)",
            "with m.If(ended2):\n                m.d.sync += net_ports2.eq(beat1.net_ports)",
        ),
    ),
)

ADMITTED = Proof(
    name="ports of frames that are admitted",
    harness="network_ports:AdmittedPortsHarness",
    depth=5,
    arguments=TWO_JOBS,
    cover=12,
    quick=True,
    bugs=(
        SoughtBug(
            "a parent is where the next frame comes from",
            10,
            "engine/admit.py",
            "self.parent_ports.eq(frame3.source.net_ports)",
            "self.parent_ports.eq(frame2.source.net_ports)",
        ),
        SoughtBug(
            "a worker is where the next frame comes from",
            10,
            "engine/admit.py",
            "self.write_worker.data.peer.eq(frame2.source)",
            "self.write_worker.data.peer.eq(frame1.source)",
        ),
    ),
)

ORDERED = Proof(
    name="ports of frames that leave",
    harness="network_ports:OrderedPortsHarness",
    depth=5,
    arguments=TWO_JOBS,
    cover=12,
    quick=True,
    bugs=(
        SoughtBug(
            "the group of the job before",
            12,
            "engine/tables.py",
            "[row.group.eq(0), row.parent.eq(-1)]",
            "row.parent.eq(-1)",
        ),
        SoughtBug(
            "the parent of the job before",
            12,
            "engine/tables.py",
            "[row.group.eq(0), row.parent.eq(-1)]",
            "row.group.eq(0)",
        ),
        SoughtBug(
            "only the latest worker's port",
            12,
            "engine/tables.py",
            "row.group.eq(row.group | self.write.data)",
            "row.group.eq(self.write.data)",
        ),
        SoughtBug(
            "a partial sum by the group's ports",
            12,
            "engine/replicate.py",
            "peer1.net_ports.eq(self.read_ports.data.parent)",
            "peer1.net_ports.eq(self.read_ports.data.group)",
        ),
        SoughtBug(
            "a worker that moves is sent its result where it was",
            12,
            "engine/tables.py",
            "send = entries.read_port(transparent_for=(write,))",
            "send = entries.read_port()",
        ),
        SoughtBug(
            "results to one worker by the group's ports",
            12,
            "engine/replicate.py",
            "with m.Elif(~frame1.answer & frame1.group):",
            "with m.Else():",
        ),
    ),
)

OPTIONS = (*LATER, CAME, ADMITTED, ORDERED)
