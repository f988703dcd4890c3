"""The storm around a node: the engine's, and all that passes it or is answered beside it.

To the storm the node looks like an engine. Among the storm's frames come questions of ARP and echo,
right and wrong, and frames for the host; the host sends and stalls. The outcome of these is
compared with the golden node, that of the engine's frames with the golden engine.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from afflux_hdl.contract.registers import NODE_COUNTERS, node_counter_address
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.fuzz.storm import Storm
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import Build
from tests.scenarios.golden_node import GoldenNode, Sent, count_missing
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC
from tests.scenarios.node_frames import draw_question, random_host_frame
from tests.scenarios.packing import Peer

__all__ = ["LINK_TIMEOUT", "NodeStorm"]

HERE = Peer(
    bytes.fromhex(ENGINE_MAC.replace(":", "")),
    bytes(map(int, ENGINE_ADDRESS.split("."))),
    ENGINE_PORT,
)
OF_HOST = b"\x33"
"""First octet of what the host sends: a group's address, which no answer of the node goes to."""

LINK_TIMEOUT = 3000
"""Of the nodes in a long storm. A read of a register takes some cycles here."""

POOL = 150
"""Frames that are drawn once, since scapy takes long to build them."""


class _Node:
    """A node that takes the storm's frames as an engine would, among others.

    Args:
        node: Fresh.
        built: Its sizes.
        seed: Of all that is drawn here.
    """

    def __init__(self, node: VerilatedNode, built: NodeParameters, seed: int) -> None:
        self._node = node
        self._built = built
        self._choose = random.Random(f"node {seed}")
        choose = self._choose
        self._questions = [draw_question(choose) for _ in range(POOL)]
        self._passing = [random_host_frame(choose, 600) for _ in range(POOL)]
        self.read, self.write, self.statistics = node.read, node.write, node.statistics

    def begin(self, golden: GoldenEngine) -> None:
        """Begin anew: the node has been reset, and its engine has this twin."""
        built = self._built
        beat_bytes = built.engine.bus_bits // 8
        self._golden = GoldenNode(golden, built.engine.jobs, built.host_buffer_bytes, beat_bytes)
        self._out = Sent()
        self._others = 0
        self._before = self._counters()
        self._offered: list[bytes] = []

    def reaches(self, frame: bytes) -> bool:
        """Return whether a frame from the network is one for the engine."""
        return self._golden.destination(frame) == "engine"

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
        writes: Sequence[tuple[int, int, int]] = (),
    ) -> list[bytes]:
        """Play frames among others; return those of the engine that have left."""
        choose = self._choose
        errors = mac_errors or [False] * len(frames)
        mixed: list[tuple[bytes, bool]] = []
        busy = frames and not stimulus.drain and choose.random() < 0.7
        for frame, error in zip(frames, errors, strict=True):
            while busy and choose.random() < 0.3:
                other = choose.choice((self._questions, self._passing))
                mixed.append((choose.choice(other), choose.random() < 0.05))
            mixed.append((frame, error))
        up = []
        if busy or stimulus.reset_at:
            size, most = self._built.engine.bus_bits // 8, self._built.host_buffer_bytes
            sizes = (1, size, size + 1, 60, 300, 1514, most, most + 1)
            for _ in range(choose.randrange(6)):
                frame = OF_HOST + choose.randbytes(choose.choice(sizes) - 1)
                up.append((frame, choose.random() < 0.08))
        for frame, error in mixed:
            if not self.reaches(frame):
                self._golden.from_network(frame, error)
            self._others += not self.reaches(frame)
            self._offered.append(frame)
        for frame, error in up:
            self._golden.from_host(frame, error)
        self._node.pace(
            NodePace(
                seed=stimulus.seed,
                network_gaps=stimulus.gap_share,
                network_ready=stimulus.ready_share,
                host_gaps=0 if stimulus.drain else choose.choice((0.0, 0.3)),
                host_ready=1 if stimulus.drain else choose.choice((1.0, 0.6, 0.1)),
                reset_at=stimulus.reset_at,
            )
        )
        # The register port has its own time: what is written comes between two frames.
        at = choose.randrange(len(mixed) + 1) if writes else 0
        got = self._play(mixed[:at], up, False) if writes else []
        for _, address, value in writes:
            self._node.write(address, value)
        return got + self._play(mixed[at:], [] if writes else up, stimulus.drain)

    def _play(
        self,
        down: Sequence[tuple[bytes, bool]],
        up: Sequence[tuple[bytes, bool]],
        drain: bool,
    ) -> list[bytes]:
        to_network, to_host = self._node.play(
            [frame for frame, _ in down],
            [frame for frame, _ in up],
            drain,
            network_errors=[error for _, error in down],
            host_errors=[error for _, error in up],
        )
        out, engine = self._out, []
        out.to_host += to_host
        for frame in to_network:
            if frame[:1] == OF_HOST:
                out.from_host.append(frame)
            elif frame[12:14] == b"\x08\x06":
                out.arp.append(frame)
            elif frame[23] == 1:
                out.echo.append(frame)
            else:
                engine.append(frame)
        return engine

    def settle(self, from_engine: int, *, lossy: bool) -> Counter[str]:
        """Compare what has left beside the engine's frames since the last rest.

        Args:
            from_engine: Frames that the engine has sent since.
            lossy: The link was down, or may have been.

        Returns:
            By how much the node's counters have grown.
        """
        due, out = self._golden.sent, self._out
        now = self._counters()
        grown = Counter({name: now[name] - self._before[name] for name in now})
        expected = self._golden.counters
        missing = {
            name: count_missing(getattr(out, name), getattr(due, name))
            for name in ("arp", "echo", "from_host", "to_host")
        }
        expected["to_engine"] = grown["to_engine"]
        expected["network_frames_in"] += grown["to_engine"]
        expected["host_overflow"] = missing["to_host"]
        expected["to_host"] -= missing["to_host"]
        expected["arp_replies"] -= missing["arp"]
        expected["echo_replies"] -= missing["echo"]
        # A faulty echo request that finds no room is not looked at any further.
        unseen = expected["echo_bad"] - grown["echo_bad"]
        assert unseen >= 0, f"{-unseen} echo requests are faulty to the node alone"
        expected["echo_bad"] -= unseen
        expected["replies_dropped"] = missing["arp"] + missing["echo"] + unseen
        assert lossy or not missing["from_host"], f"{missing['from_host']} frames of the host"
        expected["from_host"] -= missing["from_host"]
        expected["from_host_discarded"] = missing["from_host"]
        if lossy:
            # One that finds no room is not looked at any further, be it too large.
            too_large = grown["from_host_oversize"]
            assert too_large <= expected["from_host_oversize"]
            expected["from_host_discarded"] += expected["from_host_oversize"] - too_large
            expected["from_host_oversize"] = too_large
        others = sum(len(getattr(out, name)) for name in ("arp", "echo", "from_host"))
        expected["network_frames_out"] = from_engine + others
        for name in ("network_bytes_in", "network_bytes_out"):
            expected[name] = grown[name]
        different = {
            name: (grown[name], expected[name]) for name in grown if grown[name] != expected[name]
        }
        assert not different, f"the node's counters, and its twin's: {different}"
        self._before = now
        self._golden.sent, self._out = Sent(), Sent()
        self._golden.counters.clear()
        self._offered.clear()
        return grown

    def check_behind_reset(self) -> None:
        """Everything that passed was whole and in order, and what came later went to the host."""
        out, due = self._out, self._golden.sent
        count_missing(out.to_host, self._offered)
        for name in ("arp", "echo", "from_host"):
            count_missing(getattr(out, name), getattr(due, name))
        counts = self._counters()
        assert counts["to_engine"] == counts["arp_replies"] == counts["echo_replies"] == 0, counts
        passed = counts["to_host"] + counts["host_overflow"] + counts["bad_frames"]
        assert counts["network_frames_in"] == passed <= len(self._offered), counts

    def _counters(self) -> dict[str, int]:
        counts = {}
        for counter in NODE_COUNTERS:
            address = node_counter_address(counter.name)
            # The upper half is that of the lower half that was read last.
            low = self._node.read(address)
            counts[counter.name] = self._node.read(address + 4) << 32 | low
        return counts


class NodeStorm(Storm):
    """A storm whose engine is inside a node.

    Args:
        node: Fresh.
        built: Its sizes.
        seed: Determines every byte and every cycle.
    """

    def __init__(self, node: VerilatedNode, built: NodeParameters, seed: int) -> None:
        self._node = _Node(node, built, seed)
        # It has what a storm needs of an engine.
        engine: Any = self._node
        p = built.engine
        build: Build = {
            "workers": p.workers, "lanes": p.lanes, "jobs": p.jobs, "slots": p.slots,
        }  # fmt: skip
        super().__init__(engine, seed, build, p.link_timeout, HERE)

    def _begin(self) -> None:
        super()._begin()
        self._node.begin(self._golden)

    def _configure(self) -> None:
        self._node.begin(self._golden)
        super()._configure()

    def _reaches(self, frame: bytes) -> bool:
        return self._node.reaches(frame)

    def _rest(self, start: dict[str, int]) -> None:
        super()._rest(start)
        grown = self._node.settle(len(self._got), lossy=self._scoreboard.lossy)
        self.events.update({f"node: {name}": count for name, count in grown.items()})

    def _check_behind_reset(self, frames: Sequence[bytes], errors: Sequence[bool]) -> None:
        """Check that nothing reaches the engine, which has no address."""
        counts = {name: count for name, count in self._read_counters().items() if count}
        assert not counts, f"after a reset: {counts}"
        self._node.check_behind_reset()
