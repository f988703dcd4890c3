"""The bounded proofs from `rx` to `tx`."""

from tests.formal.sby import Proof, SoughtBug

__all__ = ["END_TO_END"]

PREFIX = 96
"""Cycles of configuration, create and JOINs, at 512 bits: before them nothing is free."""

ENDS = [6, 12, 18, 24]
"""Frames of six beats, or of two, at line rate."""

FIRST_LIFE = 30
"""Cycles behind the prefix, at any of which a reset may fall. The last frame is cut off by it."""

CREATED = 64
"""Cycles behind the prefix by the end of which a second create is over."""

BURST = [18, *range(20, 44, 2)]
"""A frame of 18 beats, and twelve of two."""

NARROW = {"at_any_time": ["commands", "stops", "link"], "bus_bits": 512}

END_TO_END = (
    Proof(
        name="end to end",
        harness="end_to_end:EndToEndHarness",
        depth=PREFIX + 53,
        arguments={**NARROW, "ends": ENDS},
        cover=PREFIX + 61,
        bounded=True,
        limit_s=3600,
        bugs=(
            SoughtBug(
                "double count",
                PREFIX + 55,
                "engine/verdict.py",
                "with m.Elif(current & ~position.own_seen):",
                "with m.Elif(current & ~position.full):",
            ),
            SoughtBug(
                "a fence does not wait",
                PREFIX + 63,
                "engine/delivery_queue.py",
                "& ~self.busy_jobs.bit_select(closing_job, 1)",
                "",
            ),
            SoughtBug(
                "results that were queued at a reset keep their slots",
                PREFIX + 61,
                "engine/delivery_queue.py",
                "Mux(self.phase, forget, leaves",
                "Mux(self.phase, 0, leaves",
            ),
            SoughtBug(
                "a result is dropped for one worker",
                PREFIX + 61,
                "engine/delivery_queue.py",
                "last.eq(~to_all | (worker1 == last_worker1)),",
                "last.eq(1),",
            ),
            SoughtBug(
                "a result is sent again and again",
                PREFIX + 61,
                "engine/delivery_queue.py",
                "rings.pop.eq(dispatched & last),",
                "rings.pop.eq(dispatched & last & of_replays1),",
            ),
        ),
    ),
    # For every day: two frames, and neither commands nor a network that stops.
    Proof(
        name="end to end, quick",
        harness="end_to_end:EndToEndHarness",
        depth=PREFIX + 51,
        arguments={"bus_bits": 512, "at_any_time": [], "ends": ENDS[:2]},
        bounded=True,
        quick=True,
        bugs=(
            SoughtBug(
                "a result is dropped for one worker",
                PREFIX + 57,
                "engine/delivery_queue.py",
                "last.eq(~to_all | (worker1 == last_worker1)),",
                "last.eq(1),",
            ),
        ),
    ),
    # Fewer frames, and so further: both results leave, with some cycles in which they may be late.
    Proof(
        name="end to end, two frames",
        harness="end_to_end:EndToEndHarness",
        depth=PREFIX + 62,
        arguments={**NARROW, "ends": ENDS[:2]},
        bounded=True,
        limit_s=3600,
    ),
    # A second life of the job, from a reset on that falls at any step of the first one.
    Proof(
        name="end to end, reset inside",
        harness="end_to_end:EndToEndHarness",
        depth=2 * PREFIX + FIRST_LIFE + 56,
        arguments={
            **NARROW,
            "ends": [*ENDS[:3], FIRST_LIFE + 3],
            "again": {
                "by": "reset",
                "cycles": FIRST_LIFE,
                "ends": ENDS[:2],
                "at_any_time": ["stops"],
            },
        },
        cover=2 * PREFIX + FIRST_LIFE + 55,
        bounded=True,
        limit_s=3600,
        bugs=(
            SoughtBug(
                "results that are queued when a reset falls keep their slots",
                2 * PREFIX + FIRST_LIFE + 61,
                "engine/delivery_queue.py",
                "Mux(self.phase, forget, leaves",
                "Mux(self.phase, 0, leaves",
                cleared=True,
            ),
        ),
    ),
    # A second life, from a create on that comes as the round of the first one is complete.
    *(
        Proof(
            name=f"end to end, created again after {command}",
            harness="end_to_end:EndToEndHarness",
            depth=PREFIX + CREATED + 59,
            arguments={
                "bus_bits": 512,
                "at_any_time": ["stops"],
                "ends": ENDS[:2],
                "again": {
                    "by": "create",
                    "command": command,
                    "cycles": CREATED,
                    "ends": ENDS[:2],
                    "at_any_time": [],
                },
            },
            cover=PREFIX + CREATED + 59 if bugs else 0,
            bounded=True,
            limit_s=3600,
            bugs=bugs,
        )
        for command, bugs in (
            (14, ()),
            (
                26,
                (
                    SoughtBug(
                        "only the first create initialises the slots",
                        PREFIX + CREATED + 59,
                        "engine/control.py",
                        "m.d.sync += [initialise.eq(1), step.eq(step + 1)]",
                        "m.d.sync += [initialise.eq(job.generation[0]), step.eq(step + 1)]",
                    ),
                ),
            ),
            (38, ()),
        )
    ),
    # Two-beat frames behind a large one, as fast as they come: the queue before merge fills up.
    Proof(
        name="end to end, burst",
        harness="end_to_end:EndToEndHarness",
        depth=PREFIX + 59,
        arguments={"bus_bits": 512, "lanes": 4, "at_any_time": [], "ends": BURST},
        cover=PREFIX + 77,
        bounded=True,
        limit_s=3600,
        bugs=(
            SoughtBug(
                "admit goes on while the queue of operations is full",
                PREFIX + 85,
                "engine/engine.py",
                "admit.o_full.eq(operations.level > OPERATIONS - OPERATIONS_MARGIN)",
                "admit.o_full.eq(0)",
            ),
        ),
    ),
)
