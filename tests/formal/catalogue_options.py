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
            depth=9,
            arguments={**NARROW, **REGISTER, "bus_bits": bus_bits},
            cover=26 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "what arrives does not wait for the slot memory",
                    18,
                    by="merge:arriving_does_not_wait",
                ),
                SoughtBug(
                    "the receive buffer is addressed as without its output register",
                    18,
                    by="merge:buffer_addressed_late",
                ),
                SoughtBug(
                    "words that are being written are read as they were",
                    18,
                    by="merge:words_read_as_they_were",
                ),
                SoughtBug(
                    "words of another slot pass for those that are read",
                    18,
                    by="merge:words_of_another_slot",
                ),
                SoughtBug(
                    "words are read when it is the transmit stage's turn",
                    18,
                    "engine/slot_memory.py",
                    "turns = (self.merge_words, self.send_words)",
                    "turns = (self.send_words, self.merge_words)",
                ),
                SoughtBug(
                    "idle although a block is to be written",
                    18,
                    by="merge:idle_too_early",
                ),
                SoughtBug(
                    "the banks are told apart a cycle early",
                    18,
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
            depth=9,
            arguments={**NARROW, **REGISTER, "bus_bits": bus_bits},
            cover=34 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "blocks are sent before the look-ahead words",
                    24,
                    by="transmit:blocks_before_words",
                ),
            )
            if bus_bits == 512
            else (),
        ),
        Proof(
            name=f"sending, {bus_bits} bits, two ports, output register",
            harness="sending:SendingHarness",
            depth=13,
            arguments={**NARROW, **BOTH, "bus_bits": bus_bits},
            cover=27 if bus_bits == 512 else 0,
            bugs=(
                SoughtBug(
                    "the seal by the next frame's port",
                    24,
                    "engine/seal.py",
                    "Mux(sealing, sealed, output.o.payload.net_ports)",
                    "output.o.payload.net_ports",
                ),
                SoughtBug(
                    "a frame leaves by the port of the one before",
                    20,
                    by="transmit:by_the_port_of_the_frame_before",
                ),
                SoughtBug(
                    "headers do not wait for the blocks",
                    20,
                    by="transmit:headers_do_not_wait",
                ),
                SoughtBug(
                    "look-ahead words do not wait for the blocks",
                    20,
                    by="transmit:words_do_not_wait",
                ),
                SoughtBug(
                    "look-ahead words do not wait for their register",
                    20,
                    by="transmit:words_do_not_wait_for_their_register",
                ),
                SoughtBug(
                    "too little room for what is in flight",
                    24,
                    "engine/seal.py",
                    "Queue(beat_shape, depth=DEPTH,",
                    "Queue(beat_shape, depth=DEPTH // 4,",
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
            by="receive:by_the_port_of_the_frame_before",
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
            by="admit:a_parent_where_the_next_frame_comes_from",
        ),
        SoughtBug(
            "a worker is where the next frame comes from",
            10,
            by="admit:a_worker_where_the_next_frame_comes_from",
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
