"""Frames that miss by little are judged as the protocol says.

An engine with ten comparisons that are too short shows that each of them is found.
"""

import pytest

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.near_checks import misjudged
from tests.scenarios.director import Build
from tests.support.planted_engine import planted_engine
from tests.support.planting import Bug

BUILT: Build = {"workers": 3, "lanes": 2, "jobs": 1, "slots": 2}
"""As in `tests/sim/test_planted_bugs.py`."""


@pytest.mark.parametrize("bus_bits", list(BUILDS))
def test_the_engine_judges_them_rightly(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        assert not list(misjudged(engine, BUILDS[bus_bits]))


RECEIVE, ADMIT = "engine/receive.py", "engine/admit.py"

BUGS = {
    "question: EtherType, byte 13": Bug(
        RECEIVE,
        "(ethernet.type != as_sent(ETHERTYPE_IPV4, 2))",
        "(ethernet.type[:8] != as_sent(ETHERTYPE_IPV4, 2) & 0xFF)",
    ),
    "question: destination MAC, byte 5": Bug(
        RECEIVE,
        "(ethernet.destination != self.local.mac)",
        "(ethernet.destination[:40] != self.local.mac[:40])",
    ),
    "question: protocol, value 145": Bug(
        RECEIVE, "(ipv4.protocol != PROTOCOL_UDP)", "(ipv4.protocol[:7] != PROTOCOL_UDP)"
    ),
    "question: fragment, byte 20, bit 7": Bug(
        RECEIVE, "as_sent(0xFFFF - DONT_FRAGMENT, 2)", "as_sent(0x7FFF - DONT_FRAGMENT, 2)"
    ),
    "question: lengths of UDP off by 1": Bug(
        RECEIVE,
        "(udp.length[8:] != Mux(sealed, least_udp + wire.SEAL_BYTES, least_udp))",
        "(udp.length[9:] != Mux(sealed, least_udp + wire.SEAL_BYTES, least_udp) >> 1)",
    ),
    "question: version and type, byte 42, bit 7": Bug(
        RECEIVE,
        "flags3.bad_version.eq(afflux.version != wire.VERSION)",
        "flags3.bad_version.eq(afflux.version[:3] != wire.VERSION)",
    ),
    "question: worker, byte 45, bit 7": Bug(
        ADMIT, "header1.worker < job1.workers", "header1.worker[:7] < job1.workers"
    ),
    "question: source port, byte 35, bit 7": Bug(
        ADMIT, "source1.port == expected.port", "source1.port[:15] == expected.port[:15]"
    ),
    "result from above: key, byte 61": Bug(
        ADMIT,
        "key2[n].eq(header1.key.word_select(n, 16) == key.word_select(n, 16))",
        "key2[n].eq((header1.key.word_select(n, 16) == key.word_select(n, 16))"
        " | (from_parent1 if n == 3 else 0))",
    ),
    "confirmation from above: worker, byte 45": Bug(
        ADMIT,
        "header1.worker == route1.parent_worker",
        "header1.worker[1:] == route1.parent_worker[1:]",
    ),
}
"""By the frame that shows it."""


@pytest.mark.slow
@pytest.mark.long
def test_each_comparison_that_is_too_short_is_found() -> None:
    """All at once, in one engine: each is shown by frames that show no other."""
    first, *more = BUGS.values()
    with planted_engine("near misses", first, 32, BUILT, *more) as engine:
        found = list(misjudged(engine, BUILT))
    for shown in BUGS:
        assert any(each.startswith(shown) for each in found), shown
