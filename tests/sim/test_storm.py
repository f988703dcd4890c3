"""Everything that an engine and a node may meet, drawn together: a short storm, and what it finds.

`make fuzz` has the long one, on models whose link is down sooner.
"""

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component

from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.transmit import Transmit
from afflux_hdl.lib.frame_boundary import WholeFrames
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.engine_checks import BUILDS, open_engine
from tests.fuzz.fuzzer import BUILD
from tests.fuzz.node_storm import NodeStorm
from tests.fuzz.storm import Storm
from tests.support.node_build import NODE
from tests.support.overriding import Override, found_in_engine

LINK_TIMEOUT = Parameters.link_timeout

DRAWN = {
    *("bursts", "created amid frames", "destroyed amid frames", "takes 0%", "takes 30%"),
    *("discarded", "link down by command", "takes 100%"),
}
SELDOM = {"parents joined amid frames", "resets"}


@pytest.mark.parametrize(
    ("bus_bits", "seed", "frames"),
    # With seed 5 everything happens soon, and numbers come to a round of integers that overflow.
    [(32, 3, 2500), (512, 5, 700), pytest.param(512, 3, 2500, marks=pytest.mark.long)],
)
def test_an_engine_in_a_storm(bus_bits: int, seed: int, frames: int) -> None:
    """On an engine that other tests have built."""
    with open_engine(bus_bits) as engine:
        report = Storm(engine, seed, BUILDS[bus_bits], LINK_TIMEOUT).storm(frames)
        assert engine.statistics().receive_stalls == 0
    wanted = DRAWN | SELDOM if frames > 2000 else DRAWN
    assert {name for name in wanted if not report.events[name]} == set()


@pytest.mark.parametrize("frames", [500, pytest.param(1000, marks=pytest.mark.long)])
def test_a_node_in_a_storm(frames: int) -> None:
    with VerilatedNode(NODE) as node:
        report = NodeStorm(node, NODE, 3).storm(frames)
        assert node.statistics().network_stalls == 0
    beside = {f"node: {name}" for name in ("to_host", "arp_replies", "echo_replies", "from_host")}
    assert {name for name in DRAWN | beside if not report.events[name]} == set()


def forgets_nothing(m: Module, engine: Engine) -> None:
    m.d.comb += engine.queue.forget.eq(0)


def watches_no_link(m: Module, engine: Engine) -> None:
    m.d.comb += engine.control.discarding.eq(engine.control.discard | engine.link_down)


def keeps_tails(m: Module, whole: WholeFrames) -> None:
    beat = whole.i.payload
    m.d.comb += [
        whole.o.valid.eq(whole.i.valid),
        whole.i.ready.eq(whole.o.ready),
        whole.o.payload.error.eq(beat.error | (beat.last & ~beat.keep[0])),
    ]


def ends_nothing(m: Module, transmit: Transmit) -> None:
    m.d.comb += transmit.seal.i.payload.error.eq(transmit.cut)


BUGS: dict[str, tuple[type[Component], Override]] = {
    "a fence forgets no queued results": (Engine, forgets_nothing),
    "a link that is down is not noticed": (Engine, watches_no_link),
    "a tail after a reset is a frame": (WholeFrames, keeps_tails),
    "what is cut off has no end": (Transmit, ends_nothing),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    with found_in_engine(*BUGS[name], 512, BUILD) as engine:
        Storm(engine, 3, link_timeout=LINK_TIMEOUT).storm(60_000)
