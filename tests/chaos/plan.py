"""What a trial is: who sums which way, which fault comes, and at which moment; all from a seed."""

import random
from dataclasses import dataclass, field

__all__ = ["FAULTS", "WAYS", "Kill", "Trial", "drawn"]

WAYS = ("shm", "streams", "aggregator", "gloo")
"""Shared memory of one host; streams between hosts; `afflux serve soft` at udp://; Gloo."""

_KILLS = {
    "rank killed": 30,
    "rank 0 killed": 8,
    "ranks killed one after the other": 12,
    "two ranks killed at once": 6,
    "rank leaves": 2,
    "store killed, then a rank": 2,
}
_PASSING = {
    "rank stopped for a while": 2,
    "/dev/shm full": 1,
    "no descriptor left": 2,
}
_OF_NETWORKS = {
    "packets lost": 3,
    "packets doubled": 2,
    "packets overtaken": 2,
    "packets changed": 2,
    "cable pulled for a while": 2,
    "receives nothing for a while": 1,
    "MTU of an interface shrinks": 1,
    "large packets vanish": 1,
    "neighbours forgotten": 1,
    "storm of a foreign host": 2,
}
_OF_AGGREGATORS = {
    "aggregator killed": 12,
    "aggregator ended": 3,
    "aggregator killed, another at its port": 4,
    "aggregator stopped for a while": 2,
    "aggregator's cable pulled for a while": 1,
    "aggregator and a rank killed": 4,
}
_LONG = {"rank stopped for good": 0.5}
_LONG_OF_NETWORKS = {"cable pulled for good": 0.5}

FAULTS: dict[str, dict[str, float]] = {
    "shm": {**_KILLS, **_PASSING, **_LONG},
    "streams": {**_KILLS, **_PASSING, **_LONG, **_OF_NETWORKS, **_LONG_OF_NETWORKS},
    "gloo": {**_KILLS, **_PASSING, **_LONG, **_OF_NETWORKS, **_LONG_OF_NETWORKS},
    "aggregator": {
        **_KILLS,
        **_PASSING,
        **_LONG,
        **_OF_NETWORKS,
        **_LONG_OF_NETWORKS,
        **_OF_AGGREGATORS,
    },
}
"""What may come, by way, and how often beside the others."""

BENEATH = ("packets lost", "packets doubled", "packets overtaken", "packets changed")
"""Faults under which ranks are killed, too."""

_LAYOUTS = (
    ("h0", "h1"),
    ("h0", "b0", "h1"),
    ("h0", "h1", "b0"),
    ("h0", "h0", "h1"),
    ("h0", "h0", "h1", "b0"),
    ("h0", "h0", "h1", "h1"),
    ("h0", "h0", "b0", "h1", "h1"),
)

CALLS = 12
"""Calls of a part of a trial; the moment of a fault is within them."""


@dataclass(frozen=True)
class Kill:
    """Ranks that are killed at once.

    Attributes:
        victims: Which processes, by their places in the trial.
        call: The call of this part of the trial.
        nanoseconds: From its beginning.
    """

    victims: tuple[int, ...]
    call: int
    nanoseconds: int


@dataclass(frozen=True)
class Trial:
    """One group's life.

    Attributes:
        seed, number: Which determine all others.
        way: One of WAYS.
        layout: The ranks' hosts.
        fault: One of those of the way.
        beneath: Another fault that lasts meanwhile; "" for none.
        kills: Who is killed when, one after the other.
        host: The host that a network's fault is at; "aggregator" for that of the aggregator.
        share: Of packets.
        call, delay_s, seconds: In which call a passing fault begins, how long after its beginning,
            and how long it lasts.
        most: Elements of a tensor.
        fresh: Whether sums are compared with those of a fresh group at the end.
    """

    seed: int
    number: int
    way: str
    layout: tuple[str, ...]
    fault: str
    beneath: str
    kills: tuple[Kill, ...]
    host: str
    share: float
    call: int
    delay_s: float
    seconds: float
    most: int
    fresh: bool
    choose: random.Random = field(compare=False, repr=False)


def drawn(
    seed: int, number: int, ways: tuple[str, ...] = WAYS, only: str = "", calm: bool = False
) -> Trial:
    """Return a trial.

    Args:
        seed: Of the campaign.
        number: Of the trial.
        ways: Those to choose from.
        only: Part of the name of a fault, one of which it shall be.
        calm: Whether it shall be one that ends no process.

    Raises:
        ValueError: No way has such a fault.
    """
    choose = random.Random(f"{seed} {number}")
    may = {
        way: {
            name: often
            for name, often in FAULTS[way].items()
            if only in name and not (calm and _ends_a_process(name))
        }
        for way in ways
    }
    able = [way for way in ways if may[way]]
    if not able:
        raise ValueError(f"none of {', '.join(ways)} has a fault {only!r}")
    way = able[number % len(able)]
    faults = may[way]
    fault = choose.choices(list(faults), list(faults.values()))[0]
    layout = ("h0",) * choose.choice((2, 3, 4, 5)) if way == "shm" else choose.choice(_LAYOUTS)
    several = ("two ranks killed at once", "ranks killed one after the other")
    if fault in several and len(layout) < 4:
        layout = ("h0",) * 4 if way == "shm" else _LAYOUTS[-1]
    spoils = fault in ("packets doubled", "packets overtaken", "packets changed")
    beneath = ""
    if way != "shm" and fault in _KILLS and choose.random() < 0.2:
        beneath = choose.choice(BENEATH)
    if (spoils or beneath) and "b0" not in layout:
        layout = _LAYOUTS[1]
        if fault in several:
            layout = _LAYOUTS[4]
    others = sorted(set(layout) - {"b0"}) or ["h0"]
    return Trial(
        seed=seed,
        number=number,
        way=way,
        layout=layout,
        fault=fault,
        beneath=beneath,
        kills=_kills(choose, fault, len(layout)),
        host="aggregator" if fault.startswith("aggregator") else choose.choice(others),
        share=round(choose.uniform(0.01, 0.2 if fault == "packets lost" else 0.1), 3),
        call=choose.randrange(2, CALLS),
        delay_s=round(10 ** choose.uniform(-5, -2), 6),
        seconds=round(10 ** choose.uniform(-1.5, 0.1), 3),
        most=1 << choose.choice((8, 12, 16, 17)),
        fresh=choose.random() < 0.25,
        choose=choose,
    )


def _ends_a_process(fault: str) -> bool:
    return "killed" in fault or "ended" in fault or "for good" in fault


def _kills(choose: random.Random, fault: str, size: int) -> tuple[Kill, ...]:
    places = list(range(size))

    def kill(victims: list[int]) -> Kill:
        for each in victims:
            places.remove(each)
        # From microseconds to the length of a large call, each as often.
        nanoseconds = round(10 ** choose.uniform(3, 7))
        return Kill(tuple(victims), choose.randrange(1, CALLS), nanoseconds)

    if fault == "rank 0 killed":
        return (kill([0]),)
    if fault == "two ranks killed at once":
        return (kill(choose.sample(places, 2)),)
    if fault == "ranks killed one after the other":
        return tuple(kill([choose.choice(places)]) for _ in range(size - 1))
    if fault in (
        "rank killed",
        "rank leaves",
        "store killed, then a rank",
        "aggregator and a rank killed",
        "rank stopped for good",
    ):
        return (kill([choose.choice(places)]),)
    return ()
