"""A golden engine with one job whose golden workers have all joined."""

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Endpoint, GroupAddress
from afflux_sim.golden.network import join_all, make_workers
from afflux_sim.golden.worker import GoldenWorker

ENGINE = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700)
JOB = 2
KEY = 0x00F1E2D3C4B5A697
GROUP_KEY = 0x0F1E2D3C4B5A6978
# So that round numbers wrap early in every test.
FIRST_ROUND = 2**32 - 2


def new_engine(
    engine_class: type[GoldenEngine] = GoldenEngine,
    *,
    window: int | None = None,
) -> GoldenEngine:
    return engine_class(
        mac=ENGINE.mac,
        address=ENGINE.address,
        port=ENGINE.port,
        windows={} if window is None else dict.fromkeys((1, 2, 3), window),
    )


def new_job(
    *,
    workers: int,
    lanes: int,
    slots: int = 1,
    first_round: int = FIRST_ROUND,
    engine_class: type[GoldenEngine] = GoldenEngine,
    group: GroupAddress | None = None,
    window: int | None = None,
) -> tuple[GoldenEngine, list[GoldenWorker]]:
    engine = new_engine(engine_class, window=window)
    engine.create_job(
        JOB,
        key=KEY,
        workers=workers,
        lanes=lanes,
        slot_base=7,
        slot_count=slots,
        round=first_round,
        credit=slots + 1,
        group=group,
        group_key=GROUP_KEY,
    )
    members = make_workers(
        workers,
        engine=ENGINE,
        job=JOB,
        key=KEY,
        round=first_round,
        lanes=lanes,
        slots=slots,
        group=group,
    )
    join_all(engine.receive, members)
    return engine, members
