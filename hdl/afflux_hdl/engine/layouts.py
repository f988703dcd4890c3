"""Payload layouts of the streams between the engine's stages.

The header's layout derives from `wire.FIELDS`; the others are private to the engine.
"""

from enum import IntEnum

from amaranth.lib import data, enum

from afflux_hdl.contract import registers, wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.packet_stream import Peer, UdpFrame

__all__ = [
    "FORMS",
    "REPLY_WORDS",
    "AffluxFrame",
    "Cause",
    "Delivery",
    "Dispatch",
    "FrameSummary",
    "Header",
    "JobEntry",
    "JobPorts",
    "OperationKind",
    "PartialDtype",
    "Reply",
    "Route",
    "SlotOperation",
    "WorkerAddress",
    "WorkerEntry",
]

GENERATION_BITS = 8
"""Bits of a job's generation: enough to tell the descriptors of the few frames in flight apart."""


class Cause(enum.Enum, shape=5):  # type: ignore[call-arg]
    """The outcome of a frame: the number of its counter in `registers.FRAME_COUNTERS`."""

    locals().update({counter.name.upper(): n for n, counter in enumerate(registers.FRAME_COUNTERS)})


def _header_members() -> dict[str, int]:
    members: dict[str, int] = {}
    for field in wire.FIELDS:
        if field.name == "version_type":
            members |= {"type": 4, "version": 4}
        elif field.name == "opcode_dtype":
            members |= {"dtype": 4, "opcode": 4}
        else:
            members[field.name] = 8 * field.size
    return members


Header = data.StructLayout(_header_members())
"""The Afflux header, 22 bytes, as on the wire."""


class PartialDtype(IntEnum):
    """The dtypes of partial sums that an engine sends and takes.

    The lower two bits are those of the numbers' own dtype.
    """

    FLOAT32 = 13
    FLOAT16 = 10
    BFLOAT16 = 11


AffluxFrame = data.StructLayout({**UdpFrame.members, "afflux": Header})
"""All headers of a frame, 64 bytes, as on the wire."""


FORMS = {"in_all": wire.LANES_MAX, "partial": 1, "rounded": 1}
"""Members of what is sent, for its blocks' words: `in_all`, of the slot's version, for -0;
`partial`: they are sent as partial sums; `rounded`: they are the parent's."""


REPLY_WORDS = 8
"""Words of a short answer that are not always 0."""


class FrameSummary(data.StructLayout):
    """All that later stages need of a frame except its look-ahead words and blocks.

    Members:
        good: The frame has passed all checks of the receive stage.
        refused_version: The frame is a JOIN of another protocol version, in good order otherwise.
        checksum: The frame has a UDP checksum; a right one, if one of the two above is set.
        from_parent: The frame came to a parent port.
        job: Number of its job; of the port's job, if it came from a parent.
        job_built: The engine was built with a job of this number.
        header: The Afflux header.
        source: The sender's addresses.
        start: Offset of the look-ahead words in the receive buffer, in beats.
        end: Offset after the frame.
        blocks: Number of blocks.
        partial: They are partial sums.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "good": 1,
                "refused_version": 1,
                "checksum": 1,
                "from_parent": 1,
                "job": parameters.job_bits,
                "job_built": 1,
                "header": Header,
                "source": Peer(parameters.ports),
                "start": parameters.offset_bits,
                "end": parameters.offset_bits,
                "blocks": 5,
                "partial": 1,
            }
        )


class JobEntry(data.StructLayout):
    """One row of the job table.

    Members:
        enabled: The job exists.
        key: Its key.
        workers: N.
        lane_mask: One bit for each lane below F.
        lanes: F.
        base: First slot in the pool.
        count: Number of slots.
        credit: Credit that workers are given when they join.
        group: Results go to a multicast group.
        parent: The job has a parent.
        moves: Workers may move while the job runs.
        started: A contribution has been accepted.
        generation: Advances with each create and destroy.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "enabled": 1,
                "key": 64,
                "workers": parameters.count_bits,
                "lanes": 5,
                "lane_mask": wire.LANES_MAX,
                "base": parameters.slot_bits,
                "count": parameters.slot_bits + 1,
                "credit": 16,
                "group": 1,
                "parent": 1,
                "moves": 1,
                "started": 1,
                "generation": GENERATION_BITS,
            }
        )


Route = data.StructLayout(
    {
        "group": data.StructLayout({"address": 32, "port": 16, "key": 64}),
        "parent": Peer(),
        "parent_job": 8,
        "parent_worker": 8,
        "parent_key": 64,
    }
)
"""One row of the route table: where a job's results and partial sums go, other than to its workers.

Members:
    group: Multicast group, and the key of the results to it.
    parent: Addresses of the parent.
    parent_job, parent_worker, parent_key: The job's number at the parent, its worker number there,
        and its key.
"""


class WorkerEntry(data.StructLayout):
    """One row of the worker table.

    Members:
        joined: The worker has joined.
        peer: From where.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__({"joined": 1, "peer": Peer(parameters.ports)})


class JobPorts(data.StructLayout):
    """One row of the port table, which engines with several network ports have.

    Members:
        group: Those by which a worker of the job has joined.
        parent: The one by which the parent has confirmed the job's JOIN; until then all.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__({"group": parameters.ports, "parent": parameters.ports})


class WorkerAddress(data.StructLayout):
    """Address of a row of the worker table.

    Members:
        worker: Number of the worker.
        job: Number of its job.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__({"worker": parameters.worker_bits, "job": parameters.job_bits})


class Delivery(data.StructLayout):
    """A result to be sent, as it was when its round was complete or its replay was ordered.

    The slot may go on while this is queued: nothing of the slot's state is looked up again, except
    to discard the delivery.

    Members:
        fence: There is nothing to send: everything of the job that is queued is discarded. The
            job's slots will be `header.operation` from `slot` on.
        join: A JOIN to the job's parent, whose words are 0.
        up: Send to the job's parent: a partial sum, or a JOIN.
        everyone: Send to all workers; otherwise to `worker` only. Also set for a partial sum that
            goes up for the first time.
        worker: Receiver.
        job: Number of the job.
        generation: The delivery is discarded if the job has another generation by then.
        slot: Slot number in the pool.
        header: Afflux header, except for the worker.
        in_all, partial, rounded: As in `FORMS`.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "fence": 1,
                "join": 1,
                "up": 1,
                "everyone": 1,
                "worker": parameters.worker_bits,
                "job": parameters.job_bits,
                "generation": GENERATION_BITS,
                "slot": parameters.slot_bits,
                "header": Header,
                **FORMS,
            }
        )


class Dispatch(data.StructLayout):
    """One frame of a delivery, or a short answer, whose turn it is.

    Members:
        answer: The next of the short answers, which wait in a queue of their own; all else is of
            no use then.
        last: The delivery's last frame.
        group: Send to the job's multicast group.
        blocks: Length of its blocks, in units of 256 bytes: their number, but of partial sums.
        join, up, worker, job, generation, slot, header, in_all, partial, rounded: As in Delivery.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "answer": 1,
                "last": 1,
                "group": 1,
                "blocks": parameters.units_bits,
                "join": 1,
                "up": 1,
                "worker": parameters.worker_bits,
                "job": parameters.job_bits,
                "generation": GENERATION_BITS,
                "slot": parameters.slot_bits,
                "header": Header,
                **FORMS,
            }
        )


class OperationKind(enum.Enum, shape=2):  # type: ignore[call-arg]
    """The merge stage's action on a frame."""

    RELEASE = 0
    """Only give its space in the receive buffer back."""
    MERGE = 1
    """Merge it into its slot; deliver the result if that completes the round."""
    REPLAY = 2
    """Deliver a result again."""
    ORDER = 3
    """Deliver an order of control: it occupies nothing of the receive buffer."""


class SlotOperation(data.StructLayout):
    """The admit stage's decision about a frame. The merge stage carries it out, in order.

    Members:
        kind: The action.
        start, end: As in FrameSummary.
        present: Lanes whose blocks the frame carries.
        fresh: Those of them whose block is the lane's first of the round: it overwrites.
        opening: This is the round's first contribution: its look-ahead words overwrite.
        opcode: The frame's opcode.
        version: Version of the slot.
        complete: This contribution completes the round: deliver its result.
        delivery: The delivery.
        partial: The frame carries partial sums.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "kind": OperationKind,
                "start": parameters.offset_bits,
                "end": parameters.offset_bits,
                "present": wire.LANES_MAX,
                "fresh": wire.LANES_MAX,
                "opening": 1,
                "opcode": 2,
                "version": 1,
                "complete": 1,
                "delivery": Delivery(parameters),
                "partial": 1,
            }
        )


class Reply(data.StructLayout):
    """A short answer.

    Members:
        peer: Receiver.
        header: Afflux header.
        words: Its first words; the others are 0.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(
            {
                "peer": Peer(parameters.ports),
                "header": Header,
                "words": data.ArrayLayout(32, REPLY_WORDS),
            }
        )
