"""The contracts between the engine's parts, and the axioms: what they all rest on."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.wiring import PureInterface

from afflux_hdl.engine.delivery_queue import REPLIES
from afflux_hdl.engine.engine import OPERATIONS
from afflux_hdl.engine.layouts import OperationKind
from afflux_hdl.engine.receive import PARENT_TYPES, SUMMARY_DEPTH, WORKER_TYPES
from tests.formal.contracts import Axiom, Contract, Need

__all__ = [
    "AXI_MASTER",
    "CAME_BY_PORT",
    "CONTROL_ORDERS",
    "CUT",
    "DELIVERY",
    "FRAME_LENGTH",
    "JOBS",
    "JOBS_STAY",
    "KEPT",
    "LOCAL_STAYS",
    "OPERATION",
    "ORDER",
    "ORDER_AGE",
    "PACKET_LIFE",
    "PARENTS_ROUNDS",
    "PHASE",
    "PORTS_OF_FRAMES",
    "QUEUE",
    "REPLY",
    "RINGS",
    "RINGS_MADE",
    "STREAM",
    "SUMMARY",
    "WORKERS_ROUNDS",
    "at_most",
    "tag",
]

Clauses = Iterator[tuple[str, Value]]

LIFETIME = (1 << 31) - 8
"""Rounds that a worker may make while one of its packets is in the network."""


def at_most(round_: Value, other: Value) -> Value:
    """In serial arithmetic, within a packet's life (RFC 1982)."""
    return (other - round_)[:32] < LIFETIME


def _queue(
    m: Module,
    queue: PureInterface,
    enters: Value,
    waits: Value,
    ahead: Value,
    content: Value,
    *,
    depth: int,
    buffered: bool,
) -> Clauses:
    """State it of a chosen payload, which `waits` behind as many as `ahead`."""
    inside, idle = Signal(range(depth + 1)), Signal(2)
    leaves = queue.o.valid & queue.o.ready
    m.d.sync += inside.eq(inside + enters - leaves)
    with m.If(queue.o.valid | (queue.level == 0)):
        m.d.sync += idle.eq(0)
    with m.Else():
        m.d.sync += idle.eq(idle + 1)
    mine = waits & (ahead == 0) & queue.o.valid
    yield "comes out unchanged", ~mine | (Value.cast(queue.o.payload) == content)
    yield "is among those inside", ~waits | (ahead < queue.level)
    yield "the level counts those inside", queue.level == inside
    yield (
        "takes what enters while there is room",
        ~queue.i.valid | enters | (queue.level >= depth - buffered),
    )
    yield "the next one comes out soon", idle <= 1 + buffered


QUEUE = Contract(
    "queue",
    "a queue's input → its output",
    "what goes in comes out, in order, unchanged, once; `level` is how many are inside",
    _queue,
)


def _kept(depth: int, buffered: bool) -> Need:
    return Need(QUEUE, (("buffered", buffered), ("depth", depth)))


def _summary(m: Module, stream: PureInterface) -> Clauses:
    """State it of what the queue of summaries is given, or gives."""
    del m
    summary = stream.payload
    ready = stream.valid & summary.good
    for from_parent, types in ((False, WORKER_TYPES), (True, PARENT_TYPES)):
        known = Cat(summary.header.type == each for each in types).any()
        yield (
            f"known types from {'parents' if from_parent else 'workers'}",
            ~ready | (summary.from_parent != from_parent) | known,
        )


SUMMARY = Contract(
    "summary",
    "receive → admit",
    "a good frame has a type that its port takes",
    _summary,
    (_kept(SUMMARY_DEPTH, True),),
)


def _came_by_port(m: Module, valid: Value, net_ports: Value, *, of: str) -> Clauses:
    del m, of
    yield "by one at least", ~valid | net_ports.any()


CAME_BY_PORT = Contract(
    "network port",
    "receive → admit → worker table, port table",
    "a frame has come by a network port, and so a worker has joined by one",
    _came_by_port,
    (_kept(SUMMARY_DEPTH, True),),
)


def _ports_of_frames(m: Module, stream: PureInterface) -> Clauses:
    """State it of a stream that is always ready."""
    inside, before = Signal(), Signal.like(stream.payload.net_ports)
    with m.If(stream.valid):
        m.d.sync += [inside.eq(~stream.payload.last), before.eq(stream.payload.net_ports)]
    yield "by one at least", ~stream.valid | stream.payload.net_ports.any()
    yield "by the same", ~stream.valid | ~inside | (stream.payload.net_ports == before)


PORTS_OF_FRAMES = Axiom(
    "ports of frames",
    "docs/node.md, Several network ports",
    "`net_ports` is the same in all beats of a frame that comes, and names a port",
    _ports_of_frames,
)


def _operation(m: Module, stream: PureInterface, *, lanes: int) -> Clauses:
    del m
    operation = stream.payload
    sent = operation.delivery.header.present
    merges = stream.valid & (operation.kind == OperationKind.MERGE)
    delivers = stream.valid & (operation.kind != OperationKind.RELEASE)
    orders = stream.valid & (operation.kind == OperationKind.ORDER)
    yield "merges lanes that are built", ~merges | ((operation.present >> lanes) == 0)
    yield "sends lanes that are built", ~delivers | ((sent >> lanes) == 0)
    yield "control sends no blocks", ~orders | (sent == 0)
    yield (
        "merges into the round's version",
        (~merges | (operation.version == operation.delivery.header.round[0])),
    )
    yield "sends what it merges", ~merges | ((operation.present & ~sent) == 0)


OPERATION = Contract(
    "operation",
    "admit, control → merge",
    "present bits only of lanes that are built; a MERGE is into the version of its round",
    _operation,
    (_kept(OPERATIONS, True),),
)


def _delivery(m: Module, stream: PureInterface, phase: Value, *, lanes: int) -> Clauses:
    del m
    yield (
        "blocks of lanes that are built",
        (~stream.valid | ((stream.payload.header.present >> lanes) == 0)),
    )
    yield "at phase 1", ~stream.valid | phase


DELIVERY = Contract(
    "delivery",
    "merge → delivery queue",
    "present bits only of lanes that are built; at phase 1",
    _delivery,
)


def _entry(
    m: Module,
    valid: Value,
    word: data.View,
    age: Value,
    chosen: data.View,
    *,
    memory: str,
    lanes: int,
    age_least: int,
) -> Clauses:
    """State it of a word that is written, or of one that is read, as it was when it was written."""
    del m, memory
    header = word.header
    tagged = valid & tag(header)
    if "reply" in word.shape().members:
        tagged = tagged & ~word.reply
    yield "blocks of lanes that are built", ~valid | ((header.present >> lanes) == 0)
    yield "as many as it says", ~valid | (word.blocks == _units(word))
    yield "the chosen one is no younger", ~tagged | (age >= age_least)
    same = (word.slot == chosen.slot) & (header.present == chosen.header.present)
    yield "the chosen one is the same", (~tagged | (same & (header.round == chosen.header.round)))


def _units(frame: data.View) -> Value:
    """Return the length of a frame's blocks: those of partial sums are twice as long."""
    return Mux(frame.partial, sum(frame.header.present) << 1, sum(frame.header.present))


def tag(header: data.View) -> Value:
    """Return whether a delivery is the chosen one.

    The engine's use of a delivery does not depend on its operation's number. So one bit of it can
    say which delivery is watched.
    """
    return header.operation[0]


KEPT = Contract(
    "kept in a memory",
    "a memory's write port → its read port, behind a stream's ready",
    "what holds of each word as it is written, and stays true, holds of each word that is read",
    _entry,
    of_the_past=True,
)


def _order_age(
    m: Module, stream: PureInterface, age: Value, chosen: data.View, *, least: int
) -> Clauses:
    del m
    word = stream.payload
    tagged = stream.valid & tag(word.header) & ~word.reply
    same = (word.slot == chosen.slot) & (word.header.present == chosen.header.present)
    yield "cycles since its delivery left merge", ~tagged | (age >= least)
    yield "as it left merge", ~tagged | (same & (word.header.round == chosen.header.round))


ORDER_AGE = Contract(
    "age of orders",
    "merge → delivery queue → replicate → transmit",
    "an order comes no sooner than so many cycles after its delivery has left merge, and is of the "
    "same slot, round and lanes",
    _order_age,
)


def _order(m: Module, stream: PureInterface, *, lanes: int) -> Clauses:
    del m
    order = stream.payload
    yield "blocks of lanes that are built", ~stream.valid | ((order.header.present >> lanes) == 0)
    yield "as many as it says", ~stream.valid | (order.blocks == _units(order))


ORDER = Contract(
    "order",
    "replicate → transmit",
    "present bits only of lanes that are built, as many as `blocks`",
    _order,
)


def _stream(m: Module, stream: PureInterface, watched: ValueLike = 1, *, of: str) -> Clauses:
    """State it of a stream; of its payload where that is `watched`."""
    del of
    payload = Value.cast(stream.payload)
    waited = Signal()
    before = Signal(len(payload))
    m.d.sync += [waited.eq(stream.valid & ~stream.ready), before.eq(payload)]
    yield "valid stays until ready", ~waited | stream.valid
    yield "payload stays until ready", ~waited | ~Value.cast(watched) | (payload == before)


STREAM = Contract(
    "stream",
    "any stream that can be stopped",
    "what is valid stays as it is until it is taken (Amaranth's RFC 61, AXI4-Stream)",
    _stream,
)


def _phase(m: Module, *phases: Value) -> Clauses:
    before = Signal(init=1)
    m.d.sync += before.eq(phases[0])
    yield "alternates, from 0 on", phases[0] != before
    for n, phase in enumerate(phases[1:]):
        yield f"equal, {n}", phase == phases[0]


PHASE = Contract(
    "phase",
    "engine → admit, control, merge, transmit, slot memory",
    "the phase alternates from cycle to cycle, 0 first, and is the same for all parts",
    _phase,
)


def _reply(m: Module, stream: PureInterface) -> Clauses:
    del m
    yield "no blocks", ~stream.valid | (stream.payload.header.present == 0)


REPLY = Contract(
    "reply",
    "admit → replicate",
    "a short answer has no blocks",
    _reply,
    (_kept(REPLIES, False),),
)


def _orders(m: Module, orders: PureInterface, full: Value, phase: Value) -> Clauses:
    """State it of control's port for orders."""
    had_room = Signal()
    m.d.sync += had_room.eq(~full)
    yield "at phase 1, when admit writes none", ~orders.valid | phase
    yield "a cycle after there was room", ~orders.valid | had_room


CONTROL_ORDERS = Contract(
    "orders of control",
    "control → operations",
    "control orders at phase 1, a cycle after it has seen that the queue has room",
    _orders,
)


def _jobs(m: Module, jobs: list[data.View], *, workers: int, lanes: int, slots: int) -> Clauses:
    del m
    for n, job in enumerate(jobs):
        out = ~job.enabled
        yield f"workers, {n}", out | ((job.workers >= 1) & (job.workers <= workers))
        yield f"lanes, {n}", out | ((job.lane_mask >> lanes) == 0)
        yield f"slots, {n}", out | (job.base + job.count <= slots)
        for other, another in enumerate(jobs[:n]):
            yield (
                f"apart, {other} and {n}",
                out
                | ~another.enabled
                | (job.base + job.count <= another.base)
                | (another.base + another.count <= job.base),
            )


JOBS = Contract(
    "jobs",
    "control → admit, replicate",
    "jobs that are enabled fit into what is built and share no slot",
    _jobs,
)


def _stays(m: Module, *values: Value) -> Clauses:
    for n, value in enumerate(values):
        before, known = Signal(len(value), name=f"stays_{n}"), Signal(name=f"stays_known_{n}")
        m.d.sync += [before.eq(value), known.eq(1)]
        yield f"stays, {n}", ~known | (value == before)


JOBS_STAY = Axiom(
    "jobs stay",
    "scope of the proof",
    "no job is created or closed, and no route changes, during the run that is looked at",
    _stays,
)


def _cut(m: Module, cut: Value) -> Clauses:
    first = Signal(init=1)
    m.d.sync += first.eq(0)
    yield "only in the first cycle", ~cut | first


CUT = Contract(
    "cut",
    "node → transmit, egress, packet FIFOs",
    "that a frame was cut off is reported in the first cycle after a reset only",
    _cut,
)

FRAME_LENGTH = Axiom(
    "length of frames",
    "docs/node.md",
    "no source of the node but the engine sends a frame of more beats than the arbiter was built "
    "for: each sends from a buffer of that size",
    lambda m, stream, so_far, most: iter(
        [("no longer", ~stream.valid | ~stream.ready | (so_far < most))]
    ),
)


def _rings(m: Module, rings: PureInterface) -> Clauses:
    may_pop = Signal()
    resets_it = rings.reset & rings.phase & (rings.reset_ring == rings.head_ring)
    occupied = rings.occupied.bit_select(rings.head_ring, 1)
    m.d.sync += may_pop.eq(occupied & ~resets_it)
    yield "pushes where there is room", rings.phase | ~rings.push | ~rings.full
    yield "pops where something is", rings.phase | ~rings.pop | may_pop


RINGS = Contract(
    "rings",
    "delivery queue → its rings",
    "nothing is pushed into a full ring, nothing popped from an empty one",
    _rings,
)


def _rings_made(m: Module, rings: PureInterface, pushes: Value, used: Value) -> Clauses:
    del m
    whole = (rings.first == 0) & (rings.last == (1 << len(rings.last)) - 1)
    yield "a fence goes before", ~pushes | used
    yield "limits", ~rings.reset | ((rings.first < rings.last) & ~whole)


RINGS_MADE = Axiom(
    "rings are made",
    "hdl/afflux_hdl/engine/control.py",
    "a job has deliveries only after the fence of its create, which has given its rings limits "
    "that fit; tested, not proved",
    _rings_made,
)

LOCAL_STAYS = Axiom(
    "local addresses stay",
    "docs/hardware.md, section 6",
    "the operator sets the engine's addresses before frames come, and leaves them",
    _stays,
)

AXI_MASTER = Axiom(
    "AXI master",
    "AMBA AXI specification, section A3.2.1",
    "a request that is valid stays as it is until it is taken",
    lambda m, stream: _stream(m, stream, of="master"),
)


def _rounds(m: Module, sent: Value, round_: Value, reached: Value) -> Clauses:
    del m
    yield "none that lies ahead", ~sent | at_most(round_, reached)


WORKERS_ROUNDS = Axiom(
    "rounds of workers",
    "docs/protocol.md, sections 6 and 7",
    "a worker sends frames only of rounds that it has reached, within the last 2³¹ − 8; it goes on "
    "to the next round of a slot only after the round was complete",
    _rounds,
)

PARENTS_ROUNDS = Axiom(
    "rounds of parents",
    "docs/protocol.md, section 5.6",
    "a parent sends results only of rounds whose partial sum it has, within the last 2³¹ − 8",
    _rounds,
)

PACKET_LIFE = Axiom(
    "life of packets",
    "docs/protocol.md, section 7",
    "no packet lives for 2³¹ − 8 rounds of its slot",
    _rounds,
)
