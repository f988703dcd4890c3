"""Two network ports at one engine: each frame by its port, and bugs that are found.

The engine has the output register of the slot memory as well, so that each run of the tests has an
engine with all options; `test_output_register.py` asks more of it.
"""

from collections.abc import Callable
from functools import partial

import pytest

from afflux_hdl.engine.parameters import Parameters
from tests.checks import network_port_checks as checks
from tests.checks.pace_checks import check_idle, check_pace
from tests.scenarios.director import SMALL
from tests.support.checkout import BUILD
from tests.support.planted_engine import engine_verilog
from tests.support.planting import Bug
from tests.support.ported.ported_engine import PORTS, PortedEngine, build_ported

pytestmark = pytest.mark.slow

OPTIONS = {"ports": PORTS, "ram_output_register": 1}
BUILT = Parameters(bus_bits=32, **OPTIONS, **SMALL)
CHECKS: dict[str, Callable[..., object]] = {
    "forgotten": checks.check_ports_are_forgotten,
    "moved": checks.check_moved_workers,
    "refusals": checks.check_refusals_by_port,
    "bursts": checks.check_ports_of_bursts,
    "answers": checks.check_answers_by_port,
    "pace": partial(check_pace, bus_bits=32, later=1),
    "idle": partial(check_idle, bus_bits=32, later=1),
}
TABLES, RECEIVE, TRANSMIT = "engine/tables.py", "engine/receive.py", "engine/transmit.py"

BUGS = {
    # A job's results for its group leave by the ports of the job that had its number before, too.
    "the group of the job before": Bug(
        TABLES, "[row.group.eq(0), row.parent.eq(-1)]", "row.parent.eq(-1)"
    ),
    # A job asks only where the parent was of the job that had its number before.
    "the parent of the job before": Bug(
        TABLES, "[row.group.eq(0), row.parent.eq(-1)]", "row.group.eq(0)"
    ),
    "a command forgets the ports of all jobs": Bug(
        TABLES,
        "self.write.enable & (self.write.address == n)",
        "self.write.enable & ((self.write.address == n) | ~self.write.data.any())",
    ),
    "only the latest worker's port": Bug(
        TABLES, "row.group.eq(row.group | self.write.data)", "row.group.eq(self.write.data)"
    ),
    "the seal by the next frame's port": Bug(
        "engine/seal.py",
        "Mux(sealing, sealed, output.o.payload.net_ports)",
        "output.o.payload.net_ports",
    ),
    # A worker sits behind the port by which the frame before its JOIN has come.
    "a frame comes by the port of the one before": Bug(
        RECEIVE,
        "m.d.sync += net_ports2.eq(beat1.net_ports)",
        "with m.If(ended2):\n                m.d.sync += net_ports2.eq(beat1.net_ports)",
    ),
    "a frame leaves by the port of the one before": Bug(
        TRANSMIT,
        "m.d.sync += net_ports1.eq(order.peer.net_ports)",
        "with m.If(last_issue):\n                m.d.sync += net_ports1.eq(order.peer.net_ports)",
    ),
    "a frame leaves by the port of the next one": Bug(
        TRANSMIT,
        "net_ports1.eq(order.peer.net_ports)",
        "net_ports1.eq(self.i.payload.peer.net_ports)",
    ),
    "a partial sum by the group's ports": Bug(
        "engine/replicate.py",
        "peer1.net_ports.eq(self.read_ports.data.parent)",
        "peer1.net_ports.eq(self.read_ports.data.group)",
    ),
    "whatever a parent sends says where it is": Bug(
        "engine/engine.py",
        "port_table.parent.enable.eq(admit.parent_joined)",
        "port_table.parent.enable.eq(admit.judged | admit.parent_joined)",
    ),
    # With the register, a beat's frame is a cycle behind the one that is read.
    "ports do not wait for the blocks": Bug(
        TRANSMIT,
        "unsent1, net_ports1, words1 = found",
        "unsent1, _, words1 = found",
    ),
    "headers do not wait for the blocks": Bug(
        TRANSMIT,
        "from_words1, text1, unsent1, net_ports1, words1 = found",
        "from_words1, _, unsent1, net_ports1, words1 = found",
    ),
    "what arrives does not wait for the slot memory": Bug(
        "engine/merge.py",
        "blocks1, block_address1, fresh1, opcode1, arriving1 = found",
        "blocks1, block_address1, fresh1, opcode1, _ = found",
    ),
    "idle before the blocks are written": Bug(
        "engine/merge.py", "~(under_way | blocks2 | blocks3)", "~(under_way | blocks2)"
    ),
    "a result is two cycles later": Bug(
        TRANSMIT,
        "m.d.sync += [later.eq(now) for later, now in zip(found, waiting, strict=True)]",
        'again = tuple(Signal.like(each, name=f"again_{n}") for n, each in enumerate(waiting))\n'
        "            m.d.sync += [a.eq(b) for a, b in zip(again + found, waiting + again)]",
    ),
}

SHOWN = "the group of the job before"
"""Of which `make test` shows that it is found: checks through a box did not find it."""


@pytest.fixture(scope="module")
def built():
    return build_ported(BUILT)


@pytest.mark.parametrize("name", CHECKS)
def test_each_frame_leaves_by_its_port(built, name):
    with PortedEngine.from_library(built) as engine:
        CHECKS[name](engine, SMALL)


def noticed(bug: Bug, name: str) -> list[str]:
    """Return which checks notice a bug."""
    folder = BUILD / "tests" / "planted" / name.replace(" ", "-")
    verilog = engine_verilog(folder, bug, BUILT.bus_bits, {**SMALL, **OPTIONS})
    library = build_ported(BUILT, verilog)
    found = []
    for check in CHECKS:
        with PortedEngine.from_library(library) as engine:
            try:
                CHECKS[check](engine, SMALL)
            except Exception as error:
                found.append(check)
                print(f"{name}, {check}: {type(error).__name__} {str(error)[:200]}")
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == SHOWN else pytest.mark.long) for name in BUGS],
)
def test_a_wrong_port_is_caught(name):
    assert noticed(BUGS[name], name)
