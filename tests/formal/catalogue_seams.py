"""The proofs of what is between the engine's stages: commands, queues, dispatch, distance."""

from tests.formal.sby import Proof, SoughtBug

__all__ = ["BOUNDS", "COMMANDS", "COUNTING", "DISPATCH", "DISTANCE", "NARROW", "QUEUES"]

NARROW = {"workers": 2, "lanes": 2, "jobs": 1, "slots": 2}

QUEUES = tuple(
    Proof(
        name=f"queue, {name}",
        harness="queue_order:QueueOrderHarness",
        depth=2,
        arguments={"depth": depth, "buffered": buffered},
        cover=12 if bugs else 0,
        quick=bool(bugs),
        bugs=bugs,
    )
    for name, depth, buffered, bugs in (
        (
            "replies",
            16,
            False,
            (
                SoughtBug(
                    "the level is a cycle early",
                    8,
                    "lib/queue.py",
                    "self.level.eq(fifo.level)",
                    "self.level.eq(fifo.level + fifo.w_en)",
                ),
            ),
        ),
        ("operations and summaries", 64, True, ()),
    )
)

COUNTING = tuple(
    Proof(
        name=f"counting, {of}",
        harness="counting:CountingHarness",
        depth=2,
        arguments={"of": of},
        cover=12 if bugs else 0,
        quick=of == "few",
        bugs=bugs,
    )
    for of, bugs in (
        (
            "few",
            (
                SoughtBug(
                    "an event in the cycle in which what is recent moves is lost",
                    8,
                    "lib/counter_bank.py",
                    "moved.eq(select(grown, turn))",
                    "moved.eq(select(recent, turn))",
                ),
                SoughtBug(
                    "a reset leaves what was counted before",
                    8,
                    "lib/counter_bank.py",
                    "write.data.eq(Mux(clears, COUNTS_FROM, total) + moved)",
                    "write.data.eq(total + moved)",
                ),
                SoughtBug(
                    "what was counted before a reset is read until its turn",
                    8,
                    "lib/counter_bank.py",
                    "Mux(clears & (self.number >= place), COUNTS_FROM, shown_read.data)",
                    "shown_read.data",
                ),
                SoughtBug(
                    "what is under way is not in the value",
                    9,
                    "lib/counter_bank.py",
                    "Mux(place == self.number, moved, select(recent, self.number))",
                    "select(recent, self.number)",
                ),
                SoughtBug(
                    "what moves has room for the steps of one turn less",
                    9,
                    "lib/counter_bank.py",
                    "range(count * most + 1)",
                    "range((count - 1) * most + 1)",
                ),
                SoughtBug(
                    "what is recent has room for the steps of one turn less",
                    9,
                    "lib/counter_bank.py",
                    "range((count - 1) * most + 1)",
                    "range((count - 2) * most + 1)",
                ),
            ),
        ),
        ("node", ()),
        ("engine", ()),
    )
)

BOUNDS = (
    Proof(
        name="bound of operations",
        harness="queue_bounds:QueueBoundsHarness",
        depth=4,
        arguments={"of": "operations", **NARROW},
        bugs=(
            SoughtBug(
                "admit goes on while the queue is full",
                24,
                "engine/engine.py",
                "admit.o_full.eq(operations.level > OPERATIONS - OPERATIONS_MARGIN)",
                "admit.o_full.eq(0)",
                arguments={"operations": 9},
            ),
            SoughtBug(
                "too small a margin for what is in flight",
                24,
                "engine/engine.py",
                "operations.level > OPERATIONS - OPERATIONS_MARGIN",
                "operations.level > OPERATIONS - 2",
                arguments={"operations": 9},
            ),
        ),
    ),
    Proof(
        name="bound of replies",
        harness="queue_bounds:QueueBoundsHarness",
        depth=4,
        arguments={"of": "replies", **NARROW},
        cover=40,
        bugs=(
            SoughtBug(
                "answers beyond what their queue holds",
                32,
                "engine/engine.py",
                "replies.level > REPLIES - REPLIES_MARGIN",
                "replies.level > REPLIES",
                arguments={"replies": 4},
            ),
        ),
    ),
)

COMMANDS = (
    Proof(
        name="drain",
        harness="drain:DrainHarness",
        depth=7,
        arguments=NARROW,
        cover=60,
        bugs=(
            SoughtBug(
                "the fence does not wait for the admit stage",
                60,
                "engine/control.py",
                "with m.If(step == DRAIN_CYCLES):",
                "with m.If(step == 0):",
            ),
        ),
    ),
    Proof(
        name="commands, 2 jobs",
        harness="commands:CommandsHarness",
        depth=4,
        arguments={"workers": 2, "jobs": 2},
    ),
    Proof(
        name="commands, narrow",
        harness="commands:CommandsHarness",
        depth=4,
        arguments=NARROW,
        cover=40,
        bugs=(
            SoughtBug(
                "slots beyond the pool",
                40,
                "engine/control.py",
                "slots_end > p.slots",
                "slots_end > p.slots + 1",
            ),
            SoughtBug(
                "an order when its queue is full",
                20,
                "engine/control.py",
                "with m.If(~self.phase & ~self.orders_full):",
                "with m.If(~self.phase):",
            ),
        ),
    ),
)

DISPATCH = (
    Proof(
        name="dispatch, narrow",
        harness="dispatch:DispatchHarness",
        depth=6,
        arguments={**NARROW, "jobs": 2},
        cover=28,
        bugs=(
            SoughtBug(
                "discarded orders are not given back",
                28,
                "engine/replicate.py",
                "under_way + self.i.valid - retire - discarded",
                "under_way + self.i.valid - retire",
            ),
            SoughtBug(
                "a frame without room for its order",
                28,
                "engine/replicate.py",
                "self.room.eq(under_way + self.i.valid < HEADERS)",
                "self.room.eq(under_way <= HEADERS)",
            ),
            SoughtBug(
                "more blocks than lanes",
                16,
                "engine/delivery_queue.py",
                "written.blocks.eq(sum(arriving.header.present) << arriving.partial)",
                "written.blocks.eq((sum(arriving.header.present) << arriving.partial) + 1)",
            ),
        ),
    ),
    Proof(name="dispatch, as built", harness="dispatch:DispatchHarness", depth=6),
)

DISTANCE = (
    Proof(
        name="distance, 512 bits, narrow",
        harness="distance:DistanceHarness",
        depth=8,
        arguments=NARROW,
        cover=32,
        bugs=(
            SoughtBug("an order two cycles too early", 28, arguments={"order_age": 6}),
            SoughtBug(
                "a block is sent before the look-ahead words",
                28,
                by="transmit:blocks_before_words",
            ),
        ),
    ),
    Proof(name="distance, 512 bits, as built", harness="distance:DistanceHarness", depth=8),
    Proof(
        name="distance, 32 bits, as built",
        harness="distance:DistanceHarness",
        depth=8,
        arguments={"bus_bits": 32},
    ),
)
