"""One node behind two ports of a box, as an engine of the scenarios, with a model of its ports.

Where a frame has to leave is known from `docs/node.md`, "Several network ports", alone: each end of
the scenarios sits behind a port that follows from its addresses.
"""

from collections import Counter
from collections.abc import Sequence

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from tests.support.box.simulated_box import SimulatedBox
from tests.support.port_rules import ports_for, source_port

__all__ = ["TwoPorts"]


class TwoPorts:
    """Plays frames by both ports, and checks by which each answer leaves.

    Args:
        box: A box whose two ports share a node.
        golden: The golden engine, which knows who has joined.

    Attributes:
        seen: Frames that have left, by the set of ports that they left by.
    """

    def __init__(self, box: SimulatedBox, golden: GoldenEngine) -> None:
        self._box = box
        self._golden = golden
        self.seen: Counter[frozenset[int]] = Counter()

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        box = self._box
        # Those that the MAC marks end in the adapter.
        marks = mac_errors or [False] * len(frames)
        frames = [frame for frame, marked in zip(frames, marks, strict=True) if not marked]
        for port in range(2):
            box.pace(box.rx(port), gaps=stimulus.gap_share, depth=256)
            box.from_network([each for each in frames if source_port(each) == port], port)
        box.seed(stimulus.seed)
        box.settle()
        # Both ports take a beat in each cycle, so frames leave in the order of the node.
        sent = sorted(
            (each.first, port, each.frame) for port in range(2) for each in box.to_network(port)
        )
        got: list[bytes] = []
        copies: Counter[bytes] = Counter()
        for _, port, frame in sent:
            expected = ports_for(self._golden, frame)
            assert port in expected, f"by port {port}, not {expected}: {frame[:64].hex(' ', 4)}"
            copies[frame] += 1
            if copies[frame] % len(expected) == 1 % len(expected):
                got.append(frame)
                self.seen[frozenset(expected)] += 1
        for frame, number in copies.items():
            expected = ports_for(self._golden, frame)
            by_port = Counter(port for _, port, each in sent if each == frame)
            assert by_port == dict.fromkeys(expected, number // len(expected)), by_port
        return got

    def read(self, address: int) -> int:
        return self._box.read(address)

    def write(self, address: int, value: int) -> None:
        self._box.write(address, value)
